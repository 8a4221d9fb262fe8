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
"""The brokers of a new topic may not know it yet: it counts as gone only after this time."""


def watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Returns the first offset of a partition, and the offset after the last committed record now.

    Waits out temporary errors of brokers. Raises KafkaException.
    """
    of = TopicPartition(topic, partition)

    def ask() -> tuple[int, int]:
        try:
            return consumer.get_watermark_offsets(of, timeout=_TIMEOUT_S, cached=False)
        except KafkaException as error:
            if error.args[0].code() in ABSENT:
                # The client keeps for minutes how many partitions a topic had.
                consumer.list_topics(topic, _TIMEOUT_S)
            raise

    low, high = retry_until(ask, _TIMEOUT_S, _APPEARS_S)
    return int(low), int(high)


def topic_gone(topic: str, partition: int | None = None) -> str:
    """Returns the message about a channel, a changelog, or one of its partitions that no longer exists."""
    what = f"the topic {topic}" if partition is None else f"{topic}-{partition}"
    return f"{what} does not exist any more: the job must roll back to a checkpoint"


def bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Returns the first offset of a partition, and the offset after the last committed record now.

    Raises ProgressLost if the topic does not exist (any more), TaskError if Kafka does not answer.
    """
    try:
        return watermarks(consumer, topic, partition)
    except KafkaException as error:
        reason = error.args[0]
        if reason.code() in ABSENT:
            raise ProgressLostError(topic_gone(topic, partition)) from error
        raise TaskError(f"{topic}-{partition} could not be read: {reason.str()}; is Kafka up?") from error


def require_offset(consumer: Consumer, topic: str, partition: int, offset: int) -> None:
    """Raises ProgressLost if a partition no longer holds an offset to continue from."""
    low, high = bounds(consumer, topic, partition)
    if not low <= offset <= high:
        raise ProgressLostError(
            f"{topic}-{partition} holds the offsets {low} to {high}, and is to be read on from {offset}: something was"
            " deleted; the job must roll back to a checkpoint"
        )
