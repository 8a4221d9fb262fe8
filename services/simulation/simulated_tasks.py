"""The tasks of simulated TaskExecutors: they start, run, take checkpoints and end as their TaskBehavior says.

What-if, forks, and the clusters of tests and benchmarks all run these tasks. They differ in the behavior, and in the
environment of the tasks: a Simulator, the host of a real process, or a process of a test.

The causes of events are those of real TaskExecutors. The cause of a task's event is its SubmitTask, or its CancelTask
after the TaskExecutor has read that. The cause of an acknowledgement is the job's last TriggerCheckpoint that the
TaskExecutor received, if it has the same checkpoint id; otherwise the task's SubmitTask.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...schemas.types import ExecutionState
from ..core.role import JOB_MASTER, Instruction, OutgoingEvent, Time, address
from ..task_executor.acknowledgement_batches import AcknowledgementBatches, Batch
from ..task_executor.instructions import AbortTasks, ConfirmTasks, RunTasks, StopTask, TriggerTasks
from ..task_executor.resources import Task
from .checkpoint_storage import SimulatedStorage, StatePart, part_name
from .simulated_effects import NotSimulated
from .simulated_process import ProcessStarts, SimulatedTask, end_with_process
from .task_behavior import (
    CheckpointContribution,
    Subtask,
    TaskBehavior,
    TaskEnd,
    TaskStart,
    delay_until,
)
from .task_events import acknowledgement_of, decline_checkpoint_event, state_change_event

CheckpointKey = tuple[str, int]
"""(job, checkpoint)."""
_MAX_ENDED = 10_000
_NO_END = TaskEnd()


class TaskEnvironment(Protocol):
    """The environment of simulated tasks."""

    @property
    def now(self) -> Time: ...

    def schedule_after(self, delay: Time, role_address: str, action: Callable[[], None]) -> None:
        """Runs the action after a delay, if the process of the TaskExecutor lives then."""
        ...

    def append_from_shell(self, role_address: str, owed: OutgoingEvent) -> None:
        """Appends an event of the TaskExecutor."""
        ...


AdoptTask = Callable[[str, Task], Sequence[TriggerTasks] | None]
"""(address, a RUNNING task) -> the checkpoints that it has not acknowledged yet, if it ran before the simulation
started; otherwise None: it is started."""


@dataclass
class Channels:
    """The barriers in the channels between the tasks of all jobs."""

    barriers: dict[CheckpointKey, tuple[int, TriggerTasks]] = field(default_factory=dict)
    """-> (the generation of the tasks, the instruction that started the checkpoint)."""

    def remove(self, job_id: str, checkpoint_id: int) -> None:
        """Removes a complete checkpoint: all tasks have received its barrier, and all earlier ones."""
        for key in [key for key in self.barriers if key[0] == job_id and key[1] <= checkpoint_id]:
            del self.barriers[key]


class SimulatedTasks:
    """The tasks of any number of TaskExecutors; performs their instructions."""

    def __init__(
        self,
        environment: TaskEnvironment,
        behavior: TaskBehavior,
        storage: SimulatedStorage,
        *,
        adopt: AdoptTask = lambda *_: None,
        channels: Channels | None = None,
    ) -> None:
        """`channels`: shared with the tasks of other processes. The caller then calls `receive_barriers`; without
        them a barrier reaches all running tasks of the job at once."""
        self._environment = environment
        self._behavior = behavior
        self._storage = storage
        self._adopt_task = adopt
        self._channels = channels or Channels()
        self._is_instant = channels is None
        self._tasks: dict[str, SimulatedTask] = {}
        self._tasks_by_job: dict[str, dict[str, SimulatedTask]] = {}
        self._process_starts = ProcessStarts()
        self._ended: dict[str, None] = {}
        """Attempts that have ended: the newest."""
        self._ran: dict[Subtask, Time] = {}
        """How long each subtask has run since its last end."""
        self._ends: dict[Subtask, int] = {}
        self._triggers: dict[tuple[str, str], tuple[int, int]] = {}
        """(address, job) -> (the last checkpoint that the TaskExecutor had to start, the cause)."""
        self._batches: dict[str, AcknowledgementBatches] = {}
        """By the address of the TaskExecutor."""
        self._lingering: set[str] = set()
        """The addresses whose next batch is scheduled to be sent."""

    def perform(self, role_address: str, instruction: Instruction, state: Any) -> None:
        """Performs an instruction of a TaskExecutor. Raises NotSimulated."""
        match instruction:
            case RunTasks(tasks=tasks):
                for task in tasks:
                    self._start(role_address, task, instruction.process_size(task))
            case StopTask():
                self._stop(role_address, instruction, state)
            case TriggerTasks():
                self._trigger(role_address, instruction)
            case ConfirmTasks(job_id=job_id, checkpoint_id=number, attempts=attempts):
                self._channels.remove(job_id, number)
                for each in self._stopping(attempts, number):
                    self._finish(each, TaskEnd())
            case AbortTasks(checkpoint_id=number, attempts=attempts):
                for each in self._stopping(attempts, number):
                    each.stopping = None
                    self._continue_run(each)
                for own in attempts:
                    if (found := self._tasks.get(own)) is not None:
                        found.aborted.add(number)
            case _:
                raise NotSimulated(instruction)

    def running(self) -> Mapping[str, Subtask]:
        """Returns the attempts that run, and their subtasks."""
        return {key: each.subtask for key, each in self._tasks.items() if each.is_running}

    def waiting(self) -> Mapping[str, Task]:
        """Returns the attempts that wait for the other tasks of their process."""
        return {each.task.execution_attempt_id: each.task for each in self._process_starts}

    def is_stopping(self, execution_attempt_id: str) -> bool:
        """Returns whether the attempt has acknowledged a savepoint that it stops for."""
        found = self._tasks.get(execution_attempt_id)
        return found is not None and found.stopping is not None

    def end(self, execution_attempt_id: str, end: TaskEnd) -> bool:
        """Ends a running attempt; returns False if it does not run."""
        found = self._tasks.get(execution_attempt_id)
        if found is None or not found.is_running:
            return False
        self._finish(found, end)
        return True

    def fail(self, subtask: Subtask, reason: str) -> bool:
        """Fails the running attempt of a subtask; returns False if none runs."""
        tasks = self._tasks_by_job.get(subtask[0], {}).items()
        attempt = next((key for key, each in tasks if each.subtask == subtask and each.is_running), "")
        return self.end(attempt, TaskEnd(0, ExecutionState.FAILED, reason))

    def lose(self, execution_attempt_ids: Iterable[str]) -> None:
        """Drops the processes of the attempts without an event."""
        for key in execution_attempt_ids:
            found = self._tasks.get(key)
            for attempt in () if found is None else found.process or [found]:
                self._pause_clock(attempt)
                attempt.is_running = False

    def pause(self, role_address: str) -> None:
        """Stops the tasks of the TaskExecutor until it resumes."""
        for attempt in self._attempts_at(role_address):
            self._pause_clock(attempt)

    def resume(self, role_address: str) -> None:
        """Lets the tasks of the TaskExecutor continue."""
        for attempt in self._attempts_at(role_address):
            if attempt.is_running and attempt.since is None and attempt.stopping is None:
                self._continue_run(attempt)

    def on_process_ended(self, role_address: str) -> None:
        """Ends the tasks of a TaskExecutor whose process has ended."""
        for key in [key for key in self._triggers if key[0] == role_address]:
            del self._triggers[key]
        self._batches.pop(role_address, None)
        self._lingering.discard(role_address)
        for attempt in self._attempts_at(role_address):
            self._pause_clock(attempt)
            self._remove(attempt)

    def waiting_barriers(self) -> list[tuple[str, TriggerTasks]]:
        """Returns the barriers in the channels that running attempts have not received, and that are not known to be
        over, as those of an aborted savepoint."""
        return [
            (key, trigger)
            for (job_id, number), (generation, trigger) in self._channels.barriers.items()
            for key, attempt in self._tasks_by_job.get(job_id, {}).items()
            if attempt.is_running
            and attempt.task.generation == generation
            and number > attempt.task.checkpoints_over
            and number not in attempt.received | attempt.aborted
        ]

    def receive_barriers(self, is_late: Callable[[], bool] = lambda: False) -> None:
        """Delivers the barriers in the channels to the attempts, in order. `is_late`: whether an attempt receives
        one later only."""
        late = set()
        for key, trigger in self.waiting_barriers():
            if key in late or is_late():
                late.add(key)
            elif (attempt := self._tasks.get(key)) is not None:
                self._receive(attempt, trigger)

    def _attempts_at(self, role_address: str) -> list[SimulatedTask]:
        return [task for task in self._tasks.values() if task.address == role_address]

    def _start(self, role_address: str, task: Task, process_size: int) -> None:
        started = []
        for attempt in self._process_starts.add(self._add(role_address, task), process_size):
            if attempt.task.state is ExecutionState.RUNNING:
                barriers = self._adopt_task(role_address, attempt.task)
                if barriers is not None:
                    self._adopt(attempt, barriers)
                    continue
            started.append((attempt, self._behavior.start(attempt.task, self._environment.now)))
        for attempt, start in started:
            if start.reports_initializing:
                self._report(attempt, ExecutionState.INITIALIZING)
        if started:
            after = max(start.after for _, start in started)
            self._environment.schedule_after(after, role_address, lambda: self._on_started(started))

    def _adopt(self, attempt: SimulatedTask, barriers: Sequence[TriggerTasks]) -> None:
        attempt.is_running = True
        attempt.stopping = attempt.task.stopped_by_savepoint
        if attempt.stopping is None:
            for trigger in barriers:
                self._receive(attempt, trigger)
            self._continue_run(attempt)

    def _on_started(self, started: Sequence[tuple[SimulatedTask, TaskStart]]) -> None:
        for attempt, start in started:
            if start.instead is not None and self._may_start(attempt):
                self._end_by_itself(attempt, start.instead)
        running = [attempt for attempt, _ in started if self._may_start(attempt)]
        for attempt in running:
            attempt.is_running = True
            self._report(attempt, ExecutionState.RUNNING)
        for attempt in running:
            if not self._is_present(attempt):
                # Another task of the process has failed at once.
                continue
            if attempt.task.finished:
                self._finish(attempt, TaskEnd())
            else:
                self._continue_run(attempt)

    def _may_start(self, attempt: SimulatedTask) -> bool:
        return self._is_present(attempt) and not attempt.is_cancelled

    def _is_present(self, attempt: SimulatedTask) -> bool:
        return self._tasks.get(attempt.task.execution_attempt_id) is attempt

    def _continue_run(self, attempt: SimulatedTask) -> None:
        """Runs the task from now on, until its end or until it is interrupted."""
        now, subtask = self._environment.now, attempt.subtask
        attempt.since = now
        end = self._behavior.end(subtask, self._ends.get(subtask, 0))
        if end is None:
            return

        def over() -> None:
            if attempt.since == now:
                self._end_by_itself(attempt, end)

        delay = max(0, end.after - self._ran.get(subtask, 0))
        self._schedule(attempt, delay_until(now, delay, end.at), over)

    def _end_by_itself(self, attempt: SimulatedTask, end: TaskEnd) -> None:
        subtask = attempt.subtask
        self._ends[subtask] = self._ends.get(subtask, 0) + 1
        self._finish(attempt, end)
        self._ran.pop(subtask, None)

    def _finish(self, attempt: SimulatedTask, end: TaskEnd) -> None:
        """Ends a task, and with it its process unless it has finished."""
        others = [] if end.state is ExecutionState.FINISHED else attempt.process
        others = [each for each in others if each is not attempt and not each.is_cancelled]
        self._end(attempt, end)
        for other in others:
            subtask = other.subtask
            own = self._behavior.end(subtask, self._ends.get(subtask, 0))
            counted = self._behavior.stop(other.task, self._environment.now)
            with_process = end_with_process(attempt, end, counted, own)
            self._end(other, with_process)
            if with_process is own:
                self._ends[subtask] = self._ends.get(subtask, 0) + 1
                self._ran.pop(subtask, None)

    def _end(self, attempt: SimulatedTask, end: TaskEnd) -> None:
        self._pause_clock(attempt)
        self._report(attempt, end.state, end)
        self._remove(attempt)
        if len(self._ended) >= _MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[attempt.task.execution_attempt_id] = None

    def _stop(self, role_address: str, instruction: StopTask, state: Any) -> None:
        own, stopping = instruction.execution_attempt_id, state.stopping
        attempt = self._tasks.get(own)
        if attempt is None:
            if own in self._ended:
                return
            # It was never started, but its JobMaster waits for its end.
            attempt = self._add(role_address, state.tasks[own])
        self._process_starts.remove(attempt)
        attempt.cause = instruction.cause
        for each in list(attempt.process or [attempt]):
            if not each.is_cancelled:
                each.cause = stopping.get(each.task.execution_attempt_id, each.cause)
                self._cancel(each)

    def _cancel(self, attempt: SimulatedTask) -> None:
        end = self._behavior.stop(attempt.task, self._environment.now)
        self._pause_clock(attempt)
        attempt.is_running, attempt.is_cancelled = False, True
        self._schedule(attempt, end.after, lambda: self._finish(attempt, end))

    def _trigger(self, role_address: str, trigger: TriggerTasks) -> None:
        key = trigger.job_id, trigger.checkpoint_id
        self._triggers[role_address, trigger.job_id] = trigger.checkpoint_id, trigger.cause
        here = [
            each for own in trigger.attempts if (each := self._tasks.get(own)) is not None and each.is_running
        ]
        if self._is_instant:
            if key not in self._channels.barriers and here:
                self._channels.barriers[key] = here[0].task.generation, trigger
                for own, barrier in self.waiting_barriers():
                    if barrier is trigger:
                        self._receive(self._tasks[own], trigger)
            return
        for attempt in here:
            self._channels.barriers.setdefault(key, (attempt.task.generation, trigger))
            self._receive(attempt, trigger)

    def _receive(self, attempt: SimulatedTask, trigger: TriggerTasks) -> None:
        if trigger.checkpoint_id in attempt.received:
            return
        attempt.received.add(trigger.checkpoint_id)
        part = self._behavior.contribution(attempt.task, trigger, self._environment.now)
        if part is not None:
            self._schedule(attempt, part.after, functools.partial(self._acknowledge, attempt, trigger, part))

    def _acknowledge(
        self, attempt: SimulatedTask, trigger: TriggerTasks, part: CheckpointContribution
    ) -> None:
        job_id, number, options = trigger.job_id, trigger.checkpoint_id, trigger.options
        if not attempt.is_running or attempt.stopping is not None or number in attempt.aborted:
            return
        own = attempt.task.execution_attempt_id
        newest, cause = self._triggers.get((attempt.address, job_id), (None, -1))
        cause = cause if newest == number else attempt.cause
        if part.declined is not None:
            self._append(attempt, decline_checkpoint_event(job_id, own, number, part.declined, cause=cause))
            return
        _, vertex, index = attempt.subtask
        self._storage.write(options.directory, part_name(vertex, index), StatePart(own, part.count))
        if options.stops:
            attempt.stopping = number
            self._pause_clock(attempt)
        done = acknowledgement_of(own, part.accumulators, stops=options.stops)

        def running() -> list[str]:
            return [
                key for key, each in self._tasks_by_job[job_id].items() if each.address == attempt.address
            ]

        batches = self._batches.setdefault(attempt.address, AcknowledgementBatches())
        for _ in range(part.copies):
            now = self._environment.now
            ready = batches.add(job_id, number, done, running=running, cause=cause, now_us=now)
            self._send(attempt.address, ready)
        self._start_linger(attempt.address, batches)

    def _start_linger(self, role_address: str, batches: AcknowledgementBatches) -> None:
        """Schedules the next batch of a TaskExecutor, unless it is scheduled already."""
        due = batches.due_us()
        if due is None or role_address in self._lingering:
            return
        self._lingering.add(role_address)

        def on_linger() -> None:
            if self._batches.get(role_address) is batches:
                self._lingering.discard(role_address)
                self._send(role_address, batches.take_due(due))
                self._start_linger(role_address, batches)

        self._environment.schedule_after(max(0, due - self._environment.now), role_address, on_linger)

    def _append(self, attempt: SimulatedTask, owed: OutgoingEvent) -> None:
        """Appends an event of a task, after the acknowledgements of its job that wait for others."""
        batches = self._batches.get(attempt.address)
        if batches is not None:
            self._send(attempt.address, batches.take_job(attempt.task.job_id))
        self._environment.append_from_shell(attempt.address, owed)

    def _send(self, role_address: str, batches: Iterable[Batch]) -> None:
        for body, cause in batches:
            owed = OutgoingEvent(address(JOB_MASTER, body.job_id), body, cause)
            self._environment.append_from_shell(role_address, owed)

    def _stopping(self, attempts: Iterable[str], checkpoint_id: int) -> list[SimulatedTask]:
        found = (self._tasks.get(attempt) for attempt in attempts)
        return [each for each in found if each is not None and each.stopping == checkpoint_id]

    def _schedule(self, attempt: SimulatedTask, delay: Time, action: Callable[[], None]) -> None:
        """Schedules an action that is dropped if the attempt has ended by then."""

        def run() -> None:
            if self._is_present(attempt):
                action()

        self._environment.schedule_after(delay, attempt.address, run)

    def _pause_clock(self, attempt: SimulatedTask) -> None:
        if attempt.since is not None:
            subtask = attempt.subtask
            self._ran[subtask] = self._ran.get(subtask, 0) + self._environment.now - attempt.since
            attempt.since = None

    def _report(self, attempt: SimulatedTask, state: ExecutionState, end: TaskEnd = _NO_END) -> None:
        owed = state_change_event(
            attempt.task.job_id,
            attempt.task.execution_attempt_id,
            state,
            end.failure,
            end.accumulators,
            progress_lost=end.is_progress_lost,
            cause=attempt.cause,
        )
        self._append(attempt, owed)

    def _add(self, role_address: str, task: Task) -> SimulatedTask:
        attempt = SimulatedTask(task, role_address, task.cause)
        self._tasks[task.execution_attempt_id] = attempt
        self._tasks_by_job.setdefault(task.job_id, {})[task.execution_attempt_id] = attempt
        return attempt

    def _remove(self, attempt: SimulatedTask) -> None:
        self._process_starts.remove(attempt)
        if attempt in attempt.process:
            attempt.process.remove(attempt)
        key, job_id = attempt.task.execution_attempt_id, attempt.task.job_id
        del self._tasks[key], self._tasks_by_job[job_id][key]
        if not self._tasks_by_job[job_id]:
            del self._tasks_by_job[job_id]
