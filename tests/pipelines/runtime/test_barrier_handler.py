"""The pending checkpoints of a subtask, for any order of its senders' barriers, records, ends, and commands.

A model defines a checkpoint's part: of each sender, exactly what it sent before its barrier, in the cut or in flight.
This holds for any order in which the channels are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.deployment import CheckpointTrigger
from tailrace.pipelines.runtime.stream_task.input.barrier_handler import (
    BarrierHandler,
    CheckpointAction,
    CompleteAlignment,
    DeclineCheckpoint,
    HeldBuffer,
    InputChannel,
    PendingCheckpoint,
    ReleaseBuffers,
    SnapshotState,
)
from tailrace.schemas.types import CheckpointOptions, SnapshotType

SENDERS = 3
END = "end"
ALIGNED_INPUTS = st.sampled_from([frozenset[int](), frozenset({0}), frozenset({1}), frozenset({0, 1})])


def channel_of(sender: int) -> InputChannel:
    """Returns the channel of a sender; the middle one sends to another input than the others."""
    return sender % 2, sender


def with_aligned(inputs: frozenset[int]) -> Subject:
    return Subject(BarrierHandler(aligned_inputs=inputs), aligned_inputs=inputs)


def checkpoint(number: int, *, aligned: bool = False) -> CheckpointTrigger:
    kind = SnapshotType.SAVEPOINT if aligned else SnapshotType.CHECKPOINT
    options = CheckpointOptions(snapshot_type=kind, directory=f"chk-{number}", shared="shared")
    return CheckpointTrigger(checkpoint_id=number, timestamp=0, options=options)


Item = CheckpointTrigger | bytes | str
"""A barrier, a buffer of records, or the end of a sender."""


@dataclass
class Subject:
    """A subtask that records what it has processed, and the content of each checkpoint."""

    machine: BarrierHandler = field(default_factory=BarrierHandler)
    ended: set[InputChannel] = field(default_factory=set)
    processed: list[bytes] = field(default_factory=list)
    cuts: dict[int, set[bytes]] = field(default_factory=dict)
    complete: dict[int, set[bytes]] = field(default_factory=dict)
    declined: dict[int, str] = field(default_factory=dict)
    held: dict[bytes, Item] = field(default_factory=dict)
    aligned_inputs: frozenset[int] = frozenset()

    @property
    def unended(self) -> frozenset[InputChannel]:
        return frozenset(channel_of(sender) for sender in range(SENDERS)) - self.ended

    @property
    def holds(self) -> bool:
        return any(self.machine.is_held(channel_of(sender)) for sender in range(SENDERS))

    def take(self, sender: int, item: Item) -> None:
        """Processes the sender's next item."""
        if self.machine.is_held(channel_of(sender)):
            name = f"{sender}:{len(self.held)}".encode()
            self.held[name] = item
            self.do(self.machine.hold_buffer(HeldBuffer(channel_of(sender)[0], sender, name)))
        else:
            self._receive(sender, item)

    def _receive(self, sender: int, item: Item) -> None:
        channel = channel_of(sender)
        if isinstance(item, CheckpointTrigger):
            self.do(self.machine.on_barrier(channel, item, self.unended, 0))
        elif isinstance(item, bytes):
            self.do(self.machine.capture_in_flight(channel, item))
            self.processed.append(item)
        else:
            self.ended.add(channel)
            self.do(self.machine.on_sender_ended(channel, 0))

    def do(self, actions: Sequence[CheckpointAction]) -> None:
        for i, action in enumerate(actions):
            match action:
                case SnapshotState(pending):
                    assert pending.number not in self.cuts, "a cut is taken once"
                    self.cuts[pending.number] = set(self.processed)
                case CompleteAlignment(pending):
                    self._complete(pending)
                case DeclineCheckpoint(number, reason):
                    self.declined[number] = reason
                case ReleaseBuffers(held):
                    assert i == len(actions) - 1, "what is released comes after everything else"
                    for buffer in held:
                        self.take(buffer.offset, self.held[buffer.data])

    def _complete(self, pending: PendingCheckpoint) -> None:
        captured = [data for those in pending.captured.values() for data in those]
        cut = self.cuts[pending.number]
        assert not cut & set(captured), "nothing is both in the cut and in flight"
        assert not (pending.is_aligned and captured), "a savepoint has nothing in flight"
        assert not pending.captured.keys() & self.aligned_inputs, "nor has an aligned input"
        self.complete[pending.number] = cut | set(captured)


@st.composite
def channels(draw: st.DrawFn) -> tuple[list[list[Item]], list[int]]:
    """Draws per sender what it sends: records, the same checkpoints in the same order, possibly its end; and the
    order of turns."""
    kinds = draw(st.lists(st.booleans(), max_size=4))
    barriers = [checkpoint(i, aligned=aligned) for i, aligned in enumerate(kinds, 1)]
    sent: list[list[Item]] = []
    for sender in range(SENDERS):
        items: list[Item] = []
        last = len(barriers) if draw(st.booleans()) else draw(st.integers(0, len(barriers)))
        for i, barrier in enumerate(barriers[:last]):
            items += [f"{sender}/{i}/{n}".encode() for n in range(draw(st.integers(0, 3)))]
            items.append(barrier)
        items += [f"{sender}/last/{n}".encode() for n in range(draw(st.integers(0, 2)))]
        if last < len(barriers) or draw(st.booleans()):
            items.append(END)
        sent.append(items)
    turns = draw(st.permutations([s for s, items in enumerate(sent) for _ in items]))
    return sent, list(turns)


def before(items: Sequence[Item], number: int) -> set[bytes]:
    """Returns what a sender sent before its barrier; everything if it ended without one."""
    results: set[bytes] = set()
    for item in items:
        if isinstance(item, CheckpointTrigger) and item.checkpoint_id == number:
            break
        if isinstance(item, bytes):
            results.add(item)
    return results


def play(subject: Subject, sent: Sequence[Sequence[Item]], turns: Sequence[int]) -> None:
    nexts = [iter(items) for items in sent]
    for sender in turns:
        subject.take(sender, next(nexts[sender]))


@given(channels(), ALIGNED_INPUTS)
def test_checkpoint_has_exactly_what_each_sender_sent_before_its_barrier(
    drawn: tuple[list[list[Item]], list[int]], aligned: frozenset[int]
) -> None:
    sent, turns = drawn
    subject = with_aligned(aligned)
    play(subject, sent, turns)
    start = {item.checkpoint_id for items in sent for item in items if isinstance(item, CheckpointTrigger)}
    assert subject.complete.keys() == start, "all of them, since each sender gives its barrier or ends"
    for number, part in subject.complete.items():
        assert part == set().union(*(before(items, number) for items in sent))
    assert not subject.declined
    assert not subject.machine.active
    assert not subject.holds


@given(channels(), ALIGNED_INPUTS)
def test_each_record_is_processed_once_in_order_of_its_sender(
    drawn: tuple[list[list[Item]], list[int]], aligned: frozenset[int]
) -> None:
    sent, turns = drawn
    subject = with_aligned(aligned)
    play(subject, sent, turns)
    for sender, items in enumerate(sent):
        own = [item for item in subject.processed if item.startswith(f"{sender}/".encode())]
        assert own == [item for item in items if isinstance(item, bytes)]


@given(channels(), ALIGNED_INPUTS, st.data())
def test_aborted_or_incomplete_checkpoint_leaves_nothing(
    drawn: tuple[list[list[Item]], list[int]], aligned: frozenset[int], data: st.DataObject
) -> None:
    """Senders omit barriers, as restarted attempts do; the JobMaster aborts at any time."""
    sent, turns = drawn
    numbers = [item.checkpoint_id for items in sent for item in items if isinstance(item, CheckpointTrigger)]
    left_out = data.draw(st.sets(st.tuples(st.integers(0, SENDERS - 1), st.sampled_from(numbers or [0]))))
    sent = [
        [i for i in items if not (isinstance(i, CheckpointTrigger) and (sender, i.checkpoint_id) in left_out)]
        for sender, items in enumerate(sent)
    ]
    nexts = [iter(items) for items in sent]
    subject = with_aligned(aligned)
    for sender in turns:
        item = next(nexts[sender], None)
        if item is not None:
            subject.take(sender, item)
        if numbers and data.draw(st.integers(0, 9)) == 0:
            subject.do(subject.machine.abort(data.draw(st.sampled_from(numbers))))
    for number, part in subject.complete.items():
        assert part == set().union(*(before(items, number) for items in sent))
    for number in set(numbers):
        subject.do(subject.machine.abort(number))
    assert not subject.machine.active
    assert not subject.holds
    assert sorted(subject.processed) == sorted(i for items in sent for i in items if isinstance(i, bytes))


def test_checkpoint_cuts_at_first_barrier_and_savepoint_at_last() -> None:
    for aligned in (False, True):
        subject = Subject()
        subject.take(0, checkpoint(1, aligned=aligned))
        assert (1 in subject.cuts) is not aligned
        subject.take(1, checkpoint(1, aligned=aligned))
        assert not subject.complete
        subject.take(2, checkpoint(1, aligned=aligned))
        assert 1 in subject.cuts
        assert 1 in subject.complete


def test_checkpoint_cuts_when_barriers_of_aligned_inputs_have_arrived() -> None:
    subject = with_aligned(frozenset({0}))
    subject.take(1, checkpoint(1))
    subject.take(1, b"ahead")
    subject.take(0, b"broadcast")
    subject.take(0, checkpoint(1))
    assert not subject.cuts
    assert subject.processed == [b"broadcast"]
    subject.take(2, checkpoint(1))
    assert subject.cuts == {1: {b"broadcast"}}
    assert subject.processed == [b"broadcast", b"ahead"], "what was held back goes on"


def test_trigger_during_alignment_restarts_it() -> None:
    subject = with_aligned(frozenset({1}))
    subject.take(0, checkpoint(1))
    subject.take(0, b"ahead")
    subject.do(subject.machine.trigger(checkpoint(2), subject.unended, 0))
    assert "checkpoint 2" in subject.declined[1]
    assert subject.processed == [b"ahead"]
    subject.take(1, END)
    assert subject.cuts == {2: {b"ahead"}}
    subject.take(0, b"in flight")
    for sender in (0, 2):
        subject.take(sender, END)
    assert subject.complete == {2: {b"ahead", b"in flight"}}


def test_triggered_source_completes_checkpoint_once() -> None:
    subject = Subject()
    for _ in range(2):
        subject.do(subject.machine.trigger(checkpoint(1), frozenset(), 0))
    assert subject.complete == {1: set()}


def test_trigger_while_senders_end_waits_for_their_ends() -> None:
    subject = Subject()
    subject.take(0, END)
    subject.do(subject.machine.trigger(checkpoint(1), subject.unended, 0))
    subject.take(1, b"last words")
    assert 1 in subject.cuts
    for sender in (1, 2):
        assert not subject.complete
        subject.take(sender, END)
    assert subject.complete == {1: {b"last words"}}


def test_newer_barrier_declines_checkpoint_that_sender_has_skipped() -> None:
    for aligned in (False, True):
        subject = Subject()
        subject.take(0, checkpoint(1, aligned=aligned))
        subject.take(0, b"behind")
        subject.take(1, checkpoint(2))
        assert 1 in subject.declined
        assert "2" in subject.declined[1]
        assert b"behind" in subject.processed, "what was held back goes on"
        subject.take(2, checkpoint(1, aligned=aligned))
        assert 1 not in subject.complete, "a late barrier changes nothing"


@pytest.mark.parametrize("aligned", [False, True])
def test_barrier_after_trigger_of_newer_checkpoint_declines_its_own(
    aligned: bool,
) -> None:
    subject = Subject()
    subject.do(subject.machine.trigger(checkpoint(2), subject.unended, 0))
    subject.take(0, checkpoint(1, aligned=aligned))
    assert "2" in subject.declined[1], "else it would count as a subtask that had finished before"
    for sender in range(SENDERS):
        subject.take(sender, END)
    assert 2 in subject.complete
    assert 1 not in subject.complete


def test_barriers_do_not_start_aborted_checkpoint() -> None:
    subject = Subject()
    subject.do(subject.machine.abort(1))
    for sender in range(SENDERS):
        subject.take(sender, checkpoint(1, aligned=True))
    assert not subject.cuts
    assert not subject.holds


def test_barriers_of_checkpoints_known_to_be_over_change_nothing() -> None:
    subject = Subject(BarrierHandler(before=4))
    subject.take(0, checkpoint(4))
    assert not subject.machine.active
    subject.take(0, checkpoint(5))
    assert subject.machine.pending == (5,)


@pytest.mark.parametrize("aligned", [False, True])
def test_memory_limit_declines_checkpoint_and_releases_records(aligned: bool) -> None:
    subject = Subject(BarrierHandler(limit=8))
    subject.take(0, checkpoint(1, aligned=aligned))
    ahead = 0 if aligned else 1
    for n in range(9):
        subject.take(ahead, f"{ahead}/{n}".encode())
    assert "bytes" in subject.declined[1]
    assert len(subject.processed) == 9
    assert not subject.machine.active


def test_several_checkpoints_can_be_pending() -> None:
    subject = Subject()
    for number in (1, 2, 3):
        subject.take(0, checkpoint(number))
    assert subject.machine.pending == (1, 2, 3)
    subject.take(1, b"in flight for all three")
    for sender in (1, 2):
        for number in (1, 2, 3):
            subject.take(sender, checkpoint(number))
    assert subject.complete == {n: {b"in flight for all three"} for n in (1, 2, 3)}
    assert not subject.declined
