"""What each subtask did with its time, as a log tells it: how long its attempts took to start, ran, and how they ended.

Time that a subtask ran is added up over its attempts until one of them ends by itself; what interrupts an attempt (its
TaskExecutor is gone, it was cancelled) ends nothing. Of a start or a cancellation that was interrupted, or had not come
to its end when the log did, it is known how long it takes at least.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from ....schemas import job_master, task_executor
from ....schemas.event import Record
from ....schemas.everyone import LeaderElected
from ....schemas.states import EXECUTION_ENDS
from ....schemas.types import ExecutionState
from ...core.role import TASK_EXECUTOR, Time, address, instance_of, kind_of
from ...task_executor.state import Task
from ..task_behavior import Subtask, TaskEnd, step_delay


class RecordedDuration(msgspec.Struct, frozen=True):
    """`after` is how long something took, until `at`; `least`: it takes longer than that."""

    after: Time
    at: Time
    is_lower_bound: bool = False
    instead: TaskEnd | None = None
    """Of a start: it ended then without ever having run."""

    def from_now(self, now: Time, usual: Time) -> Time:
        """How long it takes, where it begins now."""
        known = step_delay(now, self.after, self.at)
        return max(usual, known) if self.is_lower_bound else known


@dataclass
class _RecordedAttempt:
    subtask: Subtask
    number: int
    where: str
    """The TaskExecutor's address."""
    started_at: Time
    """When it was submitted, or had to start again."""
    submitted: Time
    since: Time | None = None
    """Since when it runs; None: it does not."""
    is_started: bool = False
    """Whether it is known how long its start took."""
    is_present: bool = True
    """Whether a process has it; if not, the next one will."""
    stretch: tuple[Time, Time] | None = None
    """From when to when it ran last."""
    stopped_by_savepoint: tuple[str, int] | None = None
    """(job, savepoint) that it stands still behind."""
    is_end_its_own: bool = True
    """Not if a savepoint stops it, nor if it had finished before it began."""


@dataclass
class RecordedTaskTimes:
    """`see` takes events in order; the rest is what came of it."""

    starts: dict[tuple[Subtask, int], list[RecordedDuration]] = field(default_factory=dict)
    """(subtask, attempt number) -> each time that it began: more than once where its process was started again."""
    stops: dict[tuple[Subtask, int], RecordedDuration] = field(default_factory=dict)
    """How long its cancellation took."""
    ends: dict[Subtask, list[TaskEnd]] = field(default_factory=dict)
    _attempts: dict[str, _RecordedAttempt] = field(default_factory=dict)
    _ran: dict[Subtask, Time] = field(default_factory=dict)
    _cancelled: dict[str, Time] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    """TaskExecutors without a process."""
    _back: dict[str, Time] = field(default_factory=dict)
    """TaskExecutors that did nothing for a while -> when they went on."""

    def adopt(self, task: Task, where: str, now: Time, *, is_there: bool, stopping: bool) -> None:
        """A task that its TaskExecutor has at the beginning; not `is_there`: the process may come back to it.
        `stopping`: it is to be stopped."""
        if stopping:
            self._cancelled[task.execution_attempt_id] = now
        started = is_there and task.state is ExecutionState.RUNNING
        running = started and task.stopped_by_savepoint is None
        subtask = task.job_id, task.vertex_id, task.subtask_index
        by_itself = task.stopped_by_savepoint is None and not task.finished
        self._attempts[task.execution_attempt_id] = _RecordedAttempt(
            subtask, task.attempt_number, where, now, now, now if running else None, started, is_there
        )
        attempt = self._attempts[task.execution_attempt_id]
        attempt.is_end_its_own = by_itself
        if task.stopped_by_savepoint is not None:
            attempt.stopped_by_savepoint = task.job_id, task.stopped_by_savepoint

    def subtask_of(self, execution_attempt_id: str) -> Subtask | None:
        """Of an attempt that has not ended; None where there is none."""
        found = self._attempts.get(execution_attempt_id)
        return None if found is None else found.subtask

    def finish(self, end: Time) -> None:
        """Nothing is known of what was behind that time."""
        for attempt_id, attempt in self._attempts.items():
            if attempt.is_present:
                self._not_started(attempt, end)
            self._not_stopped(attempt_id, attempt, end)

    def on_event(self, record: Record, now: Time, asked: Time | None = None) -> None:
        """The next event, which readers take notice of; `now` is the latest time so far, `asked` that of its cause,
        where it is known."""
        body = record.body
        match body:
            case task_executor.SubmitTask(execution_attempt_id=attempt):
                subtask = body.job_id, body.vertex_id, body.subtask_index
                where = record.header.recipient
                self._attempts.setdefault(
                    attempt,
                    _RecordedAttempt(
                        subtask,
                        body.attempt_number,
                        where,
                        now,
                        now,
                        is_present=where not in self._gone,
                        is_end_its_own=not body.finished,
                    ),
                )
            case task_executor.CancelTask(execution_attempt_id=attempt):
                self._cancelled[attempt] = now
            case job_master.UpdateTaskExecutionState(execution_attempt_id=attempt):
                found = self._attempts.get(attempt)
                if found is not None and not record.header.decided:
                    self._on_state_changed(attempt, found, body, now, asked)
            case job_master.AcknowledgeCheckpoint(execution_attempt_id=attempt):
                found = self._attempts.get(attempt)
                if found is not None and body.subtask_state.stops:
                    found.is_end_its_own, found.stopped_by_savepoint = (
                        False,
                        (body.job_id, body.checkpoint_id),
                    )
                    self._pause(found, now)
            case job_master.CheckpointAborted(job_id=job_id, checkpoint_id=number):
                self._not_stopping((job_id, number), now)
            case LeaderElected(role=role) if kind_of(role) == TASK_EXECUTOR:
                self.on_interrupted(instance_of(role), now, again=True)
            case _:
                pass

    def on_interrupted(self, resource_id: str, at: Time, *, again: bool = False) -> None:
        """The TaskExecutor's process ended then; `again`: another one goes on with what it ran."""
        where = address(TASK_EXECUTOR, resource_id)
        if again:
            self._gone.discard(where)
        else:
            self._gone.add(where)
        for attempt in self._attempts.values():
            if attempt.where != where:
                continue
            self._interrupted(attempt, at)
            if attempt.is_present and attempt.started_at <= at:
                self._not_started(attempt, at)
            attempt.is_present = again
            if again:
                attempt.started_at, attempt.is_started = at, False

    def on_resumed(self, resource_id: str, since: Time, at: Time) -> None:
        """The TaskExecutor's process had done nothing, and goes on: it is told now what it was told meanwhile."""
        where = address(TASK_EXECUTOR, resource_id)
        self._back[where] = at
        self._gone.discard(where)
        for attempt in self._attempts.values():
            if attempt.where != where:
                continue
            if not attempt.is_started:
                attempt.started_at = at
            runs, attempt.is_present = attempt.since is not None, True
            self._interrupted(attempt, since)
            attempt.since = at if runs else None

    def on_executions_lost(self, execution_attempt_ids: Iterable[str], at: Time) -> None:
        """These did not run any more."""
        for each in execution_attempt_ids:
            if (attempt := self._attempts.get(each)) is not None:
                self._pause(attempt, at)

    def _on_state_changed(
        self,
        attempt_id: str,
        attempt: _RecordedAttempt,
        body: job_master.UpdateTaskExecutionState,
        now: Time,
        caused: Time | None,
    ) -> None:
        state = body.execution_state
        if state is ExecutionState.RUNNING:
            if attempt.since is None:
                self._on_started(attempt, now)
                attempt.since = now
            return
        if state not in EXECUTION_ENDS:
            self._pause(attempt, now)
            return
        del self._attempts[attempt_id]
        asked = self._cancelled.pop(attempt_id, None)
        if (
            asked is None
            and state is ExecutionState.CANCELED
            and caused is not None
            and caused > attempt.submitted
        ):
            # Its slot was taken away.
            asked = caused
        if asked is not None or state is ExecutionState.CANCELED:
            # A process that was started again is told once more.
            told = (
                now if asked is None else max(asked, attempt.started_at, self._back.get(attempt.where, asked))
            )
            self._pause(attempt, told)
            self._not_started(attempt, now)
            if asked is not None:
                self.stops[attempt.subtask, attempt.number] = RecordedDuration(now - told, now)
            return
        end = TaskEnd(0, state, body.failure, dict(body.accumulators), body.progress_lost, now)
        if attempt.since is None and not attempt.is_started:
            self._on_started(attempt, now, instead=end)
        self._pause(attempt, now)
        if state is ExecutionState.FINISHED and not attempt.is_end_its_own:
            return
        ran = self._ran.pop(attempt.subtask, 0)
        self.ends.setdefault(attempt.subtask, []).append(replace(end, after=ran))

    def _on_started(self, attempt: _RecordedAttempt, now: Time, instead: TaskEnd | None = None) -> None:
        attempt.is_started = True
        took = RecordedDuration(now - attempt.started_at, now, instead=instead)
        self.starts.setdefault((attempt.subtask, attempt.number), []).append(took)

    def _not_started(self, attempt: _RecordedAttempt, until: Time) -> None:
        if not attempt.is_started:
            attempt.is_started = True
            took = RecordedDuration(until + 1 - attempt.started_at, until + 1, is_lower_bound=True)
            self.starts.setdefault((attempt.subtask, attempt.number), []).append(took)

    def _not_stopped(self, attempt_id: str, attempt: _RecordedAttempt, until: Time) -> None:
        asked = self._cancelled.get(attempt_id)
        if asked is not None:
            took = RecordedDuration(
                until + 1 - max(asked, attempt.started_at), until + 1, is_lower_bound=True
            )
            self.stops.setdefault((attempt.subtask, attempt.number), took)

    def _not_stopping(self, savepoint: tuple[str, int], now: Time) -> None:
        """Who stands still behind it goes on."""
        for attempt in self._attempts.values():
            if attempt.stopped_by_savepoint == savepoint:
                attempt.stopped_by_savepoint, attempt.is_end_its_own, attempt.since = None, True, now

    def _interrupted(self, attempt: _RecordedAttempt, at: Time) -> None:
        """It has not run since then, which may be known only now."""
        if attempt.since is None and attempt.stretch is not None and attempt.stretch[1] > at:
            began, ended = attempt.stretch
            self._ran[attempt.subtask] -= ended - max(began, at)
            attempt.stretch = began, max(began, at)
        self._pause(attempt, at)

    def _pause(self, attempt: _RecordedAttempt, now: Time) -> None:
        if attempt.since is not None:
            attempt.stretch = attempt.since, max(attempt.since, now)
            ran = max(0, now - attempt.since)
            self._ran[attempt.subtask] = self._ran.get(attempt.subtask, 0) + ran
            attempt.since = None
