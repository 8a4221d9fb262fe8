"""The recorded behavior of each subtask: how long its attempts took to start, how long they ran, how they ended, and
its parts in checkpoints; and the TaskBehavior that repeats it.

The run time of a subtask counts over its attempts until one of them ends by itself. An interruption (its TaskExecutor
is gone, it was cancelled) is not an end. For a start or a cancellation that was interrupted, or had not ended at the
end of the log, the minimum duration is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from ....schemas import job_master, task_executor
from ....schemas.event import Record
from ....schemas.everyone import LeaderElected
from ....schemas.states import EXECUTION_ENDS
from ....schemas.types import ExecutionState
from ...core.role import TASK_EXECUTOR, Time, address, instance_of, kind_of
from ...task_executor.instructions import TriggerTasks
from ...task_executor.resources import Task
from ..latencies import Latencies
from ..task_behavior import (
    CheckpointContribution,
    Subtask,
    TaskEnd,
    TaskStart,
    UniformTaskBehavior,
    delay_until,
    subtask_of,
)

CheckpointKey = tuple[str, int]
"""(job, checkpoint)."""


class RecordedDuration(msgspec.Struct, frozen=True):
    """Something took `after` and ended `at`. `is_lower_bound`: it takes longer than that."""

    after: Time
    at: Time
    is_lower_bound: bool = False
    instead: TaskEnd | None = None
    """For a start: how it ended without having run."""

    def remaining(self, now: Time, usual: Time) -> Time:
        """Returns how long it takes if it starts now."""
        known = delay_until(now, self.after, self.at)
        return max(usual, known) if self.is_lower_bound else known


@dataclass
class _RecordedAttempt:
    subtask: Subtask
    number: int
    where: str
    """The address of the TaskExecutor."""
    started_at: Time
    """When it was submitted, or restarted."""
    submitted: Time
    since: Time | None = None
    """Since when it runs; None: it does not."""
    is_started: bool = False
    """Whether its start was recorded."""
    is_present: bool = True
    """Whether a process runs it; if not, the next process of the TaskExecutor will."""
    stretch: tuple[Time, Time] | None = None
    """The last time it ran."""
    stopped_by_savepoint: tuple[str, int] | None = None
    """The (job, savepoint) that it stopped for."""
    is_end_its_own: bool = True
    """False if a savepoint stops it, or if it had finished before it started."""


@dataclass
class RecordedTaskTimes:
    """`on_event` takes the events in order; the other attributes are the result."""

    starts: dict[tuple[Subtask, int], list[RecordedDuration]] = field(default_factory=dict)
    """(subtask, attempt number) -> its starts: several if its process was restarted."""
    stops: dict[tuple[Subtask, int], RecordedDuration] = field(default_factory=dict)
    """(subtask, attempt number) -> its cancellation."""
    ends: dict[Subtask, list[TaskEnd]] = field(default_factory=dict)
    _attempts: dict[str, _RecordedAttempt] = field(default_factory=dict)
    _ran: dict[Subtask, Time] = field(default_factory=dict)
    _cancelled: dict[str, Time] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    """TaskExecutors without a process."""
    _back: dict[str, Time] = field(default_factory=dict)
    """TaskExecutors that hung -> when they continued."""

    def adopt(self, task: Task, where: str, now: Time, *, is_there: bool, stopping: bool) -> None:
        """Adds a task that exists at the start. `is_there`: its process lives. `stopping`: it is being cancelled."""
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
        """Returns the subtask of an attempt that has not ended, or None."""
        found = self._attempts.get(execution_attempt_id)
        return None if found is None else found.subtask

    def finish(self, end: Time) -> None:
        """The history ends at that time."""
        for attempt_id, attempt in self._attempts.items():
            if attempt.is_present:
                self._not_started(attempt, end)
            self._not_stopped(attempt_id, attempt, end)

    def on_event(self, record: Record, now: Time, asked: Time | None = None) -> None:
        """The next event that is not fenced. `now`: the latest time; `asked`: the time of its cause, if known."""
        body = record.body
        match body:
            case task_executor.SubmitTask(subtasks=subtasks):
                where = record.header.recipient
                for subtask in subtasks:
                    self._attempts.setdefault(
                        subtask.execution_attempt_id,
                        _RecordedAttempt(
                            (body.job_id, body.vertex_id, subtask.subtask_index),
                            subtask.attempt_number,
                            where,
                            now,
                            now,
                            is_present=where not in self._gone,
                            is_end_its_own=not subtask.finished,
                        ),
                    )
            case task_executor.CancelTask(execution_attempt_id=attempt):
                self._cancelled[attempt] = now
            case job_master.UpdateTaskExecutionState(execution_attempt_id=attempt):
                found = self._attempts.get(attempt)
                if found is not None and not record.header.decided:
                    self._on_state_changed(attempt, found, body, now, asked)
            case job_master.AcknowledgeCheckpoint(acknowledgements=parts):
                for part in parts:
                    found = self._attempts.get(part.execution_attempt_id)
                    if found is not None and part.subtask_state.stops:
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
        """Handles the end of the process of the TaskExecutor. `again`: another one continues its tasks."""
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
        """Handles the process of a TaskExecutor that hung since then, and continues: now it reads the events sent
        meanwhile."""
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
        """Handles attempts that do not run any more."""
        for attempt_id in execution_attempt_ids:
            if (attempt := self._attempts.get(attempt_id)) is not None:
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
            # A restarted process reads the cancellation again.
            stopped_from = (
                now if asked is None else max(asked, attempt.started_at, self._back.get(attempt.where, asked))
            )
            self._pause(attempt, stopped_from)
            self._not_started(attempt, now)
            if asked is not None:
                self.stops[attempt.subtask, attempt.number] = RecordedDuration(now - stopped_from, now)
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
        """Handles a failed savepoint: the tasks that stopped for it continue."""
        for attempt in self._attempts.values():
            if attempt.stopped_by_savepoint == savepoint:
                attempt.stopped_by_savepoint, attempt.is_end_its_own, attempt.since = None, True, now

    def _interrupted(self, attempt: _RecordedAttempt, at: Time) -> None:
        """It has not run since that time, which may be in the past."""
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


class _RecordedAck(msgspec.Struct, frozen=True):
    at: Time
    declined: str | None


class RecordedCheckpointAcks:
    """The parts of subtasks in checkpoints: `on_event` takes the events in order, `take_ack` returns the parts."""

    def __init__(self) -> None:
        self._triggered: dict[CheckpointKey, Time] = {}
        self._parts: dict[tuple[CheckpointKey, Subtask], _RecordedAck] = {}
        self._over: dict[CheckpointKey, Time] = {}
        self._end: Time = 0

    def on_triggered(self, job_id: str, checkpoint_id: int, now: Time) -> None:
        """A checkpoint was triggered, or was pending at the place."""
        self._triggered.setdefault((job_id, checkpoint_id), now)

    def on_event(self, record: Record, now: Time, subtask_of: Callable[[str], Subtask | None]) -> None:
        """The next event; `subtask_of`: Execution -> its subtask, if it is known."""
        body = record.body
        match body:
            case job_master.CheckpointTriggered(job_id=job_id, checkpoint_id=number):
                self.on_triggered(job_id, number, now)
            case job_master.AcknowledgeCheckpoint(
                job_id=job_id, checkpoint_id=number, acknowledgements=parts
            ):
                for part in parts:
                    subtask = subtask_of(part.execution_attempt_id)
                    self._on_ack((job_id, number), subtask, _RecordedAck(now, None))
            case job_master.DeclineCheckpoint(job_id=job_id, checkpoint_id=number, reason=reason):
                if not record.header.decided:
                    subtask = subtask_of(body.execution_attempt_id)
                    self._on_ack((job_id, number), subtask, _RecordedAck(now, reason))
            case job_master.CheckpointCompleted(job_id=job_id, checkpoint=checkpoint):
                self._over.setdefault((job_id, checkpoint.checkpoint_id), now)
            case job_master.CheckpointAborted(job_id=job_id, checkpoint_id=number):
                self._over.setdefault((job_id, number), now)
            case _:
                pass

    def finish(self, end: Time) -> None:
        """The history ends at that time."""
        self._end = end

    def take_ack(
        self, subtask: Subtask, checkpoint_id: int, usual: Time, now: Time
    ) -> CheckpointContribution:
        """Returns the part of a subtask that receives the barrier now."""
        key = subtask[0], checkpoint_id
        triggered = self._triggered.get(key)
        if triggered is None:
            return CheckpointContribution(usual)
        part = self._parts.get((key, subtask))
        if part is not None:
            return CheckpointContribution(delay_until(now, part.at - triggered, part.at), part.declined)
        # The part came too late, or never.
        at = self._over.get(key, self._end) + 1
        return CheckpointContribution(max(usual, delay_until(now, at - triggered, at)))

    def _on_ack(self, key: CheckpointKey, subtask: Subtask | None, part: _RecordedAck) -> None:
        if subtask is not None:
            self._parts.setdefault((key, subtask), part)


class RecordedTaskBehavior:
    """A TaskBehavior that repeats the recorded behavior of each subtask. A subtask that did not end runs for ever.
    Actions without a record (a restart, a cancellation) take the usual time."""

    def __init__(
        self,
        times: RecordedTaskTimes,
        acks: RecordedCheckpointAcks,
        latencies: Latencies,
        *,
        fixed_start: bool = False,
    ) -> None:
        """`fixed_start`: starts take the time of the latencies instead of the recorded one."""
        self._times = times
        self._acks = acks
        self._fixed_start = fixed_start
        self._usual = UniformTaskBehavior(latencies)
        self._starts: dict[tuple[Subtask, int], int] = {}
        self._alike: dict[str, tuple[str, RecordedTaskTimes]] = {}

    def like(self, job_id: str, other: str, times: RecordedTaskTimes) -> None:
        """The tasks of a job run as long as those of another one did."""
        self._alike[job_id] = other, times

    def start(self, task: Task, now: Time) -> TaskStart:
        key = subtask_of(task), task.attempt_number
        number = self._starts.get(key, 0)
        self._starts[key] = number + 1
        known = [] if self._fixed_start else self._times.starts.get(key, [])
        usual = self._usual.start(task, now)
        if number >= len(known):
            return usual
        return TaskStart(known[number].remaining(now, usual.after), known[number].instead)

    def stop(self, task: Task, now: Time) -> TaskEnd:
        known = self._times.stops.get((subtask_of(task), task.attempt_number))
        usual = self._usual.stop(task, now)
        return usual if known is None else replace(usual, after=known.remaining(now, usual.after))

    def end(self, subtask: Subtask, ended: int) -> TaskEnd | None:
        job_id, vertex_id, index = subtask
        if job_id in self._alike:
            other, times = self._alike[job_id]
            known = _task_ends(times, other, vertex_id, index)
        else:
            known = self._times.ends.get(subtask, [])
        if ended < len(known):
            return known[ended]
        # It was rolled back to a checkpoint, and repeats the same behavior.
        again = known and known[-1].state is ExecutionState.FINISHED
        return replace(known[-1], at=None) if again else None

    def contribution(self, task: Task, trigger: TriggerTasks, now: Time) -> CheckpointContribution | None:
        usual = self._usual.contribution(task, trigger, now)
        after = 0 if usual is None else usual.after
        return self._acks.take_ack(subtask_of(task), trigger.checkpoint_id, after, now)


def _task_ends(times: RecordedTaskTimes, job_id: str, vertex_id: str, index: int) -> list[TaskEnd]:
    found = times.ends.get((job_id, vertex_id, index))
    if found is not None:
        return found
    # The job has more subtasks than the other one: they repeat its subtasks.
    known = sorted(end for end in times.ends if end[:2] == (job_id, vertex_id))
    return times.ends[known[index % len(known)]] if known else []
