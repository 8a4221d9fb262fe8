"""Checks whether a partition still holds the offsets that a recorded position needs. Deleted records are never skipped
silently.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ....infra.retry import ABSENT, retry_until
from .failures import ProgressLostError, TaskError

_TIMEOUT_S: Final = 30.0
_APPEARS_S: Final = 5.0
"""A topic that was made a moment ago is not known to the brokers that have it yet: it is gone if it stays away."""


def watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset of a partition, and the one behind the last committed record now.

    What brokers say only for a moment is waited for. Raises KafkaException.
    """
    of = TopicPartition(topic, partition)
    low, high = retry_until(
        lambda: consumer.get_watermark_offsets(of, timeout=_TIMEOUT_S, cached=False), _TIMEOUT_S, _APPEARS_S
    )
    return int(low), int(high)


def topic_gone(topic: str, partition: int | None = None) -> str:
    """What is said of a channel or changelog, or of its partition, that does not exist any more."""
    what = f"the topic {topic}" if partition is None else f"{topic}-{partition}"
    return f"{what} is gone: the job has to go back to a checkpoint"


def bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset of a partition, and the one behind the last committed record now.

    Raises ProgressLost where there is no such topic (any more), TaskError where Kafka does not answer.
    """
    try:
        return watermarks(consumer, topic, partition)
    except KafkaException as error:
        reason = error.args[0]
        if reason.code() in ABSENT:
            raise ProgressLostError(topic_gone(topic, partition)) from error
        raise TaskError(
            f"{topic}-{partition} could not be looked at: {reason.str()}; is Kafka up?"
        ) from error


def require_offset(consumer: Consumer, topic: str, partition: int, offset: int) -> None:
    """Raises ProgressLost where a partition cannot be read on from an offset, since it holds less than it did."""
    low, high = bounds(consumer, topic, partition)
    if not low <= offset <= high:
        raise ProgressLostError(
            f"{topic}-{partition} holds the offsets {low} to {high}, and is to be read on from {offset}: something was"
            " deleted; the job has to go back to a checkpoint"
        )
