"""The start offsets of a Kafka source are resolved once by every subtask, also by one without partitions."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, TopicPartition

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.formats import ValueFormat
from tailrace.pipelines.runtime.operators.kafka_source_parameters import (
    KafkaSourceParameters,
    OnDataLoss,
    StartingMode,
    StartingPosition,
)
from tailrace.pipelines.runtime.stream_task.input.input_positions import InputPositions
from tailrace.pipelines.runtime.stream_task.restore.kafka_source_offsets import (
    KafkaSourceOffsets,
    ResumedPositions,
    resolve_offsets,
)
from tailrace.pipelines.runtime.stream_task.state.progress import ProgressWriter, SubtaskProgress
from tailrace.pipelines.runtime.stream_task.state.progress_entry import ProgressEntry

LATEST = StartingPosition(StartingMode.LATEST)


class Broker:
    """The answers to a consumer, and the commits of one subtask."""

    def __init__(self, highs: Sequence[int]) -> None:
        self.highs = list(highs)
        self.low = 0
        self.entry: ProgressEntry | None = None

    def list_topics(self, topic: str, timeout: float = 0) -> Any:
        result = SimpleNamespace(error=None, partitions=dict(enumerate(self.highs)))
        return SimpleNamespace(topics={topic: result})

    def get_watermark_offsets(self, of: TopicPartition, timeout: float, cached: bool) -> tuple[int, int]:
        return self.low, self.highs[of.partition]

    def attempt(
        self,
        subtask: int,
        *,
        bounded: bool = False,
        on_data_loss: str = "fail",
        resumption: ResumedPositions | None = None,
        starting: StartingPosition = LATEST,
        resets_offsets: bool = False,
    ) -> KafkaSourceOffsets:
        """Returns an attempt of a source that starts at the latest records, with two subtasks."""
        source = KafkaSourceParameters(
            ("t",),
            ValueFormat.from_parameters({"kind": "text"}),
            starting,
            bounded=bounded,
            resets_offsets=resets_offsets,
            on_data_loss=OnDataLoss(on_data_loss),
        )
        reading = resolve_offsets(
            cast(Consumer, self),
            KafkaConnection("broker"),
            source,
            subtask,
            2,
            entry=self.entry,
            resumption=resumption,
        )
        if reading.resolved:
            positions = InputPositions(reading.positions)
            self.entry = ProgressWriter(
                SubtaskProgress(), reading.topics, 0, positions, ends=reading.ends
            ).entry()
        return reading


@pytest.mark.parametrize(
    ("subtask", "first", "later"), [(0, {(0, 0): 5}, {(0, 0): 5, (0, 2): 0}), (1, {}, {(0, 1): 0, (0, 3): 0})]
)
def test_added_partitions_are_read_from_first_record(
    subtask: int, first: dict[tuple[int, int], int], later: dict[tuple[int, int], int]
) -> None:
    broker = Broker([5])
    assert broker.attempt(subtask).positions == first
    broker.highs = [9, 7, 7, 7]
    assert broker.attempt(subtask).positions == later


@pytest.mark.parametrize("subtask", [0, 1])
def test_bounded_source_ignores_added_partitions(subtask: int) -> None:
    broker = Broker([5])
    first = broker.attempt(subtask, bounded=True)
    broker.highs = [9, 7, 7, 7]
    later = broker.attempt(subtask, bounded=True)
    assert (later.positions, later.ends) == (first.positions, first.ends)
    assert not later.resolved


@pytest.mark.parametrize("subtask", [0, 1])
def test_resolved_offsets_are_committed_once_even_if_empty(subtask: int) -> None:
    broker = Broker([5])
    assert broker.attempt(subtask).resolved
    assert not broker.attempt(subtask).resolved


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize(("low", "high"), [(20, 30), (0, 3)])
def test_position_that_partition_has_deleted_is_handled(restored: bool, low: int, high: int) -> None:
    resumption = ResumedPositions({"t": {0: 5}}) if restored else None
    for policy, result in (("fail", None), ("earliest", low), ("latest", high)):
        broker = Broker([5])
        broker.attempt(0)
        broker.low, broker.highs = low, [high]
        if result is None:
            with pytest.raises(TaskError, match=f"t-0 .* offset 5, and holds {low} to {high}.*on_data_loss"):
                broker.attempt(0, resumption=resumption)
            continue
        reading = broker.attempt(0, on_data_loss=policy, resumption=resumption)
        assert reading.positions == {(0, 0): result}
        assert restored or broker.attempt(0).positions == {(0, 0): result}, "it was committed at once"


def test_bounded_partition_read_to_end_needs_nothing() -> None:
    broker = Broker([5])
    first = broker.attempt(0, bounded=True)
    broker.low, broker.highs = 20, [30]
    assert broker.attempt(0, bounded=True).positions == first.positions == {(0, 0): 5}


def test_each_partition_has_its_own_start() -> None:
    starts = {
        "0": StartingPosition(StartingMode.OFFSET, offset=7),
        "2": StartingPosition(StartingMode.EARLIEST),
        "3": StartingPosition(StartingMode.OFFSET, offset=11),
    }
    starting = StartingPosition(StartingMode.LATEST, partitions={"t": starts})

    def attempt(subtask: int, on_data_loss: str = "fail") -> KafkaSourceOffsets:
        broker = Broker([10, 10, 10, 10])
        broker.low = 2
        return broker.attempt(subtask, starting=starting, on_data_loss=on_data_loss)

    assert attempt(0).positions == {(0, 0): 7, (0, 2): 2}
    with pytest.raises(TaskError, match="t-3 is to be read on from offset 11, and holds 2 to 10"):
        attempt(1)
    assert attempt(1, "latest").positions == {(0, 1): 10, (0, 3): 10}


@pytest.mark.parametrize(
    ("resets", "of_other_job", "first"), [(False, True, 5), (True, False, 5), (True, True, 9)]
)
def test_offsets_are_reset_only_for_savepoint_of_other_job(
    resets: bool, of_other_job: bool, first: int
) -> None:
    broker = Broker([9])
    resumption = ResumedPositions({"t": {0: 5}}, of_other_job=of_other_job)
    reading = broker.attempt(0, resumption=resumption, resets_offsets=resets)
    assert reading.positions == {(0, 0): first}
