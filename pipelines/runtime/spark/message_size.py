"""Samples the size of a topic's messages, to limit how many are held in memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ....infra.kafka_connection import READER_GROUP, KafkaConnection

UNKNOWN_SIZE: Final = 1 << 30
"""Larger than any message."""
_SAMPLE: Final = 500
_TIMEOUT_S: Final = 1.0


def largest_message_bytes(kafka: KafkaConnection, begin: Mapping[str, Mapping[int, int]]) -> int:
    """Returns the bytes of the largest of some messages at these offsets; UNKNOWN if none arrived in time, and 0 if
    there are none."""
    consumer = Consumer(
        {
            **kafka.to_librdkafka(),
            "group.id": READER_GROUP,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,
            "max.partition.fetch.bytes": 262_144,
            "queued.max.messages.kbytes": 4_096,
        }
    )
    places = [
        TopicPartition(topic, p, offset) for topic, offsets in begin.items() for p, offset in offsets.items()
    ]
    largest, ended, seen = 0, 0, 0
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        consumer.assign(places)
        while seen < _SAMPLE and ended < len(places) and time.monotonic() < deadline:
            for message in consumer.consume(_SAMPLE, 0.05):
                if (error := message.error()) is None:
                    seen += 1
                    largest = max(largest, len(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended += 1
    except KafkaException:
        return UNKNOWN_SIZE
    finally:
        consumer.close()
    return largest if seen or ended == len(places) else UNKNOWN_SIZE
