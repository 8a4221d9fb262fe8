"""Folds a log event by event, and makes the View of the moment behind the last one.

A view costs what has changed since the one before: of jobs and TaskExecutors whose states are the very same objects
the lines are the same too.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from ....schemas.event import Record
from ....schemas.everyone import LeaderElected, TaskExecutorLost
from ...core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR, address, kind_of
from ...dispatcher.state import DispatcherState
from ...history.cluster_view import checkpoints
from ...history.entity_history.event_annotator import AnnotatedEvent, EventAnnotator
from ...history.entity_history.failure_chains import Severity
from ...history.entity_history.timeline import LineMark
from ...history.job_history_store import JobHistoryStore
from ...history.leaders import leaders
from ...history.restart_causes import count_restarts, is_restart
from ...history.subtask_view import subtasks
from ...job_master.restart_strategies import FailureHistory
from ...job_master.state import JobMasterState
from ...log import EventLog
from ...resource_manager.registered_slots import WorkerSlots
from ...resource_manager.state import ResourceManagerState
from ...resource_manager.task_manager_slot import SlotState
from ...snapshots.store import SnapshotStore
from .job_lines import JobLines, natural
from .view import (
    JobDetail,
    LogLine,
    LostView,
    MasterView,
    SlotsView,
    TaskExecutorView,
    TaskLine,
    View,
)

LINES = 5_000
"""How many events of the log's tail are kept in words."""
_MOST_FORMER = 3
_NO_FAILURES = FailureHistory()
_MOST_CHECKPOINTS = 20


class ViewBuilder:
    """What was told so far. Not safe for use by several threads."""

    def __init__(self, cluster: str, teller: EventAnnotator | None = None) -> None:
        """`teller`: one that has been told the log already, from where this one goes on."""
        self.cluster = cluster
        self._teller = teller or EventAnnotator()
        self.told = 0
        """How many events it was told."""
        self._time: int | None = None
        self._lines: deque[LogLine] = deque(maxlen=LINES)
        self._restarts: Counter[str] = Counter()
        self._failures: dict[str, FailureHistory] = {}
        """What each JobMaster remembered of failures when it was last looked at."""
        self._lost: dict[str, LostView] = {}
        self._elected: dict[str, int] = {}
        """Masters by the offset at which they were elected last."""
        self._jobs = JobLines(self._teller.fold, self._restarts)
        self._led: tuple[object, object, tuple[MasterView, ...]] | None = None
        """Of what the masters were told last, and they."""
        self._slots: dict[str, tuple[WorkerSlots | None, int, int]] = {}
        """ResourceID -> the slots that were counted, and how many of them are used and pending."""

    @property
    def offset(self) -> int:
        """Of the last event that was folded; -1: none."""
        return self._teller.fold.replica.offset

    @property
    def time(self) -> int | None:
        """The latest of all events so far, in microseconds since the epoch."""
        return self._time

    def begin(
        self,
        log: EventLog,
        store: SnapshotStore | None = None,
        histories: JobHistoryStore | None = None,
        at_most: int | None = None,
    ) -> int:
        """The offset from which the log is to be told. Takes, and raises, what Fold.begin does."""
        fold = self._teller.fold
        start = fold.begin(log, store, histories, at_most)
        self._teller.entities.adopt()
        for state in fold.replica.states.values():
            if isinstance(state, JobMasterState):
                self._restarts[state.job_id] = count_restarts(state.failures)
                self._failures[state.job_id] = state.failures
        masters = (each for each in leaders(fold.replica) if kind_of(each.role) != TASK_EXECUTOR)
        self._elected = {each.address: each.since for each in masters}
        return start

    def copy(self) -> ViewBuilder:
        """Another one that goes on from here, and remembers no more than what is shown. What began events that come may
        be forgotten."""
        watch = ViewBuilder(self.cluster, EventAnnotator(self._teller.fold.copy()))
        watch._time, watch._lines = self._time, self._lines.copy()
        watch._restarts.update(self._restarts)
        watch._failures = self._failures.copy()
        watch._lost = self._lost.copy()
        watch._elected = self._elected.copy()
        return watch

    def apply(self, record: Record) -> None:
        """The next event."""
        self.told += 1
        told = self._teller.annotate(record)
        self._jobs.on_event(record)
        self._time = record.header.time if self._time is None else max(self._time, record.header.time)
        self._lines.append(self._line(told))
        self._count_restarts()
        if told.entry.ignored is not None:
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
        fold = self._teller.fold
        for each in fold.changed:
            state = fold.replica.states[each]
            if isinstance(state, JobMasterState):
                before = self._failures.get(state.job_id, _NO_FAILURES)
                if state.failures is not before:
                    self._failures[state.job_id] = state.failures
                    self._restarts[state.job_id] += is_restart(before, state.failures)

    def view(self, looked_at: str | None = None) -> View:
        """The moment behind the last event; `open_job`: the job whose tasks and checkpoints are wanted."""
        fold = self._teller.fold
        self._jobs.update()
        workers, slots = self._task_executors(self._jobs.tasks)
        registered = {each.resource_id for each in workers}
        return View(
            cluster=self.cluster,
            offset=fold.replica.offset,
            time=self._time,
            whole=fold.whole,
            feature_level=fold.replica.leadership.feature_level,
            masters=self._masters(),
            taskexecutors=workers,
            lost=tuple(each for each in self._lost.values() if each.resource_id not in registered),
            slots=SlotsView(*slots, missing=self._jobs.missing),
            jobs=tuple(self._jobs.lines),
            detail=None if looked_at is None else self._detail(looked_at),
            log=tuple(self._lines),
        )

    def _line(self, told: AnnotatedEvent) -> LogLine:
        teller, entry = self._teller, told.entry
        text, mark = teller.text(told), LineMark.NONE
        ignored = teller.ignored_because(told)
        if ignored is not None:
            text, mark = f"{text} (ignored: {ignored})", LineMark.IGNORED
        elif told.severity >= Severity.FAILURE:
            mark = LineMark.ROOT if told.root == told.offset else LineMark.FAILURE
        return LogLine(
            offset=told.offset,
            time=told.time,
            who=teller.who(told),
            text=text,
            type=entry.type,
            cause=told.cause,
            job=entry.job,
            mark=mark.value,
            root=told.root if told.root not in (None, told.offset, told.cause) else None,
        )

    def _masters(self) -> tuple[MasterView, ...]:
        replica = self._teller.fold.replica
        state = replica.states.get(DISPATCHER)
        live = state.live if isinstance(state, DispatcherState) else None
        if self._led is not None and self._led[0] is replica.leadership and self._led[1] is live:
            return self._led[2]
        found: dict[str, MasterView] = {}
        for each in leaders(replica):
            known = found.get(each.address, MasterView(each.address, since=each.since))
            is_job = kind_of(each.role) == JOB_MASTER
            found[each.address] = MasterView(
                each.address,
                roles=known.roles if is_job else (*known.roles, each.role),
                jobs=known.jobs + is_job,
                epoch=max(known.epoch, each.epoch),
                since=min(known.since, each.since),
            )
        former = [
            MasterView(each, since=at) for each, at in reversed(self._elected.items()) if each not in found
        ]
        self._led = replica.leadership, live, (*found.values(), *former[:_MOST_FORMER])
        return self._led[2]

    def _task_executors(
        self, tasks: Counter[str]
    ) -> tuple[tuple[TaskExecutorView, ...], tuple[int, int, int]]:
        state = self._teller.fold.replica.states.get(RESOURCE_MANAGER)
        if not isinstance(state, ResourceManagerState):
            return (), (0, 0, 0)
        registered = state.slot_manager.slots
        views = []
        for resource_id, worker in sorted(state.workers.items(), key=lambda each: natural(each[0])):
            reported = registered.workers.get(resource_id)
            known = self._slots.get(resource_id)
            if known is None or known[0] is not reported:
                states = Counter(each.state for each in reported.slots.values()) if reported else Counter()
                known = reported, states[SlotState.ALLOCATED], states[SlotState.PENDING]
                self._slots[resource_id] = known
            _, used, pending = known
            count = len(reported.slots) if reported else 0
            views.append(
                TaskExecutorView(resource_id, worker.address, count, used, pending, tasks[resource_id])
            )
        sums = (
            sum(each.slots for each in views),
            sum(each.used for each in views),
            sum(each.pending for each in views),
        )
        return tuple(views), sums

    def _detail(self, job_id: str) -> JobDetail | None:
        fold = self._teller.fold
        master: Any = fold.replica.states.get(address(JOB_MASTER, job_id))
        if not isinstance(master, JobMasterState):
            return None
        tasks = [
            TaskLine(
                each.vertex,
                f"{each.subtask}/{each.parallelism or '?'}",
                each.state.value,
                each.attempt,
                each.resource_id,
            )
            for each in subtasks(fold.replica, job_id)
        ]
        seen = checkpoints(fold, job_id)
        last = type(seen)(seen.completed, seen.failed, seen.restored, seen.checkpoints[-_MOST_CHECKPOINTS:])
        return JobDetail(job_id, tuple(tasks), last)
