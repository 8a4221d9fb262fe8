"""Small parts: frames, the mailbox, pacing, settings, and the division of a vertex."""

from __future__ import annotations

import json
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.frames import FrameReader, encode_frame
from tailrace.pipelines.runtime.common.protocol import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    ConfirmCheckpoint,
    TaskNotice,
)
from tailrace.pipelines.runtime.common.settings import ExecutionMode, TaskSettings
from tailrace.pipelines.runtime.common.vertex_parts import split_vertex
from tailrace.pipelines.runtime.stream_task.checkpoint.checkpoint_io import CheckpointIO
from tailrace.pipelines.runtime.stream_task.loop.commit_schedule import LONGEST_S, SHARE, CommitSchedule
from tailrace.pipelines.runtime.stream_task.loop.mailbox import (
    CAPACITY_BYTES,
    ForwardedMessage,
    Mailbox,
    TaskCanceled,
    WakeUp,
)
from tailrace.schemas.types import (
    CheckpointMetrics,
    JobEdge,
    JobVertex,
    OperatorConfig,
    Partitioner,
    SubtaskState,
)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in at})
    return [data[i:j] for i, j in zip([0, *places], [*places, len(data)], strict=True)]


places = st.lists(st.integers(0, 60), max_size=6)


@given(st.lists(st.binary(max_size=30), max_size=5), places)
def test_frames_are_independent_of_chunks(contents: list[bytes], at: list[int]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = FrameReader(theirs)
        results: list[bytes] = []
        for piece in cut(b"".join(map(encode_frame, contents)), at):
            if piece:
                ours.sendall(piece)
                results += reader.receive()
        assert results == contents
        ours.close()
        assert reader.receive() == []
        assert reader.ended


def letter(size: int) -> list[tuple[ForwardedMessage, int]]:
    return [(ForwardedMessage(0, 0, 0, 0, 0, 1, b""), size)]


def test_full_mailbox_is_reported_and_drain_notifies() -> None:
    mailbox, drained = Mailbox(), threading.Event()
    mailbox.on_drained(drained.set)
    mailbox.put([*letter(CAPACITY_BYTES)])
    assert mailbox.is_full
    assert len(mailbox.take(0)) == 1
    assert not mailbox.is_full
    assert drained.is_set()


def test_cancel_overtakes_mailbox() -> None:
    mailbox = Mailbox()
    mailbox.put([*letter(1)])
    mailbox.cancel()
    with pytest.raises(TaskCanceled):
        mailbox.take(0)


def test_commands_overtake_data_in_their_order() -> None:
    mailbox, (data,) = Mailbox(), letter(1)
    mailbox.put([data])
    mailbox.command(ConfirmCheckpoint(1))
    mailbox.command(ConfirmCheckpoint(2))
    assert mailbox.take(0) == [(0, ConfirmCheckpoint(1)), (0, ConfirmCheckpoint(2)), (0, data[0])]
    mailbox.put([data])
    mailbox.command(ConfirmCheckpoint(3))
    assert mailbox.take_commands() == [(0, ConfirmCheckpoint(3))]
    assert mailbox.take_commands() == []
    assert mailbox.take(0) == [(0, data[0])]
    assert mailbox.is_empty


times = st.lists(st.floats(0, 10), max_size=20)


@given(times)
def test_commits_take_bounded_share_of_time(costs: list[float]) -> None:
    pacing, now = CommitSchedule(0.03), 0.0
    for cost in costs:
        pacing.on_committed(now, now + cost)
        now += cost
        assert now <= pacing.due(now, busy=False) <= now + LONGEST_S
        assert now + 0.03 <= pacing.due(now, busy=True) <= now + LONGEST_S
    steady = CommitSchedule(0.03)
    for i in range(100):
        steady.on_committed(i, i + 0.1)
    assert steady.due(100, busy=True) == pytest.approx(100 + SHARE * 0.1)
    assert steady.due(99.1, busy=False) == pytest.approx(99.2)


def test_record_after_pause_is_committed_at_once() -> None:
    pacing = CommitSchedule(0.03)
    assert pacing.due(0, busy=False) == 0
    pacing.on_committed(5, 5.01)
    assert pacing.due(6, busy=False) == 6


def test_wake_up_ends_wait_once() -> None:
    mailbox = Mailbox()
    mailbox.wake()
    mailbox.wake()
    assert mailbox.take(3600) == [(0, WakeUp())]
    assert mailbox.take(0) == []


def test_settings_have_defaults_and_error_names_key() -> None:
    assert TaskSettings.from_configuration({}).mode is ExecutionMode.REAL_TIME
    assert (
        TaskSettings.from_configuration({"execution.mode": "micro-batch"}).mode is ExecutionMode.MICRO_BATCH
    )
    assert TaskSettings.from_configuration({"execution.commit-interval-ms": "75"}).commit_interval_ms == 75
    with pytest.raises(ValueError, match=r"execution\.mode is 'batch': it may be real-time or micro-batch"):
        TaskSettings.from_configuration({"execution.mode": "batch"})
    with pytest.raises(ValueError, match=r"execution\.commit-interval-ms"):
        TaskSettings.from_configuration({"execution.commit-interval-ms": "0"})


def operator(name: str, upstream: str | None, tag: str | None = None, **parameters: object) -> OperatorConfig:
    kind = name.rstrip("0123456789")
    return OperatorConfig(
        operator_id=name, name=name, kind=kind, parameters=json.dumps(parameters), code=b"", upstream=upstream,
        output_tag=tag,
    )  # fmt: skip


def leaving(source: str | None) -> JobEdge:
    return JobEdge(
        data_set_id="e", source_vertex_id="v", target_vertex_id="w", partitioner=Partitioner.HASH, code=b"",
        source_operator_id=source,
    )  # fmt: skip


def line(*names: str) -> list[OperatorConfig]:
    return [operator(name, names[i - 1] if i else None) for i, name in enumerate(names)]


@pytest.mark.parametrize(
    ("operators", "edges", "in_spark"),
    [
        (line("map", "filter", "flat_map"), [None], ["map", "filter", "flat_map"]),
        (line("map", "print"), [], ["map"]),
        (line("reduce", "map", "print"), [], []),
        (line("kafka_source", "map", "flat_map"), [None], ["map", "flat_map"]),
        (line("kafka_source", "print"), [], []),
        # Timestamps are assigned there once, behind a source.
        (
            line("kafka_source", "map", "watermarks", "filter", "reduce"),
            [None],
            ["map", "watermarks", "filter"],
        ),
        (line("kafka_source", "watermarks", "watermarks2"), [None], ["watermarks"]),
        ([*line("kafka_source"), operator("watermarks", "kafka_source", rich=True)], [None], []),
        (line("map", "watermarks", "filter"), [None], ["map"]),
        (line("socket_text_stream", "flat_map"), [None], []),
        (line("co_map", "map"), [None], []),
        # Rich functions live as long as their attempt.
        ([operator("map", None), operator("map2", "map", rich=True)], [None], ["map"]),
        # What has two consumers is the end of the line, and each of them in the StreamTask.
        ([*line("map", "filter"), operator("filter2", "map")], [None, "filter"], ["map"]),
        (line("map", "filter"), ["map", "filter"], ["map"]),
        ([*line("kafka_source", "map"), operator("map2", "kafka_source")], [None, "map"], []),
        (line("kafka_source", "map"), ["kafka_source"], []),
    ],
)
def test_stateless_line_from_head_runs_in_spark(
    operators: list[OperatorConfig], edges: list[str | None], in_spark: list[str]
) -> None:
    vertex = JobVertex(
        vertex_id="v", name="v", operators=tuple(operators), parallelism=1, max_parallelism=128,
        slot_sharing_group="default",
    )  # fmt: skip
    parts = split_vertex(vertex, [leaving(source) for source in edges])
    assert [config.operator_id for config in parts.prefix] == in_spark
    assert [*([parts.source] if parts.source else []), *parts.prefix, *parts.rest] == operators
    before = parts.before_rest
    assert [
        config for config in parts.rest if config.upstream == (before.operator_id if before else None)
    ] or not parts.rest


class WaitingPart:
    """A part of a checkpoint whose write takes until storage answers."""

    def __init__(self, number: int, answers: threading.Event) -> None:
        self.checkpoint_id = number
        self._answers = answers
        self.started = threading.Event()

    def finish(self) -> tuple[SubtaskState, CheckpointMetrics]:
        self.started.set()
        self._answers.wait()
        return SubtaskState(), CheckpointMetrics()


def test_parts_of_checkpoints_beyond_limit_are_declined() -> None:
    """Each holds in-flight data; waiting ones may be of checkpoints that are over."""
    answers, notices = threading.Event(), list[TaskNotice]()
    io = CheckpointIO(notices.append)
    parts = [WaitingPart(number, answers) for number in range(1, 11)]
    for part in parts:
        io.finish(part)  # type: ignore[arg-type]
        assert parts[0].started.wait(30)
    declined = [notice.checkpoint_id for notice in notices if isinstance(notice, CheckpointDeclined)]
    assert declined == [6, 7, 8, 9, 10]
    answers.set()
    io.drain()
    written = [notice.checkpoint_id for notice in notices if isinstance(notice, CheckpointAcknowledged)]
    assert written == [1, 2, 3, 4, 5]
    io = CheckpointIO(notices.append)
    io.finish(WaitingPart(11, answers))  # type: ignore[arg-type]
    io.drain()
    last = notices[-1]
    assert isinstance(last, CheckpointAcknowledged)
    assert last.checkpoint_id == 11
