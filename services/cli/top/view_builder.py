"""Applies a log event by event, and builds the View of the cluster after the last event."""

from __future__ import annotations

import functools
import re
from collections import Counter, deque

import msgspec

from ....schemas.event import Record
from ....schemas.everyone import LeaderElected, TaskExecutorLost
from ....schemas.states import EXECUTION_ENDS, JOB_ENDS
from ...core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR, address, kind_of
from ...dispatcher.state import DispatcherState, Job
from ...history.cluster_view import checkpoints, job_view, leaders, subtasks
from ...history.entity_history.event_annotator import AnnotatedEvent, EventAnnotator
from ...history.job_history import count_restarts, is_restart
from ...history.job_history_store import JobHistoryStore
from ...job_master.restart_strategies import FailureHistory
from ...job_master.state import StartedJob
from ...log import EventLog
from ...resource_manager.state import ResourceManagerState
from ...resource_manager.task_manager_slot import SlotState
from ...snapshots.store import SnapshotStore
from .view import JobDetail, JobLine, LogLine, LostView, MasterView, SlotsView, TaskExecutorView, View

LOG_LINES = 1_000
"""The number of last events that a View has in words."""
_MAX_FORMER_MASTERS = 3
_MAX_CHECKPOINTS = 20
_NUMBER = re.compile(r"([0-9]{1,18})")


class _KnownJob(msgspec.Struct, frozen=True):
    """A job's line, and the states that it was built from."""

    job: Job
    master: object
    line: JobLine
    tasks: Counter[str]
    """ResourceID -> the number of the job's unfinished Executions."""


class ViewBuilder:
    """Not thread-safe."""

    def __init__(self, cluster: str, annotator: EventAnnotator | None = None) -> None:
        """`annotator`: one that has read the log up to where this builder continues."""
        self.cluster = cluster
        self.applied = 0
        """The number of events applied by this builder."""
        self.time: int | None = None
        """The latest time of all events so far, in microseconds since the epoch."""
        self._annotator = annotator or EventAnnotator()
        self._log: deque[LogLine] = deque(maxlen=LOG_LINES)
        self._new_events: deque[AnnotatedEvent] = deque(maxlen=LOG_LINES)
        """Events without a line yet: most of a long log never get one."""
        self._restarts: Counter[str] = Counter()
        self._failures: dict[str, FailureHistory] = {}
        """Job id -> the failures that its JobMaster counted when it last changed."""
        self._lost: dict[str, LostView] = {}
        self._elected: dict[str, int] = {}
        """Address of a master -> the offset at which it was last elected."""
        self._known: dict[str, _KnownJob] = {}

    @property
    def offset(self) -> int:
        """The offset of the last event; -1: none."""
        return self._annotator.fold.replica.offset

    def begin(
        self,
        log: EventLog,
        store: SnapshotStore | None = None,
        histories: JobHistoryStore | None = None,
        at_most: int | None = None,
    ) -> int:
        """Returns the offset from which the log has to be applied. Arguments and errors like
        HistoryProjection.begin."""
        fold = self._annotator.fold
        start = fold.begin(log, store, histories, at_most)
        self._annotator.entities.adopt()
        for state in fold.replica.states.values():
            if isinstance(state, StartedJob):
                self._restarts[state.job_id] = count_restarts(state.failures)
                self._failures[state.job_id] = state.failures
        masters = (leader for leader in leaders(fold.replica) if kind_of(leader.role) != TASK_EXECUTOR)
        self._elected = {leader.address: leader.since for leader in masters}
        return start

    def copy(self) -> ViewBuilder:
        """An independent builder that continues from here. It may not know the roots of later failures."""
        copy = ViewBuilder(self.cluster, EventAnnotator(self._annotator.fold.copy()))
        self._write_lines()
        copy.time, copy._log = self.time, self._log.copy()
        copy._restarts.update(self._restarts)
        copy._failures = self._failures.copy()
        copy._lost = self._lost.copy()
        copy._elected = self._elected.copy()
        return copy

    def apply(self, record: Record) -> None:
        """Applies the next event."""
        self.applied += 1
        event = self._annotator.annotate(record)
        self.time = record.header.time if self.time is None else max(self.time, record.header.time)
        self._new_events.append(event)
        self._count_restarts()
        if event.entry.ignored is not None:
            return
        match record.body:
            case TaskExecutorLost(resource_id=resource_id, reason=reason):
                self._lost.pop(resource_id, None)
                self._lost[resource_id] = LostView(resource_id, record.header.time, reason)
            case LeaderElected(role=role, address=by) if kind_of(role) != TASK_EXECUTOR:
                self._elected.pop(by, None)
                self._elected[by] = record.offset
            case _:
                pass

    def _count_restarts(self) -> None:
        fold = self._annotator.fold
        for changed in fold.changed:
            state = fold.replica.states[changed]
            if isinstance(state, StartedJob):
                before = self._failures.get(state.job_id, FailureHistory())
                if state.failures is not before:
                    self._failures[state.job_id] = state.failures
                    self._restarts[state.job_id] += is_restart(before, state.failures)

    def view(self, open_job: str | None = None) -> View:
        """The cluster after the last event; `open_job`: the job whose tasks and checkpoints are wanted."""
        fold = self._annotator.fold
        self._write_lines()
        jobs = self._update_jobs()
        tasks: Counter[str] = Counter()
        for job in jobs:
            tasks.update(job.tasks)
        executors = self._task_executors(tasks)
        registered = {executor.resource_id for executor in executors}
        return View(
            cluster=self.cluster,
            offset=fold.replica.offset,
            time=self.time,
            whole=fold.whole,
            feature_level=fold.replica.leadership.feature_level,
            masters=self._masters(),
            taskexecutors=executors,
            lost=tuple(lost for lost in self._lost.values() if lost.resource_id not in registered),
            slots=SlotsView(
                sum(executor.slots for executor in executors),
                sum(executor.used for executor in executors),
                sum(executor.pending for executor in executors),
                sum(job.line.job.missing_slots for job in jobs),
            ),
            jobs=tuple(job.line for job in jobs),
            detail=None if open_job is None else self._detail(open_job),
            log=tuple(self._log),
        )

    def _write_lines(self) -> None:
        self._log.extend(map(self._log_line, self._new_events))
        self._new_events.clear()

    def _log_line(self, event: AnnotatedEvent) -> LogLine:
        annotator, entry = self._annotator, event.entry
        text, ignored = annotator.text(event), annotator.ignored_because(event)
        if ignored is not None:
            text = f"{text} (ignored: {ignored})"
        return LogLine(
            offset=event.offset,
            time=event.time,
            who=annotator.who(event),
            text=text,
            type=entry.type,
            cause=event.cause,
            job=entry.job,
            mark=event.mark.value,
            root=event.earlier_root,
        )

    def _masters(self) -> tuple[MasterView, ...]:
        found: dict[str, MasterView] = {}
        for leader in leaders(self._annotator.fold.replica):
            known = found.get(leader.address, MasterView(leader.address, since=leader.since))
            is_job = kind_of(leader.role) == JOB_MASTER
            found[leader.address] = MasterView(
                leader.address,
                roles=known.roles if is_job else (*known.roles, leader.role),
                jobs=known.jobs + is_job,
                epoch=max(known.epoch, leader.epoch),
                since=min(known.since, leader.since),
            )
        former = [
            MasterView(master, since=at)
            for master, at in reversed(self._elected.items())
            if master not in found
        ]
        return (*found.values(), *former[:_MAX_FORMER_MASTERS])

    def _task_executors(self, tasks: Counter[str]) -> tuple[TaskExecutorView, ...]:
        state = self._annotator.fold.replica.states.get(RESOURCE_MANAGER)
        if not isinstance(state, ResourceManagerState):
            return ()
        views = []
        for resource_id, worker in sorted(state.workers.items(), key=lambda item: natural(item[0])):
            reported = state.slot_manager.slots.workers.get(resource_id)
            slots = Counter(slot.state for slot in reported.slots.values()) if reported else Counter()
            used, pending = slots[SlotState.ALLOCATED], slots[SlotState.PENDING]
            views.append(
                TaskExecutorView(
                    resource_id, worker.address, slots.total(), used, pending, tasks[resource_id]
                )
            )
        return tuple(views)

    def _update_jobs(self) -> list[_KnownJob]:
        """Builds the lines of the jobs whose states have changed; returns all, in the order of View.jobs."""
        replica = self._annotator.fold.replica
        state = replica.states.get(DISPATCHER)
        before, self._known = self._known, {}
        for job_id, job in state.jobs.items() if isinstance(state, DispatcherState) else ():
            master = replica.states.get(address(JOB_MASTER, job_id))
            known = before.get(job_id)
            if known is None or known.job is not job or known.master is not master:
                known = self._job(job, master)
            self._known[job_id] = known
        return sorted(self._known.values(), key=_job_order)

    def _job(self, job: Job, master: object) -> _KnownJob:
        tasks, slots = Counter[str](), 0
        if isinstance(master, StartedJob):
            slots = len(master.slots.slots)
            current = (master.executions[attempt] for attempt in master.current_attempts.values())
            tasks.update(
                execution.resource_id
                for execution in current
                if execution.resource_id is not None and execution.state not in EXECUTION_ENDS
            )
        view = job_view(self._annotator.fold, job)
        return _KnownJob(job, master, JobLine(view, slots, self._restarts[job.job_id]), tasks)

    def _detail(self, job_id: str) -> JobDetail | None:
        fold = self._annotator.fold
        if address(JOB_MASTER, job_id) not in fold.replica.states:
            return None
        found = checkpoints(fold, job_id)
        last = msgspec.structs.replace(found, checkpoints=found.checkpoints[-_MAX_CHECKPOINTS:])
        return JobDetail(job_id, tuple(subtasks(fold.replica, job_id)), last)


@functools.lru_cache(1 << 13)
def natural(name: str) -> tuple[str | int, ...]:
    """A sort key that compares the numbers in names by value: te-2 before te-10."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(_NUMBER.split(name)))


def _job_order(known: _KnownJob) -> tuple[bool, int, tuple[str | int, ...]]:
    job = known.line.job
    ended = job.status in JOB_ENDS
    return ended, -(job.ended or 0) if ended else job.submitted or 0, natural(job.job_id)
