"""The tasks of simulated TaskExecutors: they start, run, take checkpoints and end as their TaskBehavior says.

A checkpoint reaches all running tasks of a job as soon as one of them receives it, because barriers take no time. Every
task acknowledges after its own latency.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ...schemas.types import ExecutionState
from ..core.role import JOB_MASTER, TASK_EXECUTOR, Instruction, Time, address, kind_of
from ..job_master.state import JobMasterState
from ..task_executor.instructions import AbortTasks, ConfirmTasks, RunTasks, StopTask, TriggerTasks
from ..task_executor.state import Task
from .checkpoint_storage import SimulatedStorage, StatePart, part_name
from .event_causes import EventCauses
from .simulated_effects import NotSimulated
from .simulator import Simulator
from .task_behavior import Subtask, TaskBehavior, TaskEnd, step_delay
from .task_events import acknowledge_checkpoint_event, decline_checkpoint_event, state_change_event


@dataclass(eq=False)
class _SimulatedTask:
    """An Execution that a process has begun."""

    task: Task
    address: str
    since: Time | None = None
    """When it began to run, or went on; None: it does not run."""
    is_running: bool = False
    is_cancelled: bool = False
    """It is being stopped."""
    stopping: int | None = None
    """The savepoint that it has acknowledged and stands still behind."""
    seen_barriers: set[int] = field(default_factory=set)
    """Checkpoints that it has acknowledged or declined, or that have been aborted."""

    @property
    def subtask(self) -> Subtask:
        return self.task.job_id, self.task.vertex_id, self.task.subtask_index


class SimulatedTasks:
    """All of a world; its WorldShell for TASK_EXECUTOR."""

    def __init__(self, world: Simulator, life: TaskBehavior, storage: SimulatedStorage) -> None:
        """What runs in TaskExecutors that are led already runs on."""
        self._world = world
        self._life = life
        self._storage = storage
        self._of_job: dict[str, dict[str, _SimulatedTask]] = {}
        """Job -> attempt by its id."""
        self._ran: dict[Subtask, Time] = {}
        """How long each has run since it last ended by itself."""
        self._ended: dict[Subtask, int] = {}
        self._triggered: set[tuple[str, int]] = set()
        self._causes = EventCauses()
        self._adopted = {
            world.session(each) for each in world.replica.active_addresses if kind_of(each) == TASK_EXECUTOR
        }
        """Sessions that began before this world."""

    def perform(self, role_address: str, instruction: Instruction, state: Any) -> None:
        match instruction:
            case RunTasks(tasks=tasks):
                adopted = self._world.session(role_address) in self._adopted
                for task in tasks:
                    self._start_attempt(
                        role_address, task, runs=adopted and task.state is ExecutionState.RUNNING
                    )
            case StopTask(execution_attempt_id=attempt, cause=cause):
                self._stop(role_address, state.tasks[attempt], cause)
            case TriggerTasks(job_id=job_id, checkpoint_id=number, cause=cause):
                self._causes.on_instruction(role_address, job_id, number, cause)
                self._checkpoint(instruction)
            case ConfirmTasks(checkpoint_id=number, attempts=attempts):
                for each in self._stopping_attempts(instruction.job_id, attempts, number):
                    self._finish(each, TaskEnd(0))
            case AbortTasks(job_id=job_id, checkpoint_id=number, attempts=attempts):
                for each in self._stopping_attempts(job_id, attempts, number):
                    each.stopping = None
                    self._continue_run(each)
                for own in attempts:
                    if (found := self._find(job_id, own)) is not None:
                        found.seen_barriers.add(number)
            case _:
                raise NotSimulated(instruction)

    def fail(self, subtask: Subtask, reason: str) -> bool:
        """Has the running attempt of a subtask fail; False where none runs."""
        attempt = self._current(subtask)
        if attempt is None:
            return False
        self._pause_clock(attempt)
        self._report(attempt, ExecutionState.FAILED, reason)
        return True

    def drop_all(self, job_id: str, execution_attempt_ids: Iterable[str]) -> None:
        """Nothing runs of these any more, and nobody has noticed."""
        for each in execution_attempt_ids:
            attempt = self._find(job_id, each)
            if attempt is not None:
                self._pause_clock(attempt)
                attempt.is_running = False

    def pause(self, role_address: str) -> None:
        """What runs there does nothing, until it goes on."""
        for attempt in self._attempts_at(role_address):
            self._pause_clock(attempt)

    def resume(self, role_address: str) -> None:
        """What stands still there."""
        for attempt in self._attempts_at(role_address):
            if attempt.is_running and attempt.since is None and attempt.stopping is None:
                self._continue_run(attempt)

    def process_ended(self, role_address: str) -> None:
        """Whatever ran there runs no more."""
        self._causes.on_process_ended(role_address)
        for attempt in self._attempts_at(role_address):
            self._pause_clock(attempt)
            self._drop(attempt)

    def _attempts_at(self, role_address: str) -> list[_SimulatedTask]:
        return [
            each
            for of_job in self._of_job.values()
            for each in of_job.values()
            if each.address == role_address
        ]

    def _current(self, subtask: Subtask) -> _SimulatedTask | None:
        of_job = self._of_job.get(subtask[0], {})
        return next((each for each in of_job.values() if each.subtask == subtask and each.is_running), None)

    def _start_attempt(self, role_address: str, task: Task, *, runs: bool) -> None:
        attempt = _SimulatedTask(task, role_address)
        self._put(attempt)
        if runs:
            self._adopt(attempt)
            return
        start = self._life.start(task, self._world.now)
        self._schedule_after(attempt, start.after, lambda: self._on_started(attempt, start.instead))

    def _adopt(self, attempt: _SimulatedTask) -> None:
        attempt.is_running = True
        attempt.stopping = attempt.task.stopped_by_savepoint
        if attempt.stopping is None:
            self._meet_barriers(attempt)
            self._continue_run(attempt)

    def _meet_barriers(self, attempt: _SimulatedTask) -> None:
        """Checkpoints that had begun, and that it has not acknowledged: their barriers are on the way to it."""
        task = attempt.task
        master = self._world.replica.states.get(address(JOB_MASTER, task.job_id))
        if not isinstance(master, JobMasterState):
            return
        for number, pending in sorted(master.checkpoints.pending.items()):
            if task.execution_attempt_id in pending.awaited and pending.failure is None:
                own = (task.execution_attempt_id,)
                told = TriggerTasks(
                    task.job_id, number, own, pending.triggered, pending.options, pending.cause
                )
                self._schedule_acknowledgement(attempt, told)

    def _on_started(self, attempt: _SimulatedTask, instead: TaskEnd | None) -> None:
        if attempt.is_cancelled:
            return
        if instead is not None:
            self._end_by_itself(attempt, instead)
            return
        attempt.is_running = True
        self._emit(attempt, ExecutionState.RUNNING)
        if attempt.task.finished:
            self._report(attempt, ExecutionState.FINISHED)
        else:
            self._continue_run(attempt)

    def _continue_run(self, attempt: _SimulatedTask) -> None:
        """It runs from now on, until its end or until it is interrupted."""
        now, subtask = self._world.now, attempt.subtask
        attempt.since = now
        end = self._life.end(subtask, self._ended.get(subtask, 0))
        if end is None:
            return

        def over() -> None:
            if attempt.since == now:
                self._end_by_itself(attempt, end)

        delay = max(0, end.after - self._ran.get(subtask, 0))
        self._schedule_after(attempt, step_delay(now, delay, end.at), over)

    def _end_by_itself(self, attempt: _SimulatedTask, end: TaskEnd) -> None:
        subtask = attempt.subtask
        self._ended[subtask] = self._ended.get(subtask, 0) + 1
        self._finish(attempt, end)
        self._ran.pop(subtask, None)

    def _finish(self, attempt: _SimulatedTask, end: TaskEnd) -> None:
        self._pause_clock(attempt)
        self._report(attempt, end.state, end.failure, end)

    def _stop(self, role_address: str, task: Task, cause: int) -> None:
        attempt = self._find(task.job_id, task.execution_attempt_id)
        if attempt is None:
            # It had not begun: there is nothing to stop, but somebody waits for its end.
            attempt = _SimulatedTask(task, role_address)
            self._put(attempt)
        self._causes.on_run_tasks(task.execution_attempt_id, cause)
        delay = self._life.stop(task, self._world.now)
        self._pause_clock(attempt)
        attempt.is_running, attempt.is_cancelled = False, True
        self._schedule_after(attempt, delay, lambda: self._report(attempt, ExecutionState.CANCELED))

    def _checkpoint(self, told: TriggerTasks) -> None:
        key = told.job_id, told.checkpoint_id
        if key in self._triggered:
            return
        self._triggered.add(key)
        for attempt in self._of_job.get(told.job_id, {}).values():
            if attempt.is_running:
                self._schedule_acknowledgement(attempt, told)

    def _schedule_acknowledgement(self, attempt: _SimulatedTask, told: TriggerTasks) -> None:
        part = self._life.contribution(attempt.task, told.checkpoint_id, self._world.now)
        self._schedule_after(
            attempt,
            part.after,
            functools.partial(self._acknowledge_checkpoint, attempt, told, declined=part.declined),
        )

    def _acknowledge_checkpoint(
        self, attempt: _SimulatedTask, told: TriggerTasks, declined: str | None
    ) -> None:
        if (
            not attempt.is_running
            or attempt.stopping is not None
            or told.checkpoint_id in attempt.seen_barriers
        ):
            return
        attempt.seen_barriers.add(told.checkpoint_id)
        _, vertex, index = attempt.subtask
        own, job_id, number = attempt.task.execution_attempt_id, told.job_id, told.checkpoint_id
        cause = self._causes.cause_for_acknowledgement(attempt.address, job_id, own, number)
        if declined is not None:
            self._world.append_from_shell(
                attempt.address, decline_checkpoint_event(job_id, own, number, declined, cause=cause)
            )
            return
        self._storage.write(told.options.directory, part_name(vertex, index), StatePart(own, 0))
        if told.options.stops:
            attempt.stopping = number
            self._pause_clock(attempt)
        owed = acknowledge_checkpoint_event(job_id, own, number, stops=told.options.stops, cause=cause)
        self._world.append_from_shell(attempt.address, owed)

    def _stopping_attempts(
        self, job_id: str, attempts: Iterable[str], checkpoint_id: int
    ) -> list[_SimulatedTask]:
        found = (self._find(job_id, each) for each in attempts)
        return [each for each in found if each is not None and each.stopping == checkpoint_id]

    def _schedule_after(self, attempt: _SimulatedTask, delay: Time, fact: Callable[[], None]) -> None:
        """What happens to an attempt, unless it has ended by then."""

        def happens() -> None:
            if self._find(attempt.task.job_id, attempt.task.execution_attempt_id) is attempt:
                fact()

        self._world.schedule_after(delay, attempt.address, happens)

    def _pause_clock(self, attempt: _SimulatedTask) -> None:
        if attempt.since is not None:
            subtask = attempt.subtask
            self._ran[subtask] = self._ran.get(subtask, 0) + self._world.now - attempt.since
            attempt.since = None

    def _report(
        self,
        attempt: _SimulatedTask,
        state: ExecutionState,
        failure: str | None = None,
        end: TaskEnd | None = None,
    ) -> None:
        """Its end."""
        self._emit(attempt, state, failure, end)
        self._drop(attempt)

    def _emit(
        self,
        attempt: _SimulatedTask,
        state: ExecutionState,
        failure: str | None = None,
        end: TaskEnd | None = None,
    ) -> None:
        task = attempt.task
        owed = state_change_event(
            task.job_id,
            task.execution_attempt_id,
            state,
            failure,
            end.accumulators if end is not None else None,
            progress_lost=end is not None and end.is_progress_lost,
            cause=self._causes.cause_for(task.execution_attempt_id),
        )
        self._world.append_from_shell(attempt.address, owed)

    def _find(self, job_id: str, execution_attempt_id: str) -> _SimulatedTask | None:
        return self._of_job.get(job_id, {}).get(execution_attempt_id)

    def _put(self, attempt: _SimulatedTask) -> None:
        self._causes.on_run_tasks(attempt.task.execution_attempt_id, attempt.task.cause)
        self._of_job.setdefault(attempt.task.job_id, {})[attempt.task.execution_attempt_id] = attempt

    def _drop(self, attempt: _SimulatedTask) -> None:
        self._causes.on_task_ended(attempt.task.execution_attempt_id)
        of_job = self._of_job[attempt.task.job_id]
        del of_job[attempt.task.execution_attempt_id]
        if not of_job:
            del self._of_job[attempt.task.job_id]
