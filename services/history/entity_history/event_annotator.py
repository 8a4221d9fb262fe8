"""Annotates each event of a log: its text, the entities that it concerns, its cause and, for a failure, its root
cause.

An EventAnnotator folds the log as every reader does, so it knows which events were ignored. It keeps a few bytes for
every event (its cause, its time, whether it was a failure), and whole events only if they have no cause or are
failures.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from ....schemas.body import Body
from ....schemas.event import EVERYONE, Record
from ....schemas.everyone import SnapshotTaken, StateHash, TaskExecutorLost
from ....schemas.job_master import SlotAllocationFailed
from ....schemas.types import Header
from ...core.role import (
    CLIENT,
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    REST_SERVER,
    TASK_EXECUTOR,
    address,
    instance_of,
    kind_of,
)
from ...log import EventLog
from ...snapshots.store import SnapshotStore
from ...task_executor.state import TaskExecutorState
from ..event_formatting import LONG_ID, FormattedEvent, shorten_ids
from ..projection import HistoryProjection
from .entities import Entity
from .entity_resolver import EntityResolver
from .event_text import event_text
from .failure_chains import FAILURE_EVENTS, FailureChains, Severity, severity

_NAMES = {DISPATCHER: "Dispatcher", RESOURCE_MANAGER: "ResourceManager", REST_SERVER: "REST server"}
# Looked up once: for each event it would take as long as much of the rest.
_NONE, _FAILURE = Severity.NONE, Severity.FAILURE
STATE_EVENTS = frozenset({SnapshotTaken, StateHash})
"""Events about the states as a whole."""


class LineMark(StrEnum):
    """The mark of an event; the value is its form in plain text."""

    NONE = ""
    ROOT = "!!"
    """The root cause of a failure."""
    FAILURE = "!"
    IGNORED = "x"
    """Readers ignore it."""


class AnnotatedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event with its annotations."""

    entry: FormattedEvent
    entities: tuple[Entity, ...]
    severity: Severity = Severity.NONE
    root: int | None = None
    """The offset of a failure's root cause, which may be the event itself."""
    has_waited: bool = False
    """Whether the sender sent it because a timeout after its cause had passed."""

    @property
    def offset(self) -> int:
        """The offset in the log."""
        return self.entry.record.offset

    @property
    def time(self) -> int:
        """The time of the event, in microseconds since the epoch."""
        return self.entry.record.header.time

    @property
    def cause(self) -> int | None:
        """The offset of the event that caused it."""
        return self.entry.record.header.cause

    @property
    def mark(self) -> LineMark:
        """The mark of the event."""
        if self.entry.ignored is not None:
            return LineMark.IGNORED
        if self.severity < _FAILURE:
            return LineMark.NONE
        return LineMark.ROOT if self.root == self.offset else LineMark.FAILURE

    @property
    def earlier_root(self) -> int | None:
        """The offset of a failure's root cause, if that is neither the event nor its cause."""
        return None if self.root in (self.offset, self.cause) else self.root

    @property
    def body(self) -> Body:
        """The body of the event."""
        return self.entry.record.body


Turns = dict[str, tuple[int | None, int, int | None]]
"""Sender -> decided_at and time of its last turn, and the deadline that was due then."""


class EventAnnotator:
    """Annotates events. Not thread-safe."""

    def __init__(self, fold: HistoryProjection | None = None, *, concerned: bool = True) -> None:
        """`fold`: a projection that has already read the log up to here. `concerned`: whether to find the entities
        of events."""
        self.fold = fold or HistoryProjection()
        self.entities = EntityResolver(self.fold)
        self._finds_entities = concerned
        self.chains = FailureChains()
        self.failures: dict[int, AnnotatedEvent] = {}
        """Failures by offset."""
        self.roots: dict[int, AnnotatedEvent] = {}
        """Events without a cause, by offset; without events about the states as a whole."""
        self.ignored: dict[int, str] = {}
        """Why events were ignored, by offset."""
        self._turns: Turns = {}
        if fold is not None:
            self.entities.adopt()

    def begin(self, log: EventLog, store: SnapshotStore | None = None) -> int:
        """Returns the offset from which to read the log, as HistoryProjection.begin, which raises the same."""
        start = self.fold.begin(log, store)
        self.entities.adopt()
        return start

    def annotate(self, record: Record) -> AnnotatedEvent:
        """Annotates the next event."""
        offset, header, body = record.offset, record.header, record.body
        kind, cause = type(body), header.cause
        before = self._before(record)
        waited = self._waited(header, before)
        held_tasks = isinstance(body, TaskExecutorLost) and _has_tasks(
            before.get(address(TASK_EXECUTOR, body.resource_id))
        )
        entry = self.fold.apply(record)
        concerned = self.entities.resolve(entry, before) if self._finds_entities else ()
        trouble = _NONE
        if kind in FAILURE_EVENTS and entry.ignored is None:
            trouble = severity(body, self.chains.severity(cause), held_tasks)
            if waited and trouble is _FAILURE and kind is not SlotAllocationFailed:
                # A timeout is a fact. (A slot is missing because of what took it away.)
                trouble = Severity.FACT
        self.chains.add(offset, header.time, cause, trouble, waited)
        root = self.chains.root_of(offset) if trouble >= _FAILURE else None
        event = AnnotatedEvent(entry, concerned, trouble, root, waited)
        if root is not None:
            self.failures[offset] = event
        if cause is None and kind not in STATE_EVENTS:
            self.roots[offset] = event
        if entry.ignored is not None:
            self.ignored[offset] = entry.ignored
        return event

    def recent_turns(self, since: int) -> Turns:
        """Returns the last turns of senders that are active, and of those that decided after the offset `since`."""
        is_active = self.fold.replica.is_active
        return {
            sender: turn
            for sender, turn in self._turns.items()
            if is_active(sender) or (turn[0] is not None and turn[0] >= since)
        }

    def resume_from(self, turns: Turns) -> None:
        """Takes over the last turns from another annotator."""
        self._turns = dict(turns)

    def text(self, event: AnnotatedEvent) -> str:
        """Returns the text of the event, without sender and recipient."""
        return event_text(event.entry, self.fold.task_names)

    def who(self, event: AnnotatedEvent, home: str | None = None) -> str:
        """Returns the sender and, if it differs, the recipient. In the history of job `home` its JobMaster is not
        named."""
        header = event.entry.record.header
        sender = self.speaker(header.sender, home)
        if header.rest_origin is not None:
            sender = f"{header.rest_origin.principal} by REST server {header.rest_origin.server}"
        if header.origin is not None and header.origin.tenant:
            sender = f"{sender} of tenant {header.origin.tenant}"
        if header.recipient == header.sender or header.recipient == EVERYONE:
            return sender
        return f"{sender} -> {self.speaker(header.recipient, home)}"

    def ignored_because(self, event: AnnotatedEvent) -> str | None:
        """Returns why all readers ignore the event; None if they do not."""
        why = event.entry.ignored
        if why is None:
            return None
        names = self.fold.task_names
        return shorten_ids(LONG_ID.sub(lambda found: names.get(found.group(), found.group()), why))

    @staticmethod
    def speaker(role_address: str, home: str | None = None) -> str:
        """Returns the name of a role for people, from its address."""
        kind, instance = kind_of(role_address), instance_of(role_address)
        if kind == JOB_MASTER:
            return "JobMaster" if instance == home else f"JobMaster {shorten_ids(instance)}"
        if kind == CLIENT:
            return f"client {shorten_ids(instance)}" if instance else "clients"
        return instance or _NAMES.get(kind, kind)

    def _before(self, record: Record) -> Mapping[str, Any]:
        """Returns the states that the event may change, as far as they are needed here."""
        header, replica = record.header, self.fold.replica
        sender, recipient, states = header.sender, header.recipient, replica.states
        found = {sender: states.get(sender)}
        if recipient != EVERYONE:
            found[recipient] = states.get(recipient)
            return found
        body = record.body
        if isinstance(body, TaskExecutorLost):
            own = address(TASK_EXECUTOR, body.resource_id)
            found[own] = states.get(own)
        if self._finds_entities and type(body) not in STATE_EVENTS:
            for active in replica.active_addresses:
                if kind_of(active) == JOB_MASTER:
                    found[active] = states.get(active)
        return found

    def _waited(self, header: Header, before: Mapping[str, Any]) -> bool:
        """Returns whether the sender waited for a deadline: it was due at this decision, and was not when the cause
        was sent."""
        state = before[header.sender]
        if state is None or header.cause is None or not header.decided:
            return False
        sender, decided_at, now = header.sender, header.decided_at, header.time
        turn = self._turns.get(sender)
        if turn is not None and turn[1] == now and turn[0] == decided_at:
            deadline = turn[2]
        else:
            deadline = self.fold.replica.role(sender).deadline(state)
            if deadline is not None and deadline > now:
                deadline = None
            self._turns[sender] = decided_at, now, deadline
        if deadline is None:
            return False
        sent = self.chains.time(header.cause)
        return sent is not None and sent < deadline


def _has_tasks(state: object) -> bool:
    return isinstance(state, TaskExecutorState) and bool(state.tasks)
