"""The input gate against what a list of buffers says plainly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.buffers import END_OF_TIME, NO_WATERMARK, Header
from tailrace.pipelines.runtime.failures import TaskError
from tailrace.pipelines.runtime.stream_task.input_gate import InputGate
from tailrace.pipelines.runtime.stream_task.progress import Progress, read_ended, write_ended

SENDERS = 3


@st.composite
def channels(draw: st.DrawFn) -> list[Header]:
    """What three senders wrote on one channel: watermarks rise, some senders end."""
    sequences, watermarks, ended = [0] * SENDERS, [NO_WATERMARK] * SENDERS, set[int]()
    channel = []
    for sender, step, ends in draw(
        st.lists(st.tuples(st.integers(0, SENDERS - 1), st.integers(0, 9), st.sampled_from([0, 0, 0, 1])))
    ):
        if sender in ended:
            continue
        watermarks[sender] = max(0, watermarks[sender]) + step
        channel.append(Header(sender, 0, sequences[sender], watermarks[sender], bool(ends)))
        sequences[sender] += 1
        if ends:
            ended.add(sender)
    return channel


def pass_through(gate: InputGate, channel: list[Header], start: int = 0) -> None:
    for offset, header in enumerate(channel[start:], start):
        if gate.admits(0, offset):
            gate.take(0, offset, header)
            gate.conclude(0, header)


def fresh() -> InputGate:
    return InputGate([SENDERS], [0], [frozenset()])


@given(channels())
def test_the_watermark_is_the_least_of_the_senders(channel: list[Header]) -> None:
    gate = fresh()
    latest = [NO_WATERMARK] * SENDERS
    for offset, header in enumerate(channel):
        gate.take(0, offset, header)
        gate.conclude(0, header)
        latest[header.sender] = END_OF_TIME if header.ends else header.watermark
        assert gate.watermark == min(latest)
    assert gate.ended == all(each == END_OF_TIME for each in latest)


@given(channels(), st.integers(0, 30))
def test_what_is_handed_over_again_changes_nothing(channel: list[Header], again_from: int) -> None:
    once, twice = fresh(), fresh()
    pass_through(once, channel)
    pass_through(twice, channel)
    pass_through(twice, channel, min(again_from, len(channel)))
    assert (twice.watermark, twice.positions) == (once.watermark, once.positions)
    assert twice.ended_senders() == once.ended_senders()


@given(channels(), st.integers(0, 30))
def test_a_successor_knows_who_has_ended(channel: list[Header], crash_after: int) -> None:
    whole, first = fresh(), fresh()
    pass_through(whole, channel)
    pass_through(first, channel[:crash_after])
    successor = InputGate([SENDERS], first.positions, first.ended_senders())
    pass_through(successor, channel)
    assert successor.ended_senders() == whole.ended_senders()
    assert successor.ended == whole.ended


def test_a_gap_in_a_senders_numbers_is_an_error() -> None:
    gate = fresh()
    gate.take(0, 0, Header(1, 0, 0, 5))
    with pytest.raises(TaskError, match="number 2 of sender 1"):
        gate.take(0, 1, Header(1, 0, 2, 6))


def test_a_new_attempt_of_a_sender_counts_from_anew() -> None:
    gate = fresh()
    gate.take(0, 0, Header(1, 0, 7, 5))
    gate.take(0, 1, Header(1, 1, 0, 6))
    assert gate.positions == (2,)


def test_an_attempt_that_goes_on_in_another_process_counts_from_anew() -> None:
    gate = fresh()
    gate.take(0, 0, Header(1, 0, 7, 5))
    gate.take(0, 1, Header(1, 0, 0, 6))
    with pytest.raises(TaskError, match="number 2 of sender 1"):
        gate.take(0, 2, Header(1, 0, 2, 6))


@given(st.frozensets(st.integers(0, 2000)))
def test_ended_senders_survive_in_an_offsets_metadata(senders: frozenset[int]) -> None:
    assert read_ended(write_ended(senders)) == senders
    assert len(write_ended(senders)) < 4096, "Kafka's offset.metadata.max.bytes"


@pytest.mark.parametrize("metadata", [None, "", "something else"])
def test_metadata_of_others_says_nothing(metadata: str | None) -> None:
    assert read_ended(metadata) == frozenset()


def test_progress_is_written_per_input_and_read_back() -> None:
    progress = Progress((5, 0), (frozenset({1}), frozenset()))
    assert Progress.read(progress.write(["a", "b"], 3)) == progress
