"""The end offset of a partition is found also during a leader change or after the creation of the topic; a missing
topic is lost progress."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tailrace.pipelines.runtime.common.failures import ProgressLostError, TaskError
from tailrace.pipelines.runtime.common.offset_bounds import bounds, require_offset


class Broker:
    """Returns the given answers, then the bounds of its one partition."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    def get_watermark_offsets(self, of: TopicPartition, timeout: float, cached: bool) -> tuple[int, int]:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return 3, 9

    def list_topics(self, topic: str, timeout: float) -> None:
        """The client forgets what it knew of the topic."""


@pytest.mark.parametrize(
    "error",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    ],
)
def test_leader_change_and_new_topic_are_waited_for(error: int) -> None:
    broker = Broker(error, error)
    assert bounds(cast(Consumer, broker), "t", 0) == (3, 9)
    assert not broker.errors


def test_topic_missing_for_long_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.pipelines.runtime.common.offset_bounds._APPEARS_S", 0.2)
    broker = Broker(*[KafkaError.UNKNOWN_TOPIC_OR_PART] * 1_000)
    with pytest.raises(ProgressLostError, match="t-0 does not exist any more: the job must roll back"):
        bounds(cast(Consumer, broker), "t", 0)
    assert len(broker.errors) < 999, "it was looked for again"


def test_silent_kafka_is_not_asked_again() -> None:
    broker = Broker(KafkaError._TRANSPORT, KafkaError._TRANSPORT)
    with pytest.raises(TaskError, match=r"could not be read: .*; is Kafka up\?"):
        bounds(cast(Consumer, broker), "t", 0)
    assert len(broker.errors) == 1


@pytest.mark.parametrize("offset", [2, 10])
def test_offset_outside_bounds_is_lost_progress(offset: int) -> None:
    with pytest.raises(
        ProgressLostError, match=rf"t-0 holds the offsets 3 to 9, and is to be read on from {offset}"
    ):
        require_offset(cast(Consumer, Broker()), "t", 0, offset)
