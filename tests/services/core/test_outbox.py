"""An Outbox behaves as a plain mapping from keys to (event, due time) that is searched each time."""

from __future__ import annotations

import string
from random import Random
from typing import get_args

import msgspec
import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace.schemas import task_executor
from tailrace.services.core.index_validation import compare_outbox
from tailrace.services.core.outbox import Outbox, OutboxKey, OutboxOrder, OwedAnswer, OwedEvent, round_up_time
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master import owed_events as job_master_events
from tailrace.services.job_master.owed_events import CheckpointNotification, JobMasterEvent
from tailrace.services.resource_manager import owed_events as resource_manager_events
from tailrace.services.resource_manager.owed_events import ResourceManagerEvent
from tailrace.services.snapshots.encoding import encode, state_decoder
from tailrace.services.snapshots.fingerprint import fingerprint_types
from tailrace.services.task_executor import owed_events as task_executor_events
from tailrace.services.task_executor.owed_events import TaskExecutorEvent


def free_slot(recipient: str, cause: int) -> OutgoingEvent:
    return OutgoingEvent(recipient, task_executor.FreeSlot(allocation_id="", reason=""), cause)


class OwedFreeSlot(OwedEvent, frozen=True, tag=True):
    allocation_id: str
    reason: str

    def outgoing_event(self, _state: object) -> OutgoingEvent:
        return free_slot("free", self.cause)


class OwedTrigger(OwedEvent, frozen=True, tag=True):
    """An event with two ids, whose first id may equal that of another event."""

    job_id: str
    checkpoint_id: int
    ids = 2

    def outgoing_event(self, state: State) -> OutgoingEvent | None:
        return None if state.is_held else free_slot(self.job_id, self.cause)


class OwedFarewell(OwedEvent, frozen=True, tag=True):
    ids = 0

    def outgoing_event(self, _state: object) -> OutgoingEvent:
        return free_slot("farewell", self.cause)


class OwedReply(OwedAnswer, frozen=True, tag=True):
    reason: str

    def outgoing_event(self, _state: object) -> OutgoingEvent:
        return free_slot("reply", self.cause)


Owed = OwedFreeSlot | OwedTrigger | OwedFarewell | OwedReply


class State(msgspec.Struct, frozen=True):
    """A state with an outbox."""

    outbox: Outbox[Owed] = Outbox()
    is_held: bool = False


NAMES = st.sampled_from("abcd")
OFFSETS = st.integers(0, 5)
DUE = st.none() | st.integers(0, 5)
EVENTS = (
    st.builds(OwedFreeSlot, OFFSETS, NAMES, st.sampled_from(string.ascii_letters))
    | st.builds(OwedTrigger, OFFSETS, NAMES, OFFSETS)
    | st.builds(OwedFarewell, OFFSETS)
    | st.builds(OwedReply, OFFSETS, NAMES)
)


def ids_of(event: OwedEvent) -> tuple[str | int, ...]:
    return event.key[1:]


def filled(entries: list[tuple[Owed, int | None]]) -> Outbox[Owed]:
    outbox: Outbox[Owed] = Outbox()
    for event, due in entries:
        outbox = outbox.owe(event, due)
    return outbox


class Outboxes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.outbox: Outbox[Owed] = Outbox()
        self.model: dict[OutboxKey, tuple[Owed, int | None]] = {}

    @rule(event=EVENTS, due=DUE)
    def owe(self, event: Owed, due: int | None) -> None:
        self.outbox = self.outbox.owe(event, due)
        self.model[event.key] = (event, due)

    @rule(events=st.lists(EVENTS), due=DUE)
    def owe_all(self, events: list[Owed], due: int | None) -> None:
        self.outbox = self.outbox.owe_all(events, due)
        self.model.update({event.key: (event, due) for event in events})

    @rule(event=EVENTS)
    def remove(self, event: Owed) -> None:
        before, outbox = self.outbox, self.outbox.remove(type(event), *ids_of(event))
        assert (outbox is before) == (event.key not in self.model)
        self.outbox = outbox
        self.model.pop(event.key, None)

    @rule(events=st.lists(EVENTS))
    def remove_all(self, events: list[Owed]) -> None:
        before, outbox = self.outbox, self.outbox.remove_all(events)
        assert (outbox is before) == all(event.key not in self.model for event in events)
        self.outbox = outbox
        for event in events:
            self.model.pop(event.key, None)

    @rule(now=st.integers(-1, 6))
    def due(self, now: int) -> None:
        expected = {key for key, (_, due) in self.model.items() if due is None or due <= now}
        due = self.outbox.due(now)
        assert {key for key, _ in due} == expected
        assert all(event.key == key for key, event in due)

    @rule(event=EVENTS)
    def get(self, event: Owed) -> None:
        expected, due = self.model.get(event.key, (None, None))
        assert self.outbox.get(type(event), *ids_of(event)) == expected
        assert self.outbox.due_time(type(event), *ids_of(event)) == due

    @invariant()
    def outbox_equals_model(self) -> None:
        assert [*compare_outbox(self.outbox)] == []
        assert {event.key: event for event in self.outbox} == {
            key: event for key, (event, _) in self.model.items()
        }
        assert (len(self.outbox), bool(self.outbox)) == (len(self.model), bool(self.model))
        times = [due for _, due in self.model.values() if due is not None]
        assert self.outbox.earliest == min(times, default=None)


Outboxes.TestCase.settings = settings(max_examples=example_count(20), deadline=None)
test_outboxes = Outboxes.TestCase


@given(st.lists(st.tuples(EVENTS, DUE), unique_by=lambda entry: entry[0].key), st.randoms())
def test_outbox_depends_on_its_content_only(entries: list[tuple[Owed, int | None]], random: Random) -> None:
    """Not on the order of insertion, nor on earlier content; also after a snapshot."""
    outbox = filled(entries)
    others = [OwedFreeSlot(7, "other", ""), OwedTrigger(7, "other", 7)]
    shuffled = [*entries, *((event, due) for event in others for due in (3, None))]
    random.shuffle(shuffled)
    again = filled(shuffled).remove_all(others)
    assert again == outbox
    data = encode(State(outbox))
    assert encode(State(again)) == data
    restored = state_decoder(State).decode(data)
    assert restored == State(outbox)
    assert encode(restored) == data


ORDER = OutboxOrder(OwedTrigger, (OwedFreeSlot, OwedReply), OwedFarewell)


@given(st.lists(st.tuples(EVENTS, DUE)), st.integers(-1, 6), st.booleans())
def test_due_events_are_sorted_by_kind_cause_and_id(
    entries: list[tuple[Owed, int | None]], now: int, is_held: bool
) -> None:
    model = {event.key: (event, due) for event, due in entries}
    due = [event for event, time in model.values() if time is None or time <= now]
    expected = [
        *sorted((e for e in due if isinstance(e, OwedTrigger)), key=lambda e: (e.cause, e.key)),
        *sorted((e for e in due if isinstance(e, OwedFreeSlot | OwedReply)), key=lambda e: (e.cause, e.key)),
        *(e for e in due if isinstance(e, OwedFarewell)),
    ]
    held = [event for event in expected if not (is_held and isinstance(event, OwedTrigger))]
    outbox = filled(entries)
    events = ORDER.outgoing_events(State(outbox, is_held), now)
    assert [(event.recipient, event.cause) for event in events] == [
        (
            {OwedTrigger: getattr(event, "job_id", ""), OwedFreeSlot: "free", OwedReply: "reply"}.get(
                type(event), "farewell"
            ),
            event.cause,
        )
        for event in held
    ]


@pytest.mark.parametrize(
    ("events", "order"),
    [
        (ResourceManagerEvent, resource_manager_events.ORDER),
        (TaskExecutorEvent, task_executor_events.ORDER),
        (JobMasterEvent | CheckpointNotification, job_master_events.ORDER),
    ],
)
def test_every_kind_of_owed_event_has_a_place_in_the_order(events: object, order: OutboxOrder) -> None:
    assert frozenset(get_args(events)) == order.kinds


def test_state_fingerprint_includes_owed_events() -> None:
    class Other(msgspec.Struct, frozen=True):
        outbox: Outbox[OwedFreeSlot] = Outbox()

    class Same(msgspec.Struct, frozen=True):
        outbox: Outbox[Owed] = Outbox()

    def fingerprint(kind: type[msgspec.Struct]) -> str:
        kind.__name__ = "State"
        return fingerprint_types({"role": kind})

    assert fingerprint(Other) != fingerprint(Same)


def test_times_are_rounded_up_by_less_than_a_sixteenth_of_a_second() -> None:
    for time in (0, 1, 62_499, 62_500, 62_501, 10**15 + 1):
        assert 0 <= round_up_time(time) - time < 62_500
