"""The start offsets of a Kafka source are resolved once by every subtask, also by one without partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from tailrace.pipelines.runtime.stream_task.restore.offset_resets import (
    last_reset,
    positions_of,
    resets_to_apply,
)
from tailrace.pipelines.runtime.stream_task.state.progress import ProgressWriter, SubtaskProgress
from tailrace.pipelines.runtime.stream_task.state.progress_entry import ProgressEntry
from tailrace.schemas.types import OffsetsReset, PartitionOffset, RestoredCheckpoint

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
        resets: Sequence[OffsetsReset] = (),
        restored: RestoredCheckpoint | None = None,
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
            reset=positions_of(resets_to_apply(resets, self.entry, 0, restored), "source"),
        )
        if reading.resolved:
            progress = SubtaskProgress(reset_id=last_reset(resets, self.entry))
            self._commit(progress, reading, reading.positions)
        return reading

    def read_on(self, reading: KafkaSourceOffsets, position: int) -> None:
        """Commits that an attempt has read all its partitions to a position."""
        progress = SubtaskProgress(reset_id=last_reset((), self.entry))
        self._commit(progress, reading, dict.fromkeys(reading.positions, position))

    def _commit(
        self, progress: SubtaskProgress, reading: KafkaSourceOffsets, positions: Mapping[tuple[int, int], int]
    ) -> None:
        writer = ProgressWriter(progress, reading.topics, 0, InputPositions(positions), ends=reading.ends)
        self.entry = writer.entry()


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


def reset_to(number: int, positions: Mapping[int, int], checkpoint_id: int = 0) -> OffsetsReset:
    offsets = tuple(
        PartitionOffset(operator_id="source", topic="t", partition=partition, offset=position)
        for partition, position in positions.items()
    )
    return OffsetsReset(reset_id=number, checkpoint_id=checkpoint_id, offsets=offsets)


@pytest.mark.parametrize("bounded", [False, True])
def test_reset_is_applied_once_and_committed_before_first_record(bounded: bool) -> None:
    broker = Broker([9, 9, 9])
    broker.read_on(broker.attempt(0, bounded=bounded), 7)
    first = reset_to(100, {0: 2, 1: 3})
    reading = broker.attempt(0, bounded=bounded, resets=[first])
    assert (reading.positions, reading.resolved) == ({(0, 0): 2, (0, 2): 7}, True)
    broker.read_on(reading, 5)
    assert broker.attempt(0, bounded=bounded, resets=[first]).positions == {(0, 0): 5, (0, 2): 5}
    later = broker.attempt(0, bounded=bounded, resets=[first, reset_to(200, {2: 1})])
    assert later.positions == {(0, 0): 5, (0, 2): 1}


def test_reset_of_other_subtask_is_committed_too() -> None:
    broker = Broker([9, 9])
    broker.read_on(broker.attempt(1), 7)
    assert broker.attempt(1, resets=[reset_to(100, {0: 2})]).positions == {(0, 1): 7}
    assert broker.entry is not None
    assert broker.entry.reset_id == 100


def test_source_that_has_committed_nothing_begins_at_reset_position() -> None:
    assert Broker([9]).attempt(0, resets=[reset_to(100, {0: 2})]).positions == {(0, 0): 2}


def test_bounded_source_reads_nothing_after_its_end_whatever_reset_says() -> None:
    broker = Broker([9])
    broker.attempt(0, bounded=True)
    broker.highs = [20, 20]
    reading = broker.attempt(0, bounded=True, resets=[reset_to(100, {0: 15, 1: 3})])
    assert (reading.positions, reading.ends) == ({(0, 0): 9}, {(0, 0): 9})


@pytest.mark.parametrize(("policy", "first"), [("earliest", 4), ("latest", 9)])
def test_reset_position_that_partition_has_deleted_is_handled(policy: str, first: int) -> None:
    broker = Broker([9])
    broker.attempt(0)
    broker.low = 4
    with pytest.raises(TaskError, match=r"t-0 .* offset 2, and holds 4 to 9.*on_data_loss"):
        broker.attempt(0, resets=[reset_to(100, {0: 2})])
    assert broker.attempt(0, on_data_loss=policy, resets=[reset_to(100, {0: 2})]).positions == {(0, 0): first}


@pytest.mark.parametrize(
    ("checkpoint_id", "generation", "first"), [(6, 0, 2), (7, 0, 2), (8, 0, 5), (9, -1, 2)]
)
def test_rollback_applies_resets_since_its_checkpoint(
    checkpoint_id: int, generation: int, first: int
) -> None:
    """Also to the savepoint that the job began with, whose number is of another job."""
    broker = Broker([9])
    reading = broker.attempt(
        0,
        resumption=ResumedPositions({"t": {0: 5}}),
        resets=[reset_to(100, {0: 2}, checkpoint_id=7)],
        restored=RestoredCheckpoint(checkpoint_id=checkpoint_id, uri="", generation=generation),
    )
    assert reading.positions == {(0, 0): first}
