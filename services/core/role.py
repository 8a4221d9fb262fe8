"""The contract of a role: the Decider pattern, with instructions for side effects.

1. `evolve` applies a recorded event. It handles events that the role received and events that it sent in the same way.
   It is total and deterministic: no clock, no randomness, no IO. An event that is not a legal step raises
   `IllegalEvent`; all readers then ignore that event.
2. `decide` compares the state with its target and returns the events to append. After they are appended and applied,
   `decide` returns nothing more. It costs O(number of events to send).
3. `instructions` are the side effects that the state demands. The role's shell performs each once and reports the
   result as events. An instruction stays in the state until such an event is applied, so that the shell of the next
   leader finds it again.
4. Nothing depends on the iteration order of a map: events to send are ordered by the events that caused them.
5. A state may be quiescent (`is_quiescent`): there is nothing to send, now or later, nothing is instructed, and no
   event to EVERYONE and no new leader changes it. Replicas and hosts skip quiescent states until an event addresses
   them, so the cost of an event to EVERYONE does not grow with the number of ended jobs.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ...schemas.body import Body
from ...schemas.event import Event, Record
from ...schemas.types import Header
from .reason_limits import truncate_reasons

Time = int
"""Microseconds since the epoch, always an argument, never read inside a role."""

S = TypeVar("S")

DISPATCHER = "dispatcher"
RESOURCE_MANAGER = "resource_manager"
JOB_MASTER = "job_master"
TASK_EXECUTOR = "task_executor"
REST_SERVER = "rest_server"
CLIENT = "client"
STANDBY = "standby"
"""standby/<session>: a master that does not lead the Dispatcher, where it tells what its states come to."""


def address(kind: str, instance: str) -> str:
    """The address of one of many: job_master/<job id>, task_executor/<resource id>, client/<name>."""
    return f"{kind}/{instance}"


@functools.lru_cache(1 << 16)
def kind_of(role_address: str) -> str:
    """The kind of role that an address belongs to."""
    return role_address.partition("/")[0]


def instance_of(role_address: str) -> str:
    """What follows the kind: a job id, a resource id, a client's name; empty for a role that there is one of."""
    return role_address.partition("/")[2]


class IllegalEvent(Exception):
    """An event that is no legal step from the state in which it found the role; the state is unchanged."""

    def __init__(self, record: Record, state: str, why: str) -> None:
        self.record = record
        super().__init__(
            f"{record.body.AVRO_NAME} from {record.header.sender} at offset {record.offset} "
            f"is not possible for {record.header.recipient} in state {state}: {why}"
        )


Step = Callable[[S, Record, Any], S]
"""(state, record, the record's body) -> the state after it. Raises IllegalEvent."""


class Steps(Generic[S]):
    """A role's transitions as a table: what each event that it may hear or say does to its state."""

    def __init__(self, table: Mapping[type[Body], Step[S]]) -> None:
        self._table = dict(table)

    def apply(self, state: S, record: Record) -> S:
        """The state after the event. Raises IllegalEvent, also for an event that is not in the table."""
        step = self._table.get(type(record.body))
        if step is None:
            raise IllegalEvent(record, "any", "it has no step for this event")
        return step(state, record, record.body)

    @property
    def handlers(self) -> Mapping[type[Body], Step[S]]:
        """Event -> its step."""
        return self._table


def unchanged(state: S, _record: Record, _body: Body) -> S:
    """The step of an event that a role may hear but that means nothing to it."""
    return state


class OutgoingEvent(msgspec.Struct, frozen=True):
    """An event that a role owes: all of it but what `seal` adds. `cause` is the offset that made the role owe it."""

    recipient: str
    body: Body
    cause: int | None


class Instruction(msgspec.Struct, frozen=True, tag=True):
    """What a state demands of the outside world; `key` is the same whenever the same thing is demanded."""

    @property
    def key(self) -> str:
        """Identifies the demand among all that the role ever makes."""
        raise NotImplementedError


class Role(Protocol[S]):
    """One kind of role. It keeps nothing: states are given to it, one per address."""

    @property
    def kind(self) -> str:
        """The first part of the addresses that it serves."""
        ...

    def initial(self, role_address: str) -> S:
        """The state before the first event."""
        ...

    def evolve(self, state: S, record: Record) -> S:
        """The state after the event. Raises IllegalEvent."""
        ...

    def decide(self, state: S, now: Time) -> list[OutgoingEvent]:
        """What is owed now, in the order in which it is to be said."""
        ...

    def deadline(self, state: S) -> Time | None:
        """When time alone will make `decide` owe something; None: never."""
        ...

    def instructions(self, state: S) -> Sequence[Instruction]:
        """What the outside world is asked for, in order."""
        ...

    def is_quiescent(self, state: S) -> bool:
        """Whether nothing but an event to this very address will ever change the state, or make it owe anything."""
        ...


AnyRole = Role[Any]
Emit = Callable[[str, OutgoingEvent], None]
"""(address, what) -> said on behalf of that address, as soon as possible; callable from any thread."""


class Shell(Protocol):
    """The part of a role that touches the world: it obeys, and says what happened."""

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        """Begins what it has not begun yet; returns at once. Called by the leader's host only, on its thread."""
        ...

    def retire(self, role_address: str) -> None:
        """The process does not lead this address any more: begins nothing more of it, and says nothing more of what it
        has begun, which may come to its end. Returns at once; on the host's thread. `perform` may follow, and begins
        afresh."""
        ...

    def close(self) -> None:
        """Stops what it began, in order."""
        ...


class Clock(Protocol):
    """Where hosts read the time."""

    def __call__(self) -> Time: ...


def derive_id(*parts: object) -> str:
    """16 bytes in hexadecimal, the same for the same parts: ids are derived, never drawn."""
    text = "\x1f".join(map(str, parts))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def with_headers(
    owed: Iterable[OutgoingEvent],
    *,
    cluster: str,
    sender: str,
    epoch: int,
    decided_at: int,
    now: Time,
    count: int,
    decided: bool = False,
) -> list[Event]:
    """Adds the headers, and cuts reasons that are too long. `count` is how many events the sender has said in this
    epoch: it keeps ids apart. `decided`: whether `decide` owed them, at `now`, from the state behind `decided_at`; else
    a shell tells of what happened."""
    speaker = _sender_id(cluster, sender, epoch)
    return [
        Event(
            Header(
                event_id=f"{speaker}-{decided_at}-{number}",
                time=now,
                sender=sender,
                sender_epoch=epoch,
                recipient=each.recipient,
                cause=each.cause,
                decided_at=decided_at,
                decided=decided,
            ),
            truncate_reasons(each.body),
        )
        for number, each in enumerate(owed, count)
    ]


@functools.lru_cache(1 << 12)
def _sender_id(cluster: str, sender: str, epoch: int) -> str:
    """Hashed once for all that a leader says: a hash an event would cost as much as writing the event."""
    return derive_id(cluster, sender, epoch)
