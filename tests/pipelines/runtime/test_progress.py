"""Positions and progress: what has been taken counts once, and is known to the successor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.buffers import Header
from tailrace.pipelines.runtime.failures import TaskError
from tailrace.pipelines.runtime.stream_task.input_gate import InputGate
from tailrace.pipelines.runtime.stream_task.positions import InputPositions
from tailrace.pipelines.runtime.stream_task.progress import (
    Progress,
    begun,
    generation_of,
    moved_offsets,
    of_generation,
    read_end,
    read_ended,
    write_end,
    write_ended,
)
from tailrace.pipelines.runtime.stream_task.transaction import ConsumedOffset


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5))))
def test_no_offset_is_taken_twice_whatever_is_handed_over_again(ranges: list[tuple[int, int]]) -> None:
    positions, taken = InputPositions({}), list[int]()
    for first, length in ranges:
        try:
            admitted = positions.admits(0, 0, first, first + length)
        except TaskError:
            assert first in taken or first < max(taken)
            assert first + length - 1 > max(taken)
            continue
        if admitted:
            taken += range(first, first + length)
            positions.advance(0, 0, first + length)
        else:
            assert first + length - 1 <= max(taken)
    assert taken == sorted(set(taken))


def test_only_what_has_moved_is_committed() -> None:
    positions = InputPositions({(0, 0): 5, (1, 3): 7})
    positions.advance(1, 3, 9)
    positions.advance(1, 4, 2)
    assert moved_offsets(["a", "b"], positions, None) == [
        ConsumedOffset("b", 3, 9),
        ConsumedOffset("b", 4, 2),
    ]
    positions.settle()
    assert moved_offsets(["a", "b"], positions, None) == []
    assert positions.by_input() == {0: {0: 5}, 1: {3: 9, 4: 2}}


def test_all_positions_can_be_committed_again() -> None:
    positions = InputPositions({(0, 0): 5, (1, 3): 7})
    positions.move_all()
    assert moved_offsets(["a", "b"], positions, None) == [
        ConsumedOffset("a", 0, 5),
        ConsumedOffset("b", 3, 7),
    ]
    positions.settle()
    assert positions.moved() == []


def test_a_successor_reads_what_was_committed_and_who_has_ended() -> None:
    gate = InputGate([[0, 1], [0]], [frozenset(), frozenset()])
    gate.conclude(0, Header(1, 0, 0, ends=True))
    positions = InputPositions({})
    positions.advance(0, 3, 5)
    committed = moved_offsets(["a", "b"], positions, gate)
    assert Progress.read(["a", "b"], committed) == Progress({(0, 3): 5}, (frozenset({1}), frozenset()))


@given(st.frozensets(st.integers(0, 2000)))
def test_ended_senders_survive_in_an_offsets_metadata(senders: frozenset[int]) -> None:
    assert read_ended(write_ended(senders)) == senders
    assert len(write_ended(senders)) < 4096, "Kafka's offset.metadata.max.bytes"


@pytest.mark.parametrize("metadata", [None, "", "something else"])
def test_metadata_of_others_says_nothing(metadata: str | None) -> None:
    assert read_ended(metadata) == frozenset()


@given(st.integers(0, 2**31), st.frozensets(st.integers(0, 300)), st.integers(0, 2**40))
def test_a_generation_travels_with_what_else_is_noted(
    generation: int, senders: frozenset[int], end: int
) -> None:
    for note in ("", write_ended(senders), write_end(end)):
        assert generation_of(of_generation(generation, note)) == generation
    assert read_ended(of_generation(generation, write_ended(senders))) == senders
    assert read_end(of_generation(generation, write_end(end))) == end


def test_who_had_ended_in_an_older_generation_has_not_in_this_one() -> None:
    committed = [ConsumedOffset("a", 0, 7, of_generation(1, write_ended(frozenset({0, 2}))))]
    assert Progress.read(["a"], committed, 1).ended == (frozenset({0, 2}),)
    assert Progress.read(["a"], committed, 2).ended == (frozenset(),)
    assert Progress.read(["a"], committed, 2).positions == {(0, 0): 7}
    assert begun(committed, 1)
    assert not begun(committed, 2)
