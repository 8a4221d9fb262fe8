"""The history of one entity, as lines with a head and an end.

Lines are in the order of the log. Similar events share a line (`event_groups`), so the history of a job with a thousand
tasks has tens of lines. `relevance` decides whether an event stands alone, shares a line or is only counted, unless all
are requested. Events outside of the requested range count for head and end only.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum

import msgspec

from ....schemas import everyone, job_master, task_executor
from ....schemas.body import Body
from ....schemas.catalog import EVENTS
from ....schemas.types import ExecutionState, JobStatus
from .entities import Entity, EntityKind
from .entity_status import EntityStatus, initial_status, update_status
from .event_annotator import STATE_EVENTS, AnnotatedEvent, EventAnnotator, LineMark
from .event_groups import EventGroup, group_key
from .failure_chains import Severity, event_types


class Relevance(IntEnum):
    """How relevant an event is for an entity."""

    DETAIL = 0
    STEP = 1
    """Shares a line with similar events up to the next turning point."""
    TURN = 2


_TURNS = event_types("""
job_master.CancelJob job_master.ChannelsFailed job_master.CheckpointRestored job_master.HeartbeatTimedOut
job_master.RescaleStarted job_master.SlotsShared job_master.SlowTaskDetected job_master.JobConfigurationChanged
job_master.JobMasterFailed job_master.MoveSlot job_master.ResetOffsets job_master.RestartTasks job_master.RestoreFailed
job_master.ResumeJob
job_master.StartJob job_master.SuspendJob resource_manager.QuarantineChanged resource_manager.TaskFailuresExceeded
resource_manager.ApplicationMasterRegistered resource_manager.ApplicationMasterUnregistered
resource_manager.ContainerCompleted resource_manager.NodeStateChanged resource_manager.PreemptionAnnounced
resource_manager.RegisterTaskExecutor resource_manager.StartWorker resource_manager.StopWorker
resource_manager.WorkerLost resource_manager.WorkerStarted
""") | {
    kind
    for name, kind in EVENTS.items()
    if name.split(".")[1] in ("client", "dispatcher", "everyone") and kind not in STATE_EVENTS
}
_DETAILS = event_types("""
job_master.AcknowledgeCheckpoint job_master.ChannelsCreated job_master.ChannelsDeleted job_master.CheckpointDiscarded
job_master.CheckpointTriggered job_master.CheckpointsRemoved job_master.DisconnectTaskManager
job_master.JobManagerRegistrationSuccess job_master.RegisterTaskManager job_master.TaskAcknowledged
resource_manager.DisconnectJobManager resource_manager.NotifySlotAvailable resource_manager.RegisterJobManager
resource_manager.SlotRequestAccepted task_executor.AbortCheckpoint task_executor.ConfirmCheckpoint
task_executor.DisconnectJobManager task_executor.JobManagerRegistrationSuccess task_executor.SlotsAccepted
task_executor.TriggerCheckpoint
""")
"""Details of jobs and TaskExecutors, which have many other events to show."""
_TASK_DETAILS = frozenset({job_master.TaskAcknowledged, task_executor.TriggerCheckpoint})
# Looked up once: to look a member of an enum up takes longer than to weigh an event.
_DETAIL, _STEP, _TURN = Relevance.DETAIL, Relevance.STEP, Relevance.TURN
_FAILURE = Severity.FAILURE
_WITH_DETAILS = frozenset({EntityKind.JOB, EntityKind.TASK_EXECUTOR})
_IN_PHASES = frozenset({EntityKind.JOB, EntityKind.TASK_EXECUTOR, EntityKind.ROLE, EntityKind.CLIENT})
"""Kinds whose events are grouped although others lie between them, up to the next turning point."""
_MINOR_STATES = frozenset({ExecutionState.INITIALIZING, ExecutionState.CANCELING})
_HIGHLIGHTED_EVENTS = (
    everyone.TaskExecutorLost,
    job_master.HeartbeatTimedOut,
    job_master.TasksContradicted,
    job_master.UpdateTaskExecutionState,
)


def relevance(kind: EntityKind, event: AnnotatedEvent) -> Relevance:
    """Returns the relevance of an event for an entity of a kind. Failures and ignored events are never details."""
    body = event.body
    of: type[Body] = type(body)
    if of in _TURNS:
        return _TURN
    if event.severity >= _FAILURE or event.entry.ignored is not None:
        return _STEP
    if kind in _WITH_DETAILS:
        is_minor = (
            isinstance(body, job_master.UpdateTaskExecutionState) and body.execution_state in _MINOR_STATES
        )
        return _DETAIL if is_minor or of in _DETAILS else _STEP
    return _DETAIL if kind is EntityKind.TASK and of in _TASK_DETAILS else _STEP


_MAX_ENTITIES = 8


class HistoryLine(msgspec.Struct, frozen=True):
    """One event, or several similar ones."""

    offset: int
    until: int
    """The offset of the last event."""
    count: int
    time: int
    """The time of the first event, in microseconds since the epoch."""
    time_of_last: int
    who: str
    text: str
    cause: int | None
    """The cause of the first event."""
    waited: int | None = None
    """The time that the sender waited after the cause, in microseconds."""
    mark: LineMark = LineMark.NONE
    root: int | None = None
    """The root cause of a failure, if that is neither the event nor its cause."""
    ignored: str | None = None
    type: str = ""
    entities: tuple[str, ...] = ()
    """The entities that the first event concerns, each as KIND:ID; the first few, and empty where they are not
    known."""


class EventReference(msgspec.Struct, frozen=True):
    """An event that the head or the end refers to."""

    offset: int
    time: int
    text: str
    """Sender, recipient and text."""


class EntityHistory(msgspec.Struct, frozen=True):
    """The history of an entity. Times are in microseconds since the epoch."""

    kind: str
    id: str
    names: tuple[str, ...]
    outcome: str
    over: bool
    failed: bool
    began: EventReference | None = None
    because: EventReference | None = None
    """The root cause of its beginning, if that is another event."""
    ended: EventReference | None = None
    """The event that made the outcome final."""
    ended_because: EventReference | None = None
    """The root cause of its end, if that is another event, such as a request of a client."""
    last: EventReference | None = None
    root_cause: EventReference | None = None
    """The root cause of a failed outcome, or of the last failure before."""
    recovered: bool = False
    """Whether tasks ran again after that failure, or the entity ended well; false while it restarts."""
    events: int = 0
    details: int = 0
    """The number of events that are left out as details."""
    outside: int = 0
    """The number of events outside of the requested range."""
    lines: tuple[HistoryLine, ...] = ()


class EntityHistoryBuilder:
    """Builds the history of an entity."""

    def __init__(
        self,
        entity: Entity,
        annotator: EventAnnotator,
        *,
        everything: bool = False,
        start: int = 0,
    ) -> None:
        """`everything`: each event gets its own line. `start`: the first offset with a line."""
        self.entity = entity
        self._is_job = entity.kind is EntityKind.JOB
        self._annotator = annotator
        self._everything = everything
        self._start = start
        self._lines: list[HistoryLine] = []
        self._groups: dict[Hashable, EventGroup] = {}
        self._outcome = initial_status(entity)
        self._began: AnnotatedEvent | None = None
        self._last: AnnotatedEvent | None = None
        self._ended: AnnotatedEvent | None = None
        self._failure: int | None = None
        """The last failure, or the failure that is the outcome."""
        self._runs_again = False
        """Whether a task of a job came to RUNNING after that failure."""
        self._roots: set[int] = set()
        """Root causes of other entities that have a line here."""
        self._events = self._details = self._outside = 0

    def add(self, event: AnnotatedEvent) -> None:
        """Adds the next event that concerns the entity."""
        self._events += 1
        self._note(event)
        if event.offset < self._start:
            self._outside += 1
            return
        self._add_root_cause(event)
        if self._everything:
            self._lines.append(line_of(self._group(event), self._annotator))
            return
        found = relevance(self.entity.kind, event)
        if found is _DETAIL:
            self._details += 1
        elif found is _STEP:
            self._step(event)
        else:
            self._flush()
            self._lines.append(line_of(self._group(event), self._annotator))

    def next(self, event: AnnotatedEvent) -> list[HistoryLine]:
        """Like `add`; returns the lines of the event at once, without waiting for similar events."""
        if relevance(self.entity.kind, event) is Relevance.DETAIL and not self._everything:
            self.add(event)
            return []
        self._flush()
        count = len(self._lines)
        self.add(event)
        self._flush()
        return self._lines[count:]

    def build(self) -> EntityHistory:
        """Returns the history as far as the log has been read."""
        open_lines = [line_of(group, self._annotator) for group in self._groups.values()]
        lines = sorted([*self._lines, *open_lines], key=lambda line: line.offset)
        life = self._annotator.entities.lives.get(self.entity)
        because, ended_because = self._because(self._began), self._because(self._ended)
        return EntityHistory(
            kind=self.entity.kind.value,
            id=self.entity.id,
            names=life.names if life is not None else (),
            outcome=self._outcome.text,
            over=self._outcome.over,
            failed=self._outcome.failed,
            began=self._reference(self._began),
            because=because,
            ended=self._reference(self._ended),
            ended_because=None if ended_because == because else ended_because,
            last=self._reference(self._last),
            root_cause=self._reference(
                None if self._failure is None else self._annotator.failures[self._failure]
            ),
            recovered=self._has_recovered(),
            events=self._events,
            details=self._details,
            outside=self._outside,
            lines=tuple(lines),
        )

    def _add_root_cause(self, event: AnnotatedEvent) -> None:
        """Adds the root cause of a failure, whatever entity it concerns."""
        if event.root is None or event.root == event.offset or event.root in self._roots:
            return
        root = self._annotator.failures[event.root]
        if self.entity not in root.entities:
            self._roots.add(root.offset)
            self._flush()
            self._lines.append(line_of(self._group(root), self._annotator))

    def _step(self, event: AnnotatedEvent) -> None:
        key = group_key(event)
        group = self._groups.get(key)
        if group is not None:
            if group.accepts(event):
                group.add(event)
                return
            self._flush()
        if event.severity >= Severity.FAILURE or self.entity.kind not in _IN_PHASES:
            self._flush()
        self._groups[key] = self._group(event)

    def _group(self, event: AnnotatedEvent) -> EventGroup:
        return EventGroup(event, self._annotator, self.entity.job)

    def _flush(self) -> None:
        self._lines += [line_of(group, self._annotator) for group in self._groups.values()]
        self._groups.clear()

    def _note(self, event: AnnotatedEvent) -> None:
        self._began = self._began or event
        self._last = event
        if event.entry.ignored is not None:
            return
        before: EntityStatus = self._outcome
        self._outcome = update_status(self.entity, before, event)
        if self._outcome is not before:
            if not self._outcome.over:
                self._ended = None
            elif not before.over:
                self._ended = event
            if self._outcome.failed and event.root is not None:
                self._failure = event.root
        elif (
            event.root is not None
            and not self._outcome.failed
            and self._is_job
            and isinstance(event.body, _HIGHLIGHTED_EVENTS)
        ):
            # The job has to recover from it.
            self._failure = event.root
            self._runs_again = False
        if isinstance(event.body, job_master.UpdateTaskExecutionState):
            self._runs_again |= event.body.execution_state is ExecutionState.RUNNING

    def _has_recovered(self) -> bool:
        if self._failure is None or self._outcome.failed:
            return False
        return not self._is_job or self._runs_again or self._outcome.text == JobStatus.FINISHED.value

    def _because(self, event: AnnotatedEvent | None) -> EventReference | None:
        """Returns the first event of its chain of causes, if the log has it and it is another event."""
        if event is None:
            return None
        root = self._annotator.chains.causes_upward(event.offset)[-1]
        if root == event.offset or (self._began is not None and root == self._began.offset):
            return None
        return self._reference(self._annotator.roots.get(root))

    def _reference(self, event: AnnotatedEvent | None) -> EventReference | None:
        if event is None:
            return None
        return EventReference(
            event.offset, event.time, f"{self._annotator.who(event)}: {self._annotator.text(event)}"
        )


def line_of(group: EventGroup, annotator: EventAnnotator) -> HistoryLine:
    """Returns the line of a group."""
    first, last = group.first, group.last
    header = first.entry.record.header
    caused = None if first.cause is None else annotator.chains.time(first.cause)
    waited = None if caused is None or not first.has_waited else header.time - caused
    return HistoryLine(
        offset=first.offset,
        until=last.offset,
        count=group.count,
        time=header.time,
        time_of_last=last.time,
        who=group.who(),
        text=group.text(),
        cause=first.cause,
        waited=waited,
        mark=first.mark,
        root=first.earlier_root,
        ignored=annotator.ignored_because(first),
        type=first.entry.type,
        entities=tuple(str(entity) for entity in first.entities[:_MAX_ENTITIES]),
    )
