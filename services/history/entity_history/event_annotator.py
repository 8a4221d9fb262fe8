"""Tells a log event by event: what each says in words, whom it concerns, because of what it was said, and what began it
where it is a failure.

A Teller folds the log as every reader does, and so knows what was ignored. It keeps a few bytes of every event (its
cause, its time, whether it was a failure), and all of those that began something, and of failures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ....schemas.body import Body
from ....schemas.event import EVERYONE, Record
from ....schemas.everyone import SnapshotTaken, StateHash, TaskExecutorLost
from ....schemas.job_master import SlotAllocationFailed
from ....schemas.types import Header
from ...core.role import CLIENT, DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, REST_SERVER, instance_of, kind_of
from ...log import EventLog
from ...snapshots.store import SnapshotStore
from ..projection import HistoryProjection
from .entities import Entity, task
from .entity_resolver import EntityResolver
from .event_descriptions import find_template
from .event_formatting import FormattedEvent, key_fields, shorten_ids
from .failure_chains import FAILURE_EVENTS, FailureChains, Severity, severity

_NAMES = {DISPATCHER: "Dispatcher", RESOURCE_MANAGER: "ResourceManager", REST_SERVER: "REST server"}


_ILLEGAL = re.compile(r".* is not possible for (\S+) in state (.*?): (.*)", re.DOTALL)
"""What IllegalEvent says."""
_FENCED = re.compile(r"(\S+) speaks under epoch (\d+), which is not its leader's")
"""What Fold says."""
# Looked up once: for each event it would take as long as much of the rest.
_NONE, _FAILURE = Severity.NONE, Severity.FAILURE
_STATE_EVENTS = frozenset({SnapshotTaken, StateHash})
"""What is said of states as a whole."""
_LONG_ID = re.compile(r"\b[0-9a-f]{32}\b")


class AnnotatedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event, and what is known of it besides what it says."""

    entry: FormattedEvent
    entities: tuple[Entity, ...]
    severity: Severity = Severity.NONE
    root: int | None = None
    """Of a failure: the offset of the one that it began with, perhaps its own."""
    has_waited: bool = False
    """Whether it was said because time had passed since its cause."""

    @property
    def offset(self) -> int:
        """Where it stands in the log."""
        return self.entry.record.offset

    @property
    def time(self) -> int:
        """When it was said, in microseconds since the epoch."""
        return self.entry.record.header.time

    @property
    def cause(self) -> int | None:
        """The offset of what made its sender say it."""
        return self.entry.record.header.cause

    @property
    def body(self) -> Body:
        """What it says."""
        return self.entry.record.body


class RecentDecisions(msgspec.Struct, frozen=True, array_like=True):
    """What was decided last, for keeping."""

    marked: bool
    """Whether the log tells decisions from facts."""
    last: dict[str, tuple[int | None, int, int | None]]
    """Sender -> decided_at and time of its last turn, and the deadline that was due then."""


class EventAnnotator:
    """Names, in the sense of `phrases`. Not safe for use by several threads."""

    def __init__(self, fold: HistoryProjection | None = None, *, concerned: bool = True) -> None:
        """`fold`: one that has read the log already, from where this one goes on. `concerned`: whether it matters whom
        events concern; else nobody has a life."""
        self.fold = fold or HistoryProjection()
        self.entities = EntityResolver(self.fold)
        self._find_concerned = self.entities.resolve if concerned else self.entities.learn
        self.chains = FailureChains()
        self.failures: dict[int, AnnotatedEvent] = {}
        """By offset."""
        self.roots: dict[int, AnnotatedEvent] = {}
        """What has no cause in the log, by offset; not what is said of states as a whole."""
        self.ignored: dict[int, str] = {}
        """Why events were ignored, by offset."""
        self._turns: dict[str, tuple[int | None, int, int | None]] = {}
        """Sender -> decided_at and time of its last turn, and the deadline that was due then."""
        self._marked = False
        """Whether the log tells decisions from facts."""
        if fold is not None:
            self.entities.adopt()

    def begin(self, log: EventLog, store: SnapshotStore | None = None) -> int:
        """The offset from which the log is to be told, as Fold.begin, which raises the same."""
        start = self.fold.begin(log, store)
        self.entities.adopt()
        return start

    def annotate(self, record: Record) -> AnnotatedEvent:
        """The next event."""
        offset, header, body = record.offset, record.header, record.body
        kind, cause = type(body), header.cause
        before = self._before(record)
        waited = self._waited(header, before)
        struck = isinstance(body, TaskExecutorLost) and self.entities.holdings.has_tasks(body.resource_id)
        entry = self.fold.apply(record)
        concerned = self._find_concerned(entry, before)
        trouble = _NONE
        if kind in FAILURE_EVENTS and entry.ignored is None:
            trouble = severity(body, self.chains.severity(cause), struck)
            if waited and trouble is _FAILURE and kind is not SlotAllocationFailed:
                # What was waited for did not come. (That no slot is there has to do with what took them away.)
                trouble = Severity.FACT
        self.chains.add(offset, header.time, cause, trouble, waited)
        root = self.chains.root_of(offset) if trouble >= _FAILURE else None
        told = AnnotatedEvent(entry, concerned, trouble, root, waited)
        if root is not None:
            self.failures[offset] = told
        if cause is None and kind not in _STATE_EVENTS:
            self.roots[offset] = told
        if entry.ignored is not None:
            self.ignored[offset] = entry.ignored
        return told

    def recent_decisions(self, since: int) -> RecentDecisions:
        """The last turns of who has something to say yet, and of those who decided behind the offset `since`."""
        awake = self.fold.replica.is_active
        found = {
            sender: turn
            for sender, turn in self._turns.items()
            if awake(sender) or (turn[0] is not None and turn[0] >= since)
        }
        return RecentDecisions(self._marked, found)

    def resume_from(self, turns: RecentDecisions) -> None:
        """The last turns, as another knew them."""
        self._marked, self._turns = turns.marked, dict(turns.last)

    def text(self, told: AnnotatedEvent) -> str:
        """What it says, without who says it to whom."""
        body = told.body
        phrase = find_template(type(body))
        if phrase is None:
            return f"{told.entry.type.rpartition('.')[2]} {key_fields(body)}".rstrip()
        return phrase(body, self)

    def who(self, told: AnnotatedEvent, home: str | None = None) -> str:
        """The sender and, if it is another, the recipient; in the story of job `home` that need not be named."""
        header = told.entry.record.header
        sender = self.speaker(header.sender, home)
        if header.recipient == header.sender or header.recipient == EVERYONE:
            return sender
        return f"{sender} -> {self.speaker(header.recipient, home)}"

    def ignored_because(self, told: AnnotatedEvent) -> str | None:
        """Why no reader takes notice of it; None where all do."""
        why = told.entry.ignored
        if why is None:
            return None
        found, fenced = _ILLEGAL.fullmatch(why), _FENCED.fullmatch(why)
        if fenced is not None:
            why = f"said under epoch {fenced[2]}, and {self.speaker(fenced[1])} has another leader"
        if found is not None:
            why = f"{self.speaker(found[1])} can't take it ({found[2]}): {found[3]}"
        for each in _LONG_ID.findall(why):
            if each in self.entities.task_of:
                why = why.replace(f"Execution {each}", each).replace(each, self.task(each))
        return shorten_ids(why)

    @staticmethod
    def speaker(role_address: str, home: str | None = None) -> str:
        """What people call whoever speaks under an address."""
        kind, instance = kind_of(role_address), instance_of(role_address)
        if kind == JOB_MASTER:
            return "JobMaster" if instance == home else f"JobMaster {shorten_ids(instance)}"
        if kind == CLIENT:
            return f"client {shorten_ids(instance)}" if instance else "clients"
        return instance or _NAMES.get(kind, kind)

    def task(self, execution_attempt_id: str) -> str:
        found = self.entities.task_of.get(execution_attempt_id)
        return self.entities.name(found) if found is not None else f"task {shorten_ids(execution_attempt_id)}"

    def vertex(self, job_id: str, vertex_id: str, index: int) -> str:
        return self.entities.name(task(job_id, vertex_id, index))

    def _before(self, record: Record) -> Mapping[str, Any]:
        """The states that the event may change, as far as they matter here."""
        header, replica = record.header, self.fold.replica
        sender, recipient, states = header.sender, header.recipient, replica.states
        found = {sender: states.get(sender)}
        if recipient != EVERYONE:
            if recipient != sender:
                found[recipient] = states.get(recipient)
        elif type(record.body) not in _STATE_EVENTS:
            for each in replica.active_addresses:
                if each != sender and kind_of(each) == JOB_MASTER:
                    found[each] = states.get(each)
        return found

    def _waited(self, header: Header, before: Mapping[str, Any]) -> bool:
        """A deadline of the sender's was due in the turn in which it said this, and had not been when the cause was
        said."""
        if header.decided:
            self._marked = True
        state = before[header.sender]
        if state is None or header.cause is None or header.decided is not self._marked:
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
        said = self.chains.time(header.cause)
        return said is not None and said < deadline
