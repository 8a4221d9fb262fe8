"""A story: what became of one entity, as lines between a head and an end.

Lines come in the order of the log. What is alike is told together (`grouping`), what is a detail to the entity is
counted (`weights`), unless everything is wanted. What lies outside of the wanted stretch of the log counts for head and
end, and is not told.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum
from typing import Any

import msgspec

from ....schemas import job_master
from ....schemas.everyone import TaskExecutorLost
from ....schemas.types import ExecutionState, JobStatus
from .entities import Entity, EntityKind
from .entity_status import EntityStatus, initial_status, update_status
from .event_annotator import AnnotatedEvent, EventAnnotator
from .event_groups import EventGroup, group_key
from .failure_chains import Severity
from .relevance import Relevance, is_grouped_in_phases, relevance

# Looked up once: to look a member of an enum up takes longer than to weigh an event.
_DETAIL, _STEP = Relevance.DETAIL, Relevance.STEP
_HIGHLIGHTED_EVENTS = (
    TaskExecutorLost,
    job_master.HeartbeatTimedOut,
    job_master.TasksContradicted,
    job_master.UpdateTaskExecutionState,
)


class LineMark(StrEnum):
    """What stands out; the value is what plain text has for it."""

    NONE = ""
    ROOT = "!!"
    """A failure that began here."""
    FAILURE = "!"
    IGNORED = "x"
    """Readers take no notice of it."""


class HistoryLine(msgspec.Struct, frozen=True):
    """One event, or several that are alike."""

    offset: int
    until: int
    """The offset of the last."""
    count: int
    time: int
    """Of the first, in microseconds since the epoch."""
    time_of_last: int
    who: str
    text: str
    cause: int | None
    """Of the first."""
    waited: int | None = None
    """How long the clock made it wait since its cause, in microseconds."""
    mark: LineMark = LineMark.NONE
    root: int | None = None
    """The failure that this failure began with, where it is another."""
    ignored: str | None = None
    type: str = ""


class EventReference(msgspec.Struct, frozen=True):
    """An event that head or end name."""

    offset: int
    time: int
    text: str
    """Who says what to whom."""


class EntityHistory(msgspec.Struct, frozen=True):
    """All that is told of an entity; times in microseconds since the epoch."""

    kind: str
    id: str
    names: tuple[str, ...]
    outcome: str
    over: bool
    failed: bool
    began: EventReference | None = None
    because: EventReference | None = None
    """What its beginning goes back to, where that is not its own."""
    ended: EventReference | None = None
    """What made the outcome final; None while it is not."""
    ended_because: EventReference | None = None
    """What its end goes back to, where its beginning does not: such as a client's request."""
    last: EventReference | None = None
    root_cause: EventReference | None = None
    """Of an outcome that is a failure; or what the last failure on the way began with."""
    recovered: bool = False
    """Whether tasks ran again after that failure, or the entity came to a good end; false while it starts again."""
    events: int = 0
    details: int = 0
    """How many events are left out because they are details."""
    outside: int = 0
    """How many lie outside of the wanted stretch."""
    lines: tuple[HistoryLine, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """Fit for JSON."""
        found = msgspec.to_builtins(self)
        assert isinstance(found, dict)
        return found


class EntityHistoryBuilder:
    """Collects the story of an entity."""

    def __init__(
        self,
        entity: Entity,
        teller: EventAnnotator,
        *,
        everything: bool = False,
        start: int = 0,
    ) -> None:
        """`everything`: each event on a line of its own. `start`: the first offset that is told."""
        self.entity = entity
        self._teller = teller
        self._everything = everything
        self._start = start
        self._lines: list[HistoryLine] = []
        self._groups: dict[Hashable, EventGroup] = {}
        self._outcome = initial_status(entity)
        self._began: AnnotatedEvent | None = None
        self._last: AnnotatedEvent | None = None
        self._ended: AnnotatedEvent | None = None
        self._failure: int | None = None
        """The last failure, or the one that the outcome is."""
        self._runs_again = False
        """Whether a task of a job came to RUNNING after that failure."""
        self._roots: set[int] = set()
        """Failures that befell others, and that are told of here."""
        self._events = self._details = self._outside = 0

    def add(self, told: AnnotatedEvent) -> None:
        """The next event that concerns the entity."""
        self._events += 1
        self._note(told)
        if told.offset < self._start:
            self._outside += 1
            return
        self._add_root_cause(told)
        if self._everything:
            self._lines.append(line_of(self._group(told)))
            return
        found = relevance(self.entity.kind, told)
        if found is _DETAIL:
            self._details += 1
        elif found is _STEP:
            self._step(told)
        else:
            self._flush()
            self._lines.append(line_of(self._group(told)))

    def next(self, told: AnnotatedEvent) -> list[HistoryLine]:
        """As `add`; returns the lines that the event has at once, without waiting for others that are alike."""
        if relevance(self.entity.kind, told) is Relevance.DETAIL and not self._everything:
            self.add(told)
            return []
        self._flush()
        count = len(self._lines)
        self.add(told)
        self._flush()
        return self._lines[count:]

    def build(self) -> EntityHistory:
        """As far as the log has been read."""
        found = self._lines + [line_of(each) for each in self._groups.values()]
        found.sort(key=lambda line: line.offset)
        life = self._teller.entities.lives.get(self.entity)
        because, ended_because = self._because(self._began), self._because(self._ended)
        return EntityHistory(
            kind=self.entity.kind.value,
            id=self.entity.id,
            names=life.names if life is not None else (),
            outcome=self._outcome.text,
            over=self._outcome.over,
            failed=self._outcome.failed,
            began=self._moment(self._began),
            because=because,
            ended=self._moment(self._ended),
            ended_because=None if ended_because == because else ended_because,
            last=self._moment(self._last),
            root_cause=self._root(),
            recovered=self._failure is not None and self._has_recovered(),
            events=self._events,
            details=self._details,
            outside=self._outside,
            lines=tuple(found),
        )

    def _add_root_cause(self, told: AnnotatedEvent) -> None:
        """What a failure began with is part of the story, wherever it befell."""
        if told.root is None or told.root == told.offset or told.root in self._roots:
            return
        root = self._teller.failures[told.root]
        if self.entity not in root.entities:
            self._roots.add(root.offset)
            self._flush()
            self._lines.append(line_of(self._group(root)))

    def _step(self, told: AnnotatedEvent) -> None:
        key = group_key(told)
        group = self._groups.get(key)
        if group is not None:
            if group.accepts(told):
                group.add(told)
                return
            self._flush()
        if told.severity >= Severity.FAILURE or not is_grouped_in_phases(self.entity.kind):
            self._flush()
        self._groups[key] = self._group(told)

    def _group(self, told: AnnotatedEvent) -> EventGroup:
        return EventGroup(told, self._teller, self.entity.job)

    def _flush(self) -> None:
        self._lines += [line_of(each) for each in self._groups.values()]
        self._groups.clear()

    def _note(self, told: AnnotatedEvent) -> None:
        self._began = self._began or told
        self._last = told
        if told.entry.ignored is not None:
            return
        before: EntityStatus = self._outcome
        self._outcome = update_status(self.entity, before, told, self._teller)
        if self._outcome is not before:
            if not self._outcome.over:
                self._ended = None
            elif not before.over:
                self._ended = told
            if self._outcome.failed and told.root is not None:
                self._failure = told.root
        elif told.root is not None and not self._outcome.failed and self._is_highlighted(told):
            self._failure = told.root
            self._runs_again = False
        if isinstance(told.body, job_master.UpdateTaskExecutionState):
            self._runs_again |= told.body.execution_state is ExecutionState.RUNNING

    def _has_recovered(self) -> bool:
        if self._outcome.failed:
            return False
        return (
            self.entity.kind is not EntityKind.JOB
            or self._runs_again
            or self._outcome.text == JobStatus.FINISHED.value
        )

    def _is_highlighted(self, told: AnnotatedEvent) -> bool:
        """Whether it is a failure that a job has to get over."""
        return self.entity.kind is EntityKind.JOB and isinstance(told.body, _HIGHLIGHTED_EVENTS)

    def _root(self) -> EventReference | None:
        return None if self._failure is None else self._moment(self._teller.failures[self._failure])

    def _because(self, told: AnnotatedEvent | None) -> EventReference | None:
        """What it goes back to, where the log has that and it is another event."""
        if told is None:
            return None
        root = self._teller.chains.causes_upward(told.offset)[-1]
        if root == told.offset or (self._began is not None and root == self._began.offset):
            return None
        return self._moment(self._teller.roots.get(root))

    def _moment(self, told: AnnotatedEvent | None) -> EventReference | None:
        if told is None:
            return None
        return EventReference(told.offset, told.time, f"{self._teller.who(told)}: {self._teller.text(told)}")


def line_of(group: EventGroup) -> HistoryLine:
    """Alone or with its like."""
    first, last = group.first, group.last
    header = first.entry.record.header
    waited = group.wait_us if first.has_waited else None
    return HistoryLine(
        offset=first.offset,
        until=last.offset,
        count=group.count,
        time=header.time,
        time_of_last=last.time,
        who=group.who(),
        text=group.text(),
        cause=group.cause,
        waited=waited,
        mark=_mark(first),
        root=first.root if first.root not in (None, first.offset, first.cause) else None,
        ignored=group.ignored(),
        type=first.entry.type,
    )


def _mark(told: AnnotatedEvent) -> LineMark:
    if told.entry.ignored is not None:
        return LineMark.IGNORED
    if told.severity < Severity.FAILURE:
        return LineMark.NONE
    return LineMark.ROOT if told.root == told.offset else LineMark.FAILURE
