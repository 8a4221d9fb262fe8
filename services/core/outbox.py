"""The outbox of a state: the events that the role owes and that are not in the log yet.

An event is owed from the step that requires it to the step that finds it in the log (or finds that no role needs it any
more). `decide` returns the due events, so it costs O(due events) and returns nothing after they are folded.

- A kind of owed event is a subclass of `OwedEvent`. It has the offset of its cause, the ids that identify the event
  among those of its kind, and the content that the rest of the state does not have. It creates the event to send.
- `Outbox` is immutable and depends on its content only: not on the order in which it was filled.
- `OutboxOrder` has the kinds of a role. It returns events in the order of their kinds, those of one kind in the order
  of their causes, those of one cause in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import Header
from .role import JOB_MASTER, TASK_EXECUTOR, OutgoingEvent, Time, address

OutboxKey = tuple[str | int, ...]
"""The name of a kind, and the ids of one owed event of it."""
_GRAIN = 62_500
"""One sixteenth of a second, in microseconds."""

E = TypeVar("E", bound="OwedEvent")
K = TypeVar("K", bound="OwedEvent")


class OwedEvent(msgspec.Struct, frozen=True, tag=True):
    """An event that a role has to send. Subclasses are named `Owed` and the event. They add fields that identify the
    event, then its other content."""

    cause: int
    """The offset of the event that requires this one."""
    ids: ClassVar[int] = 1
    """The number of fields after `cause` that identify the event among those of its kind."""

    @property
    def key(self) -> OutboxKey:
        """Identifies the event in an outbox."""
        return (type(self).__name__, *msgspec.structs.astuple(self)[1 : 1 + self.ids])

    def outgoing_event(self, state: Any) -> OutgoingEvent | None:
        """Returns the event to send; None if it cannot be sent in this state, and stays owed."""
        raise NotImplementedError

    def to_task_executor(self, resource_id: str, body: Body) -> OutgoingEvent:
        """Returns the body as the event to a TaskExecutor."""
        return OutgoingEvent(address(TASK_EXECUTOR, resource_id), body, self.cause)

    def to_job_master(self, job_id: str, body: Body) -> OutgoingEvent:
        """Returns the body as the event to a JobMaster."""
        return OutgoingEvent(address(JOB_MASTER, job_id), body, self.cause)


class OwedAnswer(OwedEvent, frozen=True, tag=True):
    """An owed event that its cause identifies among those of its kind."""

    @property
    def key(self) -> OutboxKey:
        return type(self).__name__, self.cause


class Outbox(msgspec.Struct, Generic[E], frozen=True):
    """Owed events by key. Events with a due time are also found by that time, without visiting those that are not due.
    That is efficient for few distinct times: round times that differ only slightly with `round_up_time` first."""

    events: Map[OutboxKey, E] = Map()
    """Events that are owed at once."""
    later: Map[Time, Map[OutboxKey, E]] = Map()
    """Events with a due time, by that time."""
    times: Map[OutboxKey, Time] = Map()
    """The due times of these events."""
    earliest: Time | None = None
    """The earliest due time."""

    def __len__(self) -> int:
        return len(self.events) + len(self.times)

    def __bool__(self) -> bool:
        return bool(self.events) or self.earliest is not None

    def __iter__(self) -> Iterator[E]:
        """Iterates over all events, due or not, in no particular order."""
        yield from self.events.values()
        for events in self.later.values():
            yield from events.values()

    def get(self, kind: type[K], *ids: str | int) -> K | None:
        """Returns the owed event of that kind with these ids, due or not; None if there is none."""
        key = (kind.__name__, *ids)
        time = self.times.get(key)
        found = self.events.get(key) if time is None else self.later[time][key]
        return cast("K | None", found)

    def due_time(self, kind: type[OwedEvent], *ids: str | int) -> Time | None:
        """Returns the time from which the event is owed; None if it is not owed, or owed at once."""
        return self.times.get((kind.__name__, *ids))

    def owe(self, event: E, due: Time | None = None) -> Outbox[E]:
        """Returns the outbox with the event; None: it is due at once. It replaces an event with the same key."""
        if due is None and not self.times:
            return Outbox(self.events.set(event.key, event), self.later, self.times, self.earliest)
        return self.owe_all((event,), due)

    def owe_all(self, events: Iterable[E], due: Time | None = None) -> Outbox[E]:
        """Like `owe`, for events that are due at the same time."""
        new = {event.key: event for event in events}
        if not new:
            return self
        others = self._without(new)
        if due is None:
            return Outbox(others.events.update(new), others.later, others.times, others.earliest)
        earliest = others.earliest
        return Outbox(
            others.events,
            others.later.set(due, others.later.get(due, _NOTHING).update(new)),
            others.times.update(dict.fromkeys(new, due)),
            due if earliest is None or due < earliest else earliest,
        )

    def remove(self, kind: type[OwedEvent], *ids: str | int) -> Outbox[E]:
        """Returns the outbox without the event: it was sent, or no role needs it any more. The same object if it is
        not owed."""
        key = (kind.__name__, *ids)
        if key in self.events:
            return Outbox(self.events.delete(key), self.later, self.times, self.earliest)
        return self._without((key,)) if key in self.times else self

    def remove_all(self, events: Iterable[OwedEvent]) -> Outbox[E]:
        """Like `remove`, for the events with the keys of these."""
        keys = {event.key for event in events}
        return self._without(keys) if keys else self

    def due(self, now: Time) -> list[tuple[OutboxKey, E]]:
        """Returns the events that are due at `now` with their keys, in no particular order (`OutboxOrder` sorts
        them)."""
        found = [*self.events.items()]
        if self.earliest is not None and self.earliest <= now:
            found += [pair for time, events in self.later.items() if time <= now for pair in events.items()]
        return found

    def _without(self, keys: Collection[OutboxKey]) -> Outbox[E]:
        now = [key for key in keys if key in self.events]
        timed = [(key, time) for key in keys if (time := self.times.get(key)) is not None]
        if not (now or timed):
            return self
        events = self.events
        if now:
            left = events.mutate()
            for key in now:
                del left[key]
            events = left.finish()
        if not timed:
            return Outbox(events, self.later, self.times, self.earliest)
        by_time: dict[Time, Any] = {}
        times = self.times.mutate()
        for key, time in timed:
            if time not in by_time:
                by_time[time] = self.later[time].mutate()
            del by_time[time][key]
            del times[key]
        later = self.later.mutate()
        for time, changed in by_time.items():
            if changed:
                later[time] = changed.finish()
            else:
                del later[time]
        left_later, earliest = later.finish(), self.earliest
        if earliest not in left_later:
            earliest = min(left_later, default=None)
        return Outbox(events, left_later, times.finish(), earliest)


_NOTHING: Map[OutboxKey, Any] = Map()


class HasOutbox(Protocol):
    """A state with a field `outbox`."""

    @property
    def outbox(self) -> Outbox[Any]:
        """The events that the state owes."""
        ...


H = TypeVar("H", bound=HasOutbox)


def owe(state: H, event: OwedEvent, due: Time | None = None) -> H:
    """Returns the state that owes the event, like `Outbox.owe`."""
    return with_outbox(state, state.outbox.owe(event, due))


def remove_owed(state: H, kind: type[OwedEvent], *ids: str | int) -> H:
    """Returns the state that does not owe the event, like `Outbox.remove`; the same object if it is not owed."""
    return with_outbox(state, state.outbox.remove(kind, *ids))


def with_outbox(state: H, outbox: Outbox[Any]) -> H:
    """Returns the state with this outbox; the same object if it has it already."""
    return state if outbox is state.outbox else replace(state, outbox=outbox)  # type: ignore[type-var]


def round_up_time(time: Time) -> Time:
    """Returns the next multiple of 1/16 s: at most that much later than `time`."""
    return -(-time // _GRAIN) * _GRAIN


def step_of_sent(
    kind: type[OwedEvent],
    ids: Callable[[Header, Any], tuple[Any, ...]],
    *,
    same_cause: bool = False,
) -> Callable[[H, Record, Any], H]:
    """Returns the step of an event that the role has sent from its outbox, for the module of its kind. `ids`:
    (header, body) -> the ids of the owed event. `same_cause`: an event that is owed for another cause by now stays
    owed."""

    def step(state: H, record: Record, body: Any) -> H:
        found = ids(record.header, body)
        owed = state.outbox.get(kind, *found) if same_cause else None
        if owed is not None and owed.cause != record.header.cause:
            return state
        return remove_owed(state, kind, *found)

    # The generated page of all events finds the handler there.
    step.__module__ = kind.__module__
    return step


class OutboxOrder:
    """The kinds of events that a role sends from its outbox, in the order in which it sends them. The kinds of a tuple
    have one place, so that their events are in the order of their causes."""

    def __init__(self, *kinds: type[OwedEvent] | tuple[type[OwedEvent], ...]) -> None:
        self._ranks = {
            kind: rank
            for rank, place in enumerate(kinds)
            for kind in (place if isinstance(place, tuple) else (place,))
        }

    @property
    def kinds(self) -> frozenset[type[OwedEvent]]:
        """All kinds that have a place."""
        return frozenset(self._ranks)

    def outgoing_events(
        self, state: HasOutbox, now: Time, timeouts: Iterable[OwedEvent] = ()
    ) -> list[OutgoingEvent]:
        """Returns the events that are due at `now`. `timeouts`: more owed events, which the outbox does not contain
        because they follow from the time and the configuration."""
        due = [*state.outbox.due(now), *((event.key, event) for event in timeouts)]
        if len(due) > 1:
            ranks = self._ranks
            due.sort(key=lambda pair: (ranks[type(pair[1])], pair[1].cause, pair[0]))
        outgoing = [event.outgoing_event(state) for _, event in due]
        return [event for event in outgoing if event is not None]
