"""Checkpoints in a task at work: its commits and reports."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.api import MapFunction, RuntimeContext
from tailrace.pipelines.checkpoint.layout import base_of
from tailrace.pipelines.checkpoint.state_files import read_in_flight
from tailrace.pipelines.runtime.common.deployment import CheckpointTrigger
from tailrace.pipelines.runtime.common.protocol import (
    BUFFER,
    AbortCheckpoint,
    CheckpointAcknowledged,
    CheckpointDeclined,
    ConfirmCheckpoint,
    TriggerCheckpoint,
)
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import HEADER_BYTES, BufferCodec, BufferHeader, write_barrier
from tailrace.pipelines.runtime.stream_task.input import barrier_handler
from tailrace.pipelines.runtime.stream_task.loop.mailbox import ForwardedMessage
from tailrace.pipelines.runtime.stream_task.state.progress_entry import decode_progress
from tailrace.pipelines.runtime.stream_task.state.subtask_state import MARKER
from tailrace.pipelines.types import Types
from tailrace.schemas.types import CheckpointOptions, JobGraph, SnapshotType

from .test_mailbox_loop import Task, environment


@pytest.fixture
def start() -> Iterator[Callable[[Task], Task]]:
    """Starts tasks, and stops the remaining ones at the end."""
    tasks: list[Task] = []

    def begin(task: Task) -> Task:
        tasks.append(task.start())
        return task

    yield begin
    for task in tasks:
        task.stop()


def two_senders(*, broadcast: bool = False) -> JobGraph:
    """Returns a printing vertex with two senders."""
    env = environment()
    source = env.from_collection(["unused"], str)
    mapped = source.map(str.upper, output_type=str).set_parallelism(2)
    (mapped.broadcast() if broadcast else mapped).print()
    return env.get_job_graph("two senders")


def checkpoint(
    tmp_path: Path, number: int = 1, *, aligned: bool = False, stops: bool = False
) -> CheckpointTrigger:
    kind = SnapshotType.SAVEPOINT if aligned else SnapshotType.CHECKPOINT
    options = CheckpointOptions(
        snapshot_type=kind,
        directory=str(tmp_path / f"{'savepoint' if aligned else 'chk'}-{number}"),
        shared=str(tmp_path / "shared"),
        stops=stops,
    )
    return CheckpointTrigger(checkpoint_id=number, timestamp=0, options=options)


class Channel:
    """The messages of the senders, as one channel."""

    def __init__(self) -> None:
        self._offset = 0
        self._sequences: dict[int, int] = {}
        self._codec = BufferCodec(Types.STRING())

    def _next(self, sender: int, data: Callable[[int], bytes]) -> ForwardedMessage:
        sequence = self._sequences.get(sender, 0)
        self._sequences[sender] = sequence + 1
        offset, self._offset = self._offset, self._offset + 1
        return ForwardedMessage(BUFFER, 0, 0, 0, offset, offset + 1, data(sequence))

    def records(self, sender: int, *values: str, ends: bool = False) -> ForwardedMessage:
        batch = Batch([0] * len(values), list(values))
        return self._next(sender, lambda n: self._codec.encode(BufferHeader(sender, 0, n, ends=ends), batch))

    def barrier(self, sender: int, of: CheckpointTrigger) -> ForwardedMessage:
        return self._next(sender, lambda n: write_barrier(BufferHeader(sender, 0, n, barrier=True), of))


def printing_task(*, broadcast: bool = False) -> Task:
    graph = two_senders(broadcast=broadcast)
    return Task(graph, len(graph.vertices) - 1)


def acknowledged(task: Task) -> list[CheckpointAcknowledged]:
    return [notice for notice in task.notices if isinstance(notice, CheckpointAcknowledged)]


def declined(task: Task) -> list[CheckpointDeclined]:
    return [notice for notice in task.notices if isinstance(notice, CheckpointDeclined)]


def wait_for_part(task: Task) -> CheckpointAcknowledged:
    """Waits for an acknowledgement, which comes from another thread after a commit."""
    task.wait_until(lambda: bool(acknowledged(task)))
    return acknowledged(task)[0]


def test_records_before_barrier_of_slower_sender_are_printed_and_in_flight(
    start: Callable[[Task], Task], tmp_path: Path
) -> None:
    task, channel, trigger = start(printing_task()), Channel(), checkpoint(tmp_path)
    task.hand_over(
        channel.records(0, "before"), channel.barrier(0, trigger), channel.records(1, "slow", "slower")
    )
    task.wait(lambda: task.printed() == 3)
    assert not acknowledged(task), "a barrier is still to come"
    task.hand_over(channel.barrier(1, trigger))
    part = wait_for_part(task)
    (flying,) = part.state.in_flight
    storage = Storage.open(base_of(trigger.options.directory))
    codec = BufferCodec(Types.STRING())
    buffers = [pair for file in flying.files for pair in read_in_flight(storage, file) if pair[0] is not None]
    results = [
        (sender, value) for sender, data in buffers for value in codec.read_payload(data, HEADER_BYTES).values
    ]
    assert results == [(1, "slow"), (1, "slower")]
    assert (flying.input, flying.partition) == (0, 0)
    assert part.metrics.bytes_in_flight == sum(file.length for file in flying.files)
    assert posixpath.dirname(storage.absolute(flying.files[0].path)) == trigger.options.directory


def test_output_is_committed_while_savepoint_aligns(start: Callable[[Task], Task], tmp_path: Path) -> None:
    task, channel, trigger = start(printing_task()), Channel(), checkpoint(tmp_path, aligned=True)
    task.hand_over(
        channel.barrier(0, trigger), channel.records(0, "held back"), channel.records(1, "goes on")
    )
    task.wait(lambda: task.printed() == 1)
    entry = decode_progress(task.kafka.log(task.changelog(), 0)[-1].value)
    (input_,) = entry.inputs
    assert (input_.positions, input_.held) == ({0: 3}, {0: [1]})
    assert not acknowledged(task)
    task.hand_over(channel.barrier(1, trigger))
    task.wait(lambda: task.printed() == 2)
    assert not wait_for_part(task).state.in_flight
    entry = decode_progress(task.kafka.log(task.changelog(), 0)[-1].value)
    assert not entry.inputs[0].held


def test_aborted_savepoint_releases_held_output(start: Callable[[Task], Task], tmp_path: Path) -> None:
    task, channel, trigger = start(printing_task()), Channel(), checkpoint(tmp_path, aligned=True)
    task.hand_over(channel.barrier(0, trigger), channel.records(0, "held back"))
    task.hand_over(AbortCheckpoint(1))
    task.wait(lambda: task.printed() == 1)
    task.hand_over(channel.barrier(1, trigger), channel.records(1, "more"))
    task.wait(lambda: task.printed() == 2)
    assert not acknowledged(task)


def test_savepoint_with_too_many_held_buffers_is_declined(
    start: Callable[[Task], Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(barrier_handler, "MAX_HELD_BUFFERS", 8)
    task, channel, trigger = start(printing_task()), Channel(), checkpoint(tmp_path, aligned=True)
    task.hand_over(channel.barrier(0, trigger), *(channel.records(0, "ahead") for _ in range(9)))
    task.wait(lambda: task.printed() == 9)
    (refusal,) = declined(task)
    assert refusal.reason.startswith("while it waited for barriers, 9 buffers of ")
    assert not acknowledged(task)


def test_ending_task_acknowledges_first(start: Callable[[Task], Task], tmp_path: Path) -> None:
    task, channel, trigger = start(printing_task()), Channel(), checkpoint(tmp_path)
    task.hand_over(
        channel.barrier(0, trigger),
        channel.records(1, "last", ends=True),
        channel.records(0, "words", ends=True),
    )
    task.ended()
    assert task.end is None
    assert [part.checkpoint_id for part in acknowledged(task)] == [1]
    assert task.printed() == 2


def test_failed_write_declines_checkpoint_and_task_continues(
    start: Callable[[Task], Task], tmp_path: Path
) -> None:
    (tmp_path / "chk-1").write_text("a file, where a directory has to be")
    task, channel, trigger = start(printing_task()), Channel(), checkpoint(tmp_path)
    task.hand_over(channel.barrier(0, trigger), channel.records(1, "flies"), channel.barrier(1, trigger))
    task.wait_until(lambda: any(isinstance(notice, CheckpointDeclined) for notice in task.notices))
    task.hand_over(channel.records(0, "on"))
    task.wait(lambda: task.printed() == 2)


def test_triggered_source_commits_barrier_at_once(
    start: Callable[[Task], Task], tmp_path: Path, reading: Task
) -> None:
    task = start(reading)
    task.hand_over(TriggerCheckpoint(checkpoint(tmp_path)))
    task.wait(lambda: any(header.barrier for header in task.headers()))
    wait_for_part(task)
    task.hand_over(TriggerCheckpoint(checkpoint(tmp_path)))
    task.hand_over(TriggerCheckpoint(checkpoint(tmp_path, 2)))
    task.wait(lambda: sum(header.barrier for header in task.headers()) == 2)


def test_stopped_source_waits_for_savepoint_and_then_ends(
    start: Callable[[Task], Task], tmp_path: Path, reading: Task
) -> None:
    task = start(reading)
    task.wait(lambda: bool(task.headers()))
    task.hand_over(TriggerCheckpoint(checkpoint(tmp_path, aligned=True, stops=True)))
    wait_for_part(task)
    before = [header for header in task.headers() if not header.tick]
    assert before[-1].barrier
    task.hand_over(ConfirmCheckpoint(1))
    task.ended()
    assert task.end is None
    behind = [header for header in task.headers() if not header.tick][len(before) :]
    assert [(header.ends, header.stops) for header in behind] == [(True, True)]


class Counting(MapFunction[int, int]):
    def open(self, context: RuntimeContext) -> None:
        self.seen = context.accumulator("seen")

    def map(self, value: int) -> int:
        self.seen.inc()
        return value


@pytest.mark.parametrize("stops", [True, False])
def test_stopped_task_reports_accumulators_with_its_part(
    start: Callable[[Task], Task], tmp_path: Path, stops: bool
) -> None:
    env = environment()
    env.generate(lambda n: n, rate_per_second=200, output_type=int).map(Counting()).rebalance().print()
    task = start(Task(env.get_job_graph("counting"), 0))
    task.wait_until(lambda: task.subtask.records_in > 3)
    task.hand_over(TriggerCheckpoint(checkpoint(tmp_path, aligned=stops, stops=stops)))
    report = wait_for_part(task).state.accumulators
    assert report == ({"seen": task.subtask.records_in} if stops else {})


def test_source_continues_when_stopping_savepoint_is_aborted(
    start: Callable[[Task], Task], tmp_path: Path, reading: Task
) -> None:
    task = start(reading)
    task.hand_over(TriggerCheckpoint(checkpoint(tmp_path, aligned=True, stops=True)))
    wait_for_part(task)
    count = task.subtask.records_in
    task.hand_over(AbortCheckpoint(1))
    task.wait_until(lambda: task.subtask.records_in > count)


@pytest.fixture
def reading() -> Task:
    """Returns a source that never ends, and stores its position."""
    env = environment()
    env.generate(lambda n: n, rate_per_second=200, output_type=int).rebalance().print()
    return Task(env.get_job_graph("reading"), 0)


def test_marker_in_changelog_is_at_position_of_part(
    start: Callable[[Task], Task], tmp_path: Path, reading: Task
) -> None:
    task = start(reading)
    task.hand_over(TriggerCheckpoint(checkpoint(tmp_path)))
    part = wait_for_part(task)
    ((_, logs),) = [item for item in task.kafka.logs.items() if "changelog" in item[0]]
    marker = logs[0][part.state.changelog_offset - 1]
    assert (marker.key, marker.value) == (MARKER, b"1")
    assert part.state.operators, "its position is in storage"
