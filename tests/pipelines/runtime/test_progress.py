"""Positions and progress: each record counts once, the successor knows the progress, and progress only grows."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import ProgressLostError, TaskError
from tailrace.pipelines.runtime.records.buffers import BufferHeader
from tailrace.pipelines.runtime.stream_task.input.input_gate import InputGate
from tailrace.pipelines.runtime.stream_task.input.input_positions import InputPositions
from tailrace.pipelines.runtime.stream_task.restore.changelog_reader import ChangelogTail
from tailrace.pipelines.runtime.stream_task.restore.group_offsets import CommittedGroupOffset
from tailrace.pipelines.runtime.stream_task.restore.progress_evidence import (
    require_checkpoint,
    require_group,
    require_not_superseded,
)
from tailrace.pipelines.runtime.stream_task.restore.topic_ids import recreated_topics, still_valid
from tailrace.pipelines.runtime.stream_task.state.progress import ProgressWriter, SubtaskProgress
from tailrace.pipelines.runtime.stream_task.state.progress_entry import (
    VERSION,
    InputProgress,
    ProgressEntry,
    decode_progress,
    encode_progress,
    to_bitmap,
)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5))))
def test_no_offset_is_taken_twice_with_any_repeated_input(ranges: list[tuple[int, int]]) -> None:
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


def test_positions_are_changed_until_committed() -> None:
    positions = InputPositions({(0, 0): 5, (1, 3): 7})
    assert not positions.moved
    positions.advance(1, 3, 9)
    positions.advance(1, 4, 2)
    assert positions.moved
    positions.settle()
    assert not positions.moved
    assert positions.to_positions_by_input() == {0: {0: 5}, 1: {3: 9, 4: 2}}


IDS = st.none() | st.text("AZaz09+/-_", min_size=22, max_size=22)
OFFSETS = st.dictionaries(st.integers(0, 99), st.integers(0, 2**62), max_size=4)
SENDERS = st.frozensets(st.integers(0, 2000), max_size=40)
INPUTS = st.builds(InputProgress, st.text(max_size=5), IDS, OFFSETS, OFFSETS, SENDERS.map(to_bitmap))
ENTRIES = st.builds(
    ProgressEntry, st.integers(0, 2**31), IDS, st.integers(0, 2**62), st.lists(INPUTS, max_size=3).map(tuple)
)


@given(ENTRIES)
def test_progress_entry_survives_round_trip(entry: ProgressEntry) -> None:
    assert decode_progress(encode_progress(entry)) == entry


@given(SENDERS)
def test_progress_entry_keeps_ended_senders(senders: frozenset[int]) -> None:
    assert InputProgress("t", ended=to_bitmap(senders)).ended_senders == senders


@given(st.binary(max_size=40))
def test_invalid_entry_is_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match="progress entry"):
        decode_progress(data)


def test_entry_of_other_version_is_rejected_and_entry_with_more_fields_is_read() -> None:
    entry = ProgressEntry(1, None, 3)
    with pytest.raises(ValueError, match=f"has version {VERSION + 1}"):
        decode_progress(msgspec.msgpack.encode((VERSION + 1, entry)))
    longer = [VERSION, [*msgspec.to_builtins(entry), "of a later release"]]
    assert decode_progress(msgspec.msgpack.encode(longer)) == entry


TOPICS = st.lists(st.sampled_from("abcd"), unique=True, min_size=1, max_size=4)


@given(st.data(), TOPICS, st.integers(0, 2), st.integers(0, 2))
def test_successor_continues_from_entry_also_with_other_order_of_inputs(
    data: st.DataObject, topics: list[str], then: int, now: int
) -> None:
    places = st.tuples(st.integers(0, len(topics) - 1), st.integers(0, 5))
    positions = data.draw(st.dictionaries(places, st.integers(0, 2**40), max_size=8))
    ends = data.draw(st.sampled_from([None, positions]))
    gate = InputGate([[0, 1, 2]] * len(topics), [frozenset()] * len(topics), then)
    ended = data.draw(st.frozensets(places.map(lambda place: (place[0], place[1] % 3))))
    for i, sender in ended:
        gate.conclude(i, BufferHeader(sender, 0, 0, ends=True))
    taken = InputPositions(positions)
    held = {
        place: data.draw(st.sets(st.integers(max(0, offset - 9), offset - 1), max_size=3))
        if offset
        else set()
        for place, offset in positions.items()
    }
    for (i, partition), offsets in held.items():
        for offset in offsets:
            taken.hold(i, partition, offset)
    writer = ProgressWriter(SubtaskProgress(changelog_from=7), topics, then, taken, gate, ends)
    entry = decode_progress(encode_progress(writer.entry()))
    assert {(i, p): end for i, t in enumerate(topics) for p, end in _input(entry, t).ends.items()} == (
        ends or {}
    )
    again = data.draw(st.permutations(topics))
    progress = SubtaskProgress.from_entry(entry, again, now)
    # What an attempt of another generation has held back may be a buffer of this one.
    begins = {
        place: offset if then == now else min([offset, *held[place]]) for place, offset in positions.items()
    }
    assert progress.positions == {(again.index(topics[i]), p): offset for (i, p), offset in begins.items()}
    waiting = {(again.index(topics[i]), p): sorted(offsets) for (i, p), offsets in held.items() if offsets}
    assert progress.held == (waiting if then == now else {})
    assert progress.changelog_from == (7 if then == now else 0)
    for i, topic in enumerate(again):
        before = {sender for at, sender in ended if topics[at] == topic}
        assert progress.ended[i] == (before if then == now else frozenset()), (
            "who ended before may speak again"
        )


def _input(entry: ProgressEntry, topic: str) -> InputProgress:
    progress = entry.find_input(topic)
    assert progress is not None
    return progress


def test_subtask_without_entry_starts_from_beginning() -> None:
    assert SubtaskProgress.from_entry(None, ["a", "b"]) == SubtaskProgress({}, {}, (frozenset(), frozenset()))


@given(st.tuples(IDS, IDS), st.tuples(IDS, IDS), st.booleans(), st.integers(0, 2), st.integers(0, 2))
def test_progress_is_lost_if_topic_was_recreated_in_this_generation(
    then: tuple[str | None, str | None], now: tuple[str | None, str | None], same: bool, before: int, own: int
) -> None:
    now = then if same else now
    inputs = InputProgress("channel", then[0], {0: 5}), InputProgress("lines", None, {0: 5}, {0: 7})
    entry = ProgressEntry(before, then[1], 0, inputs)
    ids = {name: known for name, known in zip(("channel", "changelog"), now, strict=True) if known}
    anew = [None not in (known, result) and known != result for known, result in zip(then, now, strict=True)]
    assert recreated_topics(entry, ids) == ({"channel"} if anew[0] else set())
    if any(anew) and before == own:
        with pytest.raises(ProgressLostError, match=r"the topic cha[a-z]* was deleted, and is there again"):
            still_valid(entry, own, ids, "changelog")
        return
    valid = still_valid(entry, own, ids, "changelog")
    for name, known, found in zip(("channel", "changelog"), then, now, strict=True):
        noted = known if before == own else None
        assert valid.get(name) == (found or noted), "what is not known now is written again"


TAILS = st.builds(
    ChangelogTail,
    st.builds(ProgressEntry, st.integers(0, 2), IDS, st.just(0)),
    st.integers(0, 9),
    st.just(20),
) | st.just(ChangelogTail(None, -1, 0))


@given(
    TAILS,
    st.none() | st.builds(CommittedGroupOffset, st.integers(0, 2), st.integers(-1, 9), IDS),
    st.integers(0, 2),
    IDS,
)
def test_consumer_group_ahead_of_changelog_is_used_and_one_behind_is_not(
    tail: ChangelogTail, copy: CommittedGroupOffset | None, generation: int, known: str | None
) -> None:
    concerns = copy is not None and copy.generation == generation
    anew = copy is not None and None not in (known, copy.changelog_id) and known != copy.changelog_id
    if concerns and copy is not None and (anew or copy.offset > tail.offset):
        with pytest.raises(ProgressLostError, match=r"the (changelog|topic) log"):
            require_group(tail, copy, "log", 3, generation, known)
    else:
        require_group(tail, copy, "log", 3, generation, known)


@given(TAILS, st.integers(0, 2), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_changelog_that_ends_before_checkpoint_of_its_generation_is_lost_progress(
    tail: ChangelogTail, generation: int, offset: int, position: int, read: int
) -> None:
    if tail.entry is not None:
        entry = ProgressEntry(tail.entry.generation, None, 0, (InputProgress("lines", None, {3: position}),))
        tail = ChangelogTail(entry, tail.offset, tail.end)
    try:
        require_checkpoint(tail, "log", 1, generation, offset=offset, positions={"lines": {3: read, 4: 9}})
    except ProgressLostError as error:
        short = tail.entry is None or tail.entry.generation < generation or tail.offset < offset
        assert short or position < read
        wanted = ("log [1]", str(offset)) if short else ("lines-3", f"offset {position} ", f"to {read}:")
        assert all(item in str(error) for item in wanted), "topic, partition, and both positions"
    else:
        assert tail.entry is not None
        assert tail.entry.generation >= generation
        assert tail.offset >= offset
        assert position >= read


@given(TAILS, st.integers(0, 2))
def test_progress_of_newer_generation_ends_older_attempt(tail: ChangelogTail, generation: int) -> None:
    if tail.entry is not None and tail.entry.generation > generation:
        with pytest.raises(TaskError, match="superseded"):
            require_not_superseded(tail, "log", 0, generation)
    else:
        require_not_superseded(tail, "log", 0, generation)
