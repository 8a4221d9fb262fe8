"""Simulated effects for roles that run in real hosts: topics exist at once, and tasks run at once.

Every effect completes immediately, on the host's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...schemas.types import ExecutionState
from ..core.instruction_tracker import InstructionTracker
from ..core.role import Emit, Instruction
from ..job_master.instructions import (
    DiscardCheckpoint,
    FindCheckpoint,
    RemoveCheckpoints,
    WriteMetadata,
)
from ..task_executor.instructions import AbortTasks, ConfirmTasks, RunTasks, StopTask, TriggerTasks
from ..task_executor.state import Task
from .checkpoint_storage import SimulatedStorage
from .event_causes import EventCauses
from .simulated_effects import NotSimulated, perform
from .task_events import acknowledge_checkpoint_event, state_change_event

FollowHeartbeats = Callable[[str, Any], object]
"""Told of each address and state, as the heartbeats of a real shell are."""
_FILE_INSTRUCTIONS = WriteMetadata | DiscardCheckpoint | FindCheckpoint | RemoveCheckpoints


class CheckpointFiles(Protocol):
    """What obeys instructions about checkpoints' files: a CheckpointShell, where they are really to be written."""

    def perform(self, role_address: str, instruction: _FILE_INSTRUCTIONS) -> None: ...

    def close(self) -> None: ...


class NoTopicJobMasterEffects:
    """A JobMaster's shell. Without `files`, checkpoints are a table that ends with the process, and what was there
    before is whole."""

    def __init__(
        self,
        say: Emit,
        follow: FollowHeartbeats = lambda *_: None,
        on_retire: Callable[[str], object] = lambda _: None,
        *,
        files: CheckpointFiles | None = None,
    ) -> None:
        self._say = say
        self._follow = follow
        self._on_retire = on_retire
        self._files = files
        self._storage = SimulatedStorage()
        self._begun = InstructionTracker()

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._follow(role_address, state)
        for instruction in self._begun.take_new(role_address, instructions):
            if self._files is not None and isinstance(instruction, _FILE_INSTRUCTIONS):
                self._files.perform(role_address, instruction)
                continue
            if isinstance(instruction, FindCheckpoint):
                self._storage.add_candidates(instruction)
            self._say(role_address, perform(role_address, instruction, self._storage))

    def retire(self, role_address: str) -> None:
        self._begun.reset(role_address)
        self._on_retire(role_address)

    def close(self) -> None:
        if self._files is not None:
            self._files.close()


class NoOpTaskExecutorEffects:
    """The shell of any number of TaskExecutors of one process, whose tasks run until they are told to stop.

    Checkpoints of these tasks hold nothing, and barriers take no time: as soon as one task of a job is told of a
    checkpoint, all that run here have acknowledged it.
    """

    def __init__(self, say: Emit, follow: FollowHeartbeats = lambda *_: None) -> None:
        self._say = say
        self._follow = follow
        self._begun = InstructionTracker()
        self._causes = EventCauses()
        self._running: dict[str, dict[str, str]] = {}
        """Job -> attempt -> its TaskExecutor."""
        self._acknowledged: dict[str, int] = {}
        """Job -> its newest checkpoint."""
        self._stopping: dict[str, int] = {}
        """Attempt -> the savepoint that it stands still behind."""

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._follow(role_address, state)
        for instruction in self._begun.take_new(role_address, instructions):
            match instruction:
                case RunTasks(tasks=tasks):
                    for task in tasks:
                        self._run(role_address, task)
                case StopTask(execution_attempt_id=attempt, job_id=job_id, cause=cause):
                    self._causes.on_run_tasks(attempt, cause)
                    self._end(role_address, job_id, attempt, ExecutionState.CANCELED)
                case TriggerTasks(job_id=job_id, checkpoint_id=number, cause=cause):
                    self._causes.on_instruction(role_address, job_id, number, cause)
                    self._acknowledge(instruction)
                case ConfirmTasks(job_id=job_id, checkpoint_id=number, attempts=attempts):
                    for attempt in attempts:
                        if self._stopping.get(attempt) == number:
                            self._end(role_address, job_id, attempt, ExecutionState.FINISHED)
                case AbortTasks(checkpoint_id=number, attempts=attempts):
                    for attempt in attempts:
                        if self._stopping.get(attempt) == number:
                            del self._stopping[attempt]
                case _:
                    raise NotSimulated(instruction)

    def retire(self, role_address: str) -> None:
        self._begun.reset(role_address)
        self._causes.on_process_ended(role_address)

    def close(self) -> None:
        pass

    def _run(self, role_address: str, task: Task) -> None:
        attempt, job_id = task.execution_attempt_id, task.job_id
        self._running.setdefault(job_id, {})[attempt] = role_address
        self._causes.on_run_tasks(attempt, task.cause)
        for reached in (ExecutionState.INITIALIZING, ExecutionState.RUNNING):
            self._say(role_address, state_change_event(job_id, attempt, reached, cause=task.cause))
        if task.finished:
            self._end(role_address, job_id, attempt, ExecutionState.FINISHED)

    def _end(self, role_address: str, job_id: str, attempt: str, state: ExecutionState) -> None:
        self._running.get(job_id, {}).pop(attempt, None)
        self._stopping.pop(attempt, None)
        self._say(
            role_address, state_change_event(job_id, attempt, state, cause=self._causes.cause_for(attempt))
        )
        self._causes.on_task_ended(attempt)

    def _acknowledge(self, told: TriggerTasks) -> None:
        job_id, number = told.job_id, told.checkpoint_id
        if self._acknowledged.get(job_id, 0) >= number:
            return
        self._acknowledged[job_id] = number
        for attempt, role_address in self._running.get(job_id, {}).items():
            if told.options.stops:
                self._stopping[attempt] = number
            cause = self._causes.cause_for_acknowledgement(role_address, job_id, attempt, number)
            owed = acknowledge_checkpoint_event(
                job_id, attempt, number, stops=told.options.stops, cause=cause
            )
            self._say(role_address, owed)


class HeartbeatOnlyEffects:
    """A shell that obeys nothing: the ResourceManager's, where workers are started by hand."""

    def __init__(self, follow: FollowHeartbeats) -> None:
        self._follow = follow

    def retire(self, role_address: str) -> None: ...

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._follow(role_address, state)

    def close(self) -> None:
        pass
