"""The input gate compared with the definition over a list of buffers."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import ProgressLostError, TaskError
from tailrace.pipelines.runtime.records.buffers import MAX_WATERMARK, NO_WATERMARK, BufferError, BufferHeader
from tailrace.pipelines.runtime.stream_task.input.input_gate import InputGate

SENDERS = 3


@st.composite
def channels(draw: st.DrawFn) -> list[BufferHeader]:
    """Draws what three senders write on one channel: times rise, some are idle now and then, some end, some only
    tick."""
    channel = []
    last = [BufferHeader(sender, 0, -1) for sender in range(SENDERS)]
    for sender, step, what in draw(
        st.lists(
            st.tuples(
                st.integers(0, SENDERS - 1),
                st.integers(0, 9),
                st.sampled_from(["data", "data", "idle", "tick", "ends"]),
            )
        )
    ):
        before = last[sender]
        if before.ends:
            continue
        header = BufferHeader(
            sender,
            0,
            before.sequence + 1,
            max(0, before.watermark) + step,
            ends=what == "ends",
            idle=what == "idle",
            tick=what == "tick",
        )
        channel.append(header)
        last[sender] = msgspec.structs.replace(header, sequence=header.sequence - header.tick)
    return channel


def pass_through(gate: InputGate, channel: Iterable[BufferHeader]) -> None:
    for offset, header in enumerate(channel):
        if gate.admits(0, offset, header):
            gate.conclude(0, header)


def fresh(ended: frozenset[int] = frozenset()) -> InputGate:
    return InputGate([range(SENDERS)], [ended])


@given(channels())
def test_time_is_minimum_of_active_senders_or_maximum_of_idle_ones(
    channel: list[BufferHeader],
) -> None:
    gate = fresh()
    latest = {sender: BufferHeader(sender, 0, -1) for sender in range(SENDERS)}
    watermark = NO_WATERMARK
    for offset, header in enumerate(channel):
        assert gate.admits(0, offset, header)
        gate.conclude(0, header)
        latest[header.sender] = header
        present = [header for header in latest.values() if not header.ends]
        active = [header for header in present if not header.idle]
        idle = [buffer_header.watermark for buffer_header in present]
        reached = min(item.watermark for item in active) if active else max(idle, default=NO_WATERMARK)
        watermark = max(watermark, reached)
        if not present:
            watermark = MAX_WATERMARK
        assert gate.watermark == watermark
        assert gate.idle == (bool(present) and not active)
        assert gate.ended == (not present)


@given(channels(), st.integers(0, 30))
def test_successor_knows_ended_senders(channel: list[BufferHeader], crash_after: int) -> None:
    whole, first = fresh(), fresh()
    pass_through(whole, channel)
    pass_through(first, channel[:crash_after])
    successor = fresh(first.ended_senders(0))
    pass_through(successor, channel[crash_after:])
    assert successor.ended_senders(0) == whole.ended_senders(0)
    assert successor.ended == whole.ended


@given(channels(), st.data())
@settings(max_examples=300)
def test_ticks_may_be_lost_or_arrive_at_any_time(channel: list[BufferHeader], data: st.DataObject) -> None:
    """Also before what they follow: then they are of an older process of the attempt."""
    without = [header for header in channel if not header.tick]
    late = list(without)
    for tick in (header for header in channel if header.tick):
        if data.draw(st.booleans()):
            late.insert(data.draw(st.integers(0, len(late))), tick)
    # Each sender ends, so that nothing is left that only a tick has said.
    last = dict.fromkeys(range(SENDERS), -1) | {h.sender: h.sequence for h in without}
    ends = [BufferHeader(sender, 0, sequence + 1, ends=True) for sender, sequence in last.items()]
    plain, ticked = fresh(), fresh()
    pass_through(plain, [*without, *ends])
    pass_through(ticked, [*late, *ends])
    assert ticked.ended == plain.ended


def test_outdated_tick_is_ignored() -> None:
    gate = InputGate([[1]], [frozenset()])
    pass_through(gate, [BufferHeader(1, 1, 0, 5), BufferHeader(1, 1, 1, 6)])
    for stale in (BufferHeader(1, 1, 1, 9, tick=True, idle=True), BufferHeader(1, 0, 2, 9, tick=True)):
        assert not gate.admits(0, 7, stale)
    assert gate.admits(0, 8, BufferHeader(1, 1, 2, 9, tick=True))
    assert gate.admits(0, 9, BufferHeader(1, 1, 2, 9)), "a tick takes no number"


def test_first_tick_for_successor_may_be_late() -> None:
    gate = fresh()
    pass_through(
        gate, [BufferHeader(1, 0, 3, 5, tick=True), BufferHeader(1, 0, 7, 6), BufferHeader(1, 0, 8, 7)]
    )
    assert not gate.admits(0, 3, BufferHeader(1, 0, 8, 9, tick=True))


def test_gap_in_numbers_of_sender_is_error() -> None:
    gate = fresh()
    gate.admits(0, 0, BufferHeader(1, 0, 0))
    with pytest.raises(TaskError, match="number 2 of sender 1"):
        gate.admits(0, 1, BufferHeader(1, 0, 2))


def test_tick_of_older_process_of_same_attempt_is_ignored() -> None:
    gate = fresh()
    pass_through(gate, [BufferHeader(1, 0, number) for number in range(10)])
    pass_through(gate, [BufferHeader(1, 0, number, 5) for number in range(2)])
    assert not gate.admits(0, 12, BufferHeader(1, 0, 10, 9, idle=True, tick=True))
    assert gate.admits(0, 13, BufferHeader(1, 0, 2, 6))
    with pytest.raises(TaskError, match="number 4 of sender 1"):
        gate.admits(0, 14, BufferHeader(1, 0, 4))


def test_new_attempt_of_sender_restarts_numbers() -> None:
    gate = fresh()
    assert gate.admits(0, 0, BufferHeader(1, 0, 7))
    assert gate.admits(0, 1, BufferHeader(1, 1, 0))


def test_attempt_continued_in_other_process_restarts_numbers() -> None:
    gate = fresh()
    gate.admits(0, 0, BufferHeader(1, 0, 7))
    gate.admits(0, 1, BufferHeader(1, 0, 0))
    with pytest.raises(TaskError, match="number 2 of sender 1"):
        gate.admits(0, 2, BufferHeader(1, 0, 2))


def test_unknown_sender_is_rejected() -> None:
    with pytest.raises(BufferError, match="9, which does not"):
        fresh().checked(0, BufferHeader(9, 0, 0))


def test_subtask_with_few_senders_waits_for_no_others() -> None:
    gate = InputGate([[2], [0]], [frozenset(), frozenset()])
    for i, sender in enumerate((2, 0)):
        assert gate.admits(i, 0, BufferHeader(sender, 0, 0, 5 + i))
        gate.conclude(i, BufferHeader(sender, 0, 0, 5 + i))
    assert gate.watermark == 5


def test_older_generation_is_ignored_and_newer_one_ends_attempt() -> None:
    gate = InputGate([range(1)], [frozenset()], generation=2)
    for older in (
        BufferHeader(0, 3, 7, 9, generation=1),
        BufferHeader(9, 0, 0, 9),
        BufferHeader(0, 3, 9, ends=True),
    ):
        assert not gate.admits(0, 0, older)
    own = BufferHeader(0, 0, 0, 5, generation=2)
    assert gate.admits(0, 1, own)
    gate.conclude(0, own)
    assert gate.watermark == 5
    with pytest.raises(TaskError, match="superseded"):
        gate.admits(0, 2, BufferHeader(0, 0, 0, generation=3))


def test_time_stands_still_after_end_by_savepoint() -> None:
    gate = InputGate([range(2)], [frozenset()])
    for header in (
        BufferHeader(0, 0, 0, 5),
        BufferHeader(1, 0, 0, 9),
        BufferHeader(0, 0, 1, ends=True, stops=True),
    ):
        assert gate.admits(0, 0, header)
        gate.conclude(0, header)
    assert gate.watermark == 5, "what the stopped sender held back is not due by that"
    assert gate.active_senders == {(0, 1)}
    last = BufferHeader(1, 0, 1, ends=True, stops=True)
    assert gate.admits(0, 0, last)
    gate.conclude(0, last)
    assert gate.ended
    assert gate.stopped


def test_lost_buffer_is_lost_progress() -> None:
    gate = InputGate([range(1)], [frozenset()])
    assert gate.admits(0, 0, BufferHeader(0, 0, 0))
    with pytest.raises(ProgressLostError):
        gate.admits(0, 1, BufferHeader(0, 0, 2))


def test_first_attempt_of_generation_needs_each_sender_from_first_buffer() -> None:
    gate = InputGate([range(2)], [frozenset()], generation=1, begins=True)
    assert not gate.admits(0, 6, BufferHeader(0, 0, 5))
    assert gate.admits(0, 7, BufferHeader(0, 0, 0, generation=1))
    assert gate.admits(0, 8, BufferHeader(0, 0, 1, 5, tick=True, generation=1))
    assert gate.admits(0, 9, BufferHeader(0, 2, 0, generation=1)), "another attempt begins anew"
    with pytest.raises(ProgressLostError, match="number 4 of sender 1"):
        gate.admits(0, 9, BufferHeader(1, 0, 4, generation=1))
