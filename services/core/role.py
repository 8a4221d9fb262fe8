"""The contract of every role (the Decider pattern: evolve and decide).

1. `evolve` defines what the log means. It folds the events that the role receives and the events that it sends. It is
   total and deterministic: no clock, no randomness, no IO. An event that is not a legal step raises `IllegalEvent` and
   changes nothing; all readers ignore that event.
2. `decide` returns the events that the state requires and that are not in the log yet. Once they are appended and
   folded, `decide` returns nothing more. It costs O(number of returned events).
3. `instructions` are the actions that the state requires of the outside world. The role's shell performs each once and
   reports the result as an event. An instruction stays in the state until that event is folded, so that the shell of
   the next leader finds it again.
4. Nothing depends on the iteration order of a map. `decide` returns events of one kind in the order of the events that
   caused them. What it owes is in the outbox of the state (services/core/outbox.py) or in an index of its own.
5. A state may be quiescent (`is_quiescent`): it requires no event, now or later, issues no instruction, and no event to
   EVERYONE and no leader of another address changes it. Replicas and hosts skip quiescent states until they receive an
   event, so the cost of an event to EVERYONE depends on active addresses only. A quiescent state should be small.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ...schemas.body import Body
from ...schemas.event import Event, Record
from ...schemas.types import Header
from .reason_limits import truncate_reasons

Time = int
"""Microseconds since the epoch. Always an argument: a role never reads a clock."""

S = TypeVar("S")

DISPATCHER = "dispatcher"
RESOURCE_MANAGER = "resource_manager"
JOB_MASTER = "job_master"
TASK_EXECUTOR = "task_executor"
REST_SERVER = "rest_server"
CLIENT = "client"
STANDBY = "standby"
"""standby/<session>: a master that does not lead the Dispatcher. It sends the hashes of its states from there."""


def address(kind: str, instance: str) -> str:
    """Returns the address of one instance: job_master/<job id>, task_executor/<resource id>, client/<name>."""
    return f"{kind}/{instance}"


@functools.lru_cache(1 << 16)
def kind_of(role_address: str) -> str:
    """Returns the kind of role of an address."""
    return role_address.partition("/")[0]


def instance_of(role_address: str) -> str:
    """Returns the part after the kind: a job id, a resource id, a client's name; empty for a role with one instance."""
    return role_address.partition("/")[2]


class IllegalEvent(Exception):
    """The event is not a legal step from the current state of the role. The state is unchanged."""

    def __init__(self, record: Record, state: str | None, why: str) -> None:
        self.record = record
        in_state = f" in state {state}" if state is not None else ""
        self.reason = f"illegal for {record.header.recipient}{in_state}: {why}"
        """The message without the event."""
        super().__init__(
            f"{record.body.AVRO_NAME} from {record.header.sender} at offset {record.offset} is {self.reason}"
        )


class IllegalTransition(Exception):
    """A state machine has no such transition; the message says which. `Steps` turns it into an IllegalEvent."""


Step = Callable[[S, Record, Any], S]
"""(state, record, body of the record) -> the next state. Raises IllegalEvent or IllegalTransition."""


class Steps(Generic[S]):
    """The transition table of a role: one step for each event that the role may receive or send."""

    def __init__(self, table: Mapping[type[Body], Step[S]]) -> None:
        self._table = dict(table)

    def apply(self, state: S, record: Record) -> S:
        """Returns the next state. Raises IllegalEvent, also for an event that is not in the table."""
        step = self._table.get(type(record.body))
        if step is None:
            raise IllegalEvent(record, None, "the role does not handle this event")
        try:
            return step(state, record, record.body)
        except IllegalTransition as error:
            raise IllegalEvent(record, None, str(error)) from error

    @property
    def handlers(self) -> Mapping[type[Body], Step[S]]:
        """Event -> the step that handles it."""
        return self._table


def unchanged(state: S, _record: Record, _body: Body) -> S:
    """The step of an event that a role may receive but that does not change its state."""
    return state


class OutgoingEvent(msgspec.Struct, frozen=True):
    """An event that a role has to send, without the header that `with_headers` adds. `cause` is the offset of the event
    that requires it. `tenant`: for an event to clients, the tenant whose clients it is for; empty: none."""

    recipient: str
    body: Body
    cause: int | None
    tenant: str = ""


class Instruction(msgspec.Struct, frozen=True, tag=True):
    """An action that a state requires of the outside world. The same action always has the same `key`."""

    @property
    def key(self) -> str:
        """Identifies the action among all that the role ever requires."""
        raise NotImplementedError


class Role(Protocol[S]):
    """One kind of role. It is stateless: the caller passes in the state of an address."""

    @property
    def kind(self) -> str:
        """The first part of the addresses that it serves."""
        ...

    def initial(self, role_address: str) -> S:
        """Returns the state before the first event."""
        ...

    def evolve(self, state: S, record: Record) -> S:
        """Returns the state after the event. Raises IllegalEvent."""
        ...

    def decide(self, state: S, now: Time) -> list[OutgoingEvent]:
        """Returns the events to append now, in this order."""
        ...

    def deadline(self, state: S) -> Time | None:
        """Returns the time at which `decide` may return events even if no event arrives; None: never."""
        ...

    def instructions(self, state: S) -> Sequence[Instruction]:
        """Returns the actions that the state requires, in order."""
        ...

    def is_quiescent(self, state: S) -> bool:
        """Returns whether only an event to this address can change the state or make it require anything."""
        ...

    def is_over(self, state: S) -> bool:
        """Returns whether a quiescent state is not needed any more: replicas drop it."""
        ...


AnyRole = Role[Any]
Emit = Callable[[str, OutgoingEvent], None]
"""(address, event) -> appends the event as an event of that address as soon as possible. Thread-safe."""


class Shell(Protocol):
    """The part of a role that does IO: it performs instructions and reports the results as events."""

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        """Starts the instructions that it has not started yet; returns at once. Only the leader's host calls it, on its
        thread."""
        ...

    def retire(self, role_address: str) -> None:
        """The process no longer leads this address: starts nothing more for it and emits no more events. Work that
        already runs may finish. Returns at once; called on the host's thread. A later `perform` starts from scratch."""
        ...

    def close(self) -> None:
        """Stops the running work, in order."""
        ...


class Clock(Protocol):
    """Returns the current time for a host."""

    def __call__(self) -> Time: ...


def derive_id(*parts: object) -> str:
    """Returns 16 bytes in hexadecimal, the same for the same parts. Ids are derived, never random."""
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
    numbers: Iterator[int],
    decided: bool = False,
) -> list[Event]:
    """Adds headers and truncates long reasons. Each event takes the next of `numbers`, which makes its id unique.
    `decided`: True for events that `decide` returned at `now` for the state after `decided_at`; False for events that a
    shell reports."""
    speaker = _sender_id(cluster, sender, epoch)
    return [
        Event(
            Header(
                event_id=f"{speaker}-{decided_at}-{number}",
                time=now,
                sender=sender,
                sender_epoch=epoch,
                recipient=event.recipient,
                cause=event.cause,
                decided_at=decided_at,
                decided=decided,
                tenant=event.tenant,
            ),
            truncate_reasons(event.body),
        )
        for event, number in zip(owed, numbers, strict=False)
    ]


@functools.lru_cache(1 << 12)
def _sender_id(cluster: str, sender: str, epoch: int) -> str:
    """Cached for all events of a leader: a hash for each event would cost as much as encoding the event."""
    return derive_id(cluster, sender, epoch)
