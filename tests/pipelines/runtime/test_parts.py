"""The small parts: lines, frames, the mailbox, pacing, settings, and how a vertex is divided."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.frames import FrameReader, frame
from tailrace.pipelines.runtime.settings import ExecutionMode, Settings
from tailrace.pipelines.runtime.stream_task.sources.lines import LineSplitter
from tailrace.pipelines.runtime.stream_task.mailbox import CAPACITY, Mailbox, SourceRead, TaskCanceled
from tailrace.pipelines.runtime.stream_task.pacing import LONGEST_S, SHARE, Pacing
from tailrace.pipelines.runtime.vertex import parts_of
from tailrace.schemas.types import JobVertex, OperatorConfig


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in at})
    return [data[i:j] for i, j in zip([0, *places], [*places, len(data)], strict=True)]


texts = st.text(alphabet="ab \r\né", max_size=40)
places = st.lists(st.integers(0, 60), max_size=6)


@given(texts, places)
def test_lines_do_not_depend_on_how_they_arrive(text: str, at: list[int]) -> None:
    splitter = LineSplitter("\n")
    arrived = [line for piece in cut(text.encode(), at) for line in splitter.feed(piece)] + splitter.end()
    pieces = text.split("\n")
    last = [pieces[-1]] if pieces[-1] else []
    assert arrived == [piece.removesuffix("\r") for piece in [*pieces[:-1], *last]]


def test_another_delimiter_keeps_carriage_returns() -> None:
    splitter = LineSplitter("--")
    assert splitter.feed(b"a\r-") == []
    assert splitter.feed(b"-b\n--") == ["a\r", "b\n"]
    assert splitter.end() == []


def test_bytes_that_are_no_text_do_not_stop_a_source() -> None:
    assert LineSplitter("\n").feed(b"\xff\xfe ok\n") == ["\ufffd\ufffd ok"]


@given(st.lists(st.binary(max_size=30), max_size=5), places)
def test_frames_come_back_however_they_arrive(contents: list[bytes], at: list[int]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = FrameReader(theirs)
        found: list[bytes] = []
        for piece in cut(b"".join(map(frame, contents)), at):
            if piece:
                ours.sendall(piece)
                found += reader.receive()
        assert found == contents
        ours.close()
        assert reader.receive() == []
        assert reader.ended


def letter(size: int) -> list[tuple[SourceRead, int]]:
    return [(SourceRead(0, []), size)]


def test_a_full_mailbox_says_so_and_tells_when_it_is_drained() -> None:
    mailbox, drained = Mailbox(), threading.Event()
    mailbox.on_drained(drained.set)
    mailbox.put([*letter(CAPACITY)])
    assert mailbox.full
    assert len(mailbox.take(0)) == 1
    assert not mailbox.full
    assert drained.is_set()


def test_a_cancel_overtakes_what_is_in_the_mailbox() -> None:
    mailbox = Mailbox()
    mailbox.put([*letter(1)])
    mailbox.cancel()
    with pytest.raises(TaskCanceled):
        mailbox.take(0)


@given(st.lists(st.floats(0, 10), max_size=20))
def test_commits_take_a_bounded_share_of_the_time(costs: list[float]) -> None:
    pacing = Pacing(0.03)
    for cost in costs:
        pacing.committed(cost)
        assert 0.03 <= pacing.pause <= LONGEST_S
    steady = Pacing(0.03)
    for _ in range(100):
        steady.committed(0.1)
    assert steady.pause == pytest.approx(SHARE * 0.1)


def test_settings_have_defaults_and_name_the_key_that_is_wrong() -> None:
    assert Settings.of({}).mode is ExecutionMode.REAL_TIME
    assert Settings.of({"execution.mode": "micro-batch"}).mode is ExecutionMode.MICRO_BATCH
    assert Settings.of({"execution.commit-interval-ms": "75"}).commit_interval_ms == 75
    with pytest.raises(ValueError, match=r"execution\.mode is 'batch': it may be real-time or micro-batch"):
        Settings.of({"execution.mode": "batch"})
    with pytest.raises(ValueError, match=r"execution\.commit-interval-ms"):
        Settings.of({"execution.commit-interval-ms": "0"})


@pytest.mark.parametrize(
    ("kinds", "source", "prefix", "rest"),
    [
        (["socket_text_stream", "flat_map"], 1, 1, 0),
        (["map", "filter", "flat_map"], 0, 3, 0),
        (["window_reduce", "map", "print"], 0, 0, 3),
        (["map", "print"], 0, 1, 1),
    ],
)
def test_a_vertex_is_divided_at_its_first_operator_that_is_not_stateless(
    kinds: list[str], source: int, prefix: int, rest: int
) -> None:
    operators = tuple(
        OperatorConfig(operator_id=str(i), name=kind, kind=kind, parameters="{}", code=b"")
        for i, kind in enumerate(kinds)
    )
    parts = parts_of(
        JobVertex(
            vertex_id="0", name="v", operators=operators, parallelism=1, max_parallelism=128,
            slot_sharing_group="default",
        )
    )  # fmt: skip
    assert (parts.source is not None, len(parts.prefix), len(parts.rest)) == (bool(source), prefix, rest)
    found = [*([parts.source] if parts.source else []), *parts.prefix, *parts.rest]
    assert found == list(operators)
