"""Positions and progress: what has been taken counts once, and is known to the successor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.buffers import Header
from tailrace.pipelines.runtime.failures import ProgressLost, TaskError
from tailrace.pipelines.runtime.stream_task.input_gate import InputGate
from tailrace.pipelines.runtime.stream_task.positions import InputPositions
from tailrace.pipelines.runtime.stream_task.progress import (
    Progress,
    begun,
    changelog_id_of,
    generation_of,
    moved_offsets,
    of_generation,
    read_end,
    read_ended,
    topic_id_of,
    write_end,
    write_ended,
    write_ids,
)
from tailrace.pipelines.runtime.stream_task.topic_ids import TopicIds, is_anew, still_valid
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


IDS = st.none() | st.text("AZaz09+/-_", min_size=22, max_size=22)


@given(st.integers(0, 3), st.frozensets(st.integers(0, 300)), IDS, IDS)
def test_what_is_committed_of_a_channel_says_which_topics_it_is_of(
    generation: int, ended: frozenset[int], topic: str | None, changelog: str | None
) -> None:
    gate = InputGate([range(301)], [ended], generation)
    positions = InputPositions({}, [write_ids(topic, changelog)])
    positions.advance(0, 3, 5)
    (committed,) = moved_offsets(["a"], positions, gate, generation=generation)
    assert topic_id_of(committed.metadata) == topic
    assert changelog_id_of(committed.metadata) == changelog
    assert generation_of(committed.metadata) == generation
    assert read_ended(committed.metadata) == ended
    assert len(committed.metadata) < 4096


@given(st.tuples(IDS, IDS), st.tuples(IDS, IDS), st.booleans(), st.integers(0, 2), st.integers(0, 2))
def test_progress_is_lost_where_a_topic_is_known_to_be_another_than_in_this_generation(
    then: tuple[str | None, str | None], now: tuple[str | None, str | None], same: bool, before: int, own: int
) -> None:
    now = then if same else now
    committed = [
        ConsumedOffset("channel", 0, 5, of_generation(before, write_ids(*then))),
        ConsumedOffset("lines", 0, 5, of_generation(before, write_end(7))),
    ]
    ids = {name: known for name, known in zip(("channel", "changelog"), now, strict=True) if known}
    anew = [None not in (known, found) and known != found for known, found in zip(then, now, strict=True)]
    assert [is_anew(each, ids) for each in committed] == [anew[0], False]
    if any(anew) and before == own:
        with pytest.raises(ProgressLost, match=r"the topic cha[a-z]* was deleted, and is there again"):
            still_valid(committed, own, ids, "changelog")
        return
    valid = still_valid(committed, own, ids, "changelog")
    for name, known, found in zip(("channel", "changelog"), then, now, strict=True):
        noted = known if before == own else None
        assert valid.get(name) == (found or noted), "what is not known now is noted again"


def test_a_bounded_partition_keeps_its_end_beside_the_changelogs_id() -> None:
    positions = InputPositions({(0, 0): 5}, [write_ids(None, "A1")])
    positions.move_all()
    (committed,) = moved_offsets(["lines"], positions, None, {(0, 0): 9}, 2)
    assert committed == ConsumedOffset("lines", 0, 5, "g2;end=9;changelog=A1")
    assert read_end(committed.metadata) == 9


def test_no_topic_is_asked_about_where_there_is_none() -> None:
    assert TopicIds("127.0.0.1:1", ()).known() == {}
