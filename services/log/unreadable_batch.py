"""Finds the end of a batch that the Kafka client cannot decompress.

Kafka accepts a compressed batch whatever it expands to. librdkafka refuses one that is damaged, or that expands to too
much, reports the offset of its first record, and fetches it again for ever: one such batch would block all reading of a
partition. A reader that may skip records has to continue after the batch. The client does not report its end. A fetch
at any offset in the batch reports the same first record, so a search finds the end in a few fetches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ...infra.kafka_connection import KafkaConnection
from .clients import consumer_configuration, poll_message
from .event_log import LogUnavailable

UNREADABLE_BATCH: Final = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG})
"""Errors that name the first record of a batch."""
_PROBE_TIMEOUT_S = 30.0
_BEHIND_END = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})


def find_batch_end(kafka: KafkaConnection, topic: str, partition: int, first: int) -> int:
    """Returns the offset after the unreadable batch whose first record has the offset `first`.

    Raises LogUnavailable if Kafka does not answer.
    """
    consumer = Consumer(consumer_configuration(kafka, auto_offset_reset="error", enable_partition_eof=True))

    def is_in_batch(offset: int) -> bool:
        consumer.assign([TopicPartition(topic, partition, offset)])
        deadline = time.monotonic() + _PROBE_TIMEOUT_S
        while time.monotonic() < deadline:
            message = poll_message(consumer, 1.0)
            if message is None:
                continue
            error = message.error()
            if error is None or error.code() in _BEHIND_END:
                return False
            if error.code() in UNREADABLE_BATCH:
                return message.offset() == first
        raise LogUnavailable(f"{topic} was not read at offset {offset} within {_PROBE_TIMEOUT_S:.0f} s")

    try:
        return search_end(first, is_in_batch)
    finally:
        consumer.close()


def search_end(first: int, is_in_batch: Callable[[int], bool]) -> int:
    """Returns the first offset after `first` for which `is_in_batch` is False. `is_in_batch` must be True for all
    offsets before it, and False for all later batches. It is called O(log n) times for a batch of n records."""
    inside, step = first, 1
    while is_in_batch(inside + step):
        inside, step = inside + step, 2 * step
    outside = inside + step
    while outside - inside > 1:
        middle = (inside + outside) // 2
        if is_in_batch(middle):
            inside = middle
        else:
            outside = middle
    return outside
