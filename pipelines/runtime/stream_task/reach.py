"""Whether a partition still reaches as far as somebody's progress says: what was deleted is never taken for nothing."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ..failures import ProgressLost, TaskError

_TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 0.1
_APPEARS_S: Final = 5.0
"""A topic that was made a moment ago is not known to the brokers that have it yet: it is gone if it stays away."""
GONE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
"""What clients say of a topic or partition that is not there."""
_MOVING: Final = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
"""What brokers say while a partition gets another leader: it has one again soon."""


def watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset of a partition, and the one behind the last committed record now.

    What brokers say only for a moment is waited for. Raises KafkaException.
    """
    began = time.monotonic()
    while True:
        try:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=_TIMEOUT_S, cached=False
            )
            return int(low), int(high)
        except KafkaException as error:
            code = error.args[0].code()
            patience = _TIMEOUT_S if code in _MOVING else _APPEARS_S if code in GONE else 0.0
            if time.monotonic() - began >= patience:
                raise
        time.sleep(_PAUSE_S)


def bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset of a partition, and the one behind the last committed record now.

    Raises ProgressLost where there is no such topic (any more), TaskError where Kafka does not answer.
    """
    try:
        return watermarks(consumer, topic, partition)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() in GONE:
            raise ProgressLost(
                f"the topic {topic} is gone: the job has to go back to a checkpoint"
            ) from error
        raise TaskError(
            f"{topic}-{partition} could not be looked at: {reason.str()}; is Kafka up?"
        ) from error


def require_offset(consumer: Consumer, topic: str, partition: int, offset: int) -> None:
    """Raises ProgressLost where a partition cannot be read on from an offset, since it holds less than it did."""
    low, high = bounds(consumer, topic, partition)
    if not low <= offset <= high:
        raise ProgressLost(
            f"{topic}-{partition} holds the offsets {low} to {high}, and is to be read on from {offset}: something was"
            " deleted; the job has to go back to a checkpoint"
        )
