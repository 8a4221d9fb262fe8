"""Simulated effects for roles that run in real hosts: topics exist at once, and tasks run at once.

Every effect completes immediately, on the host's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..core.instruction_tracker import InstructionTracker
from ..core.role import Emit, Instruction, Time
from ..job_master.instructions import (
    DiscardCheckpoint,
    FindCheckpoint,
    MeasureTasks,
    RemoveCheckpoints,
    WriteMetadata,
)
from ..task_executor.resources import Task
from .checkpoint_storage import SimulatedStorage
from .simulated_effects import perform
from .simulated_tasks import SimulatedTasks
from .task_behavior import TaskBehavior, TaskStart, UniformTaskBehavior

FollowHeartbeats = Callable[[str, Any], object]
"""Called with each address and state, as the heartbeats of a real shell are."""
_FILE_INSTRUCTIONS = WriteMetadata | DiscardCheckpoint | FindCheckpoint | RemoveCheckpoints


class CheckpointFiles(Protocol):
    """Performs the instructions about the files of checkpoints: a CheckpointShell, if they are really written."""

    def perform(self, role_address: str, instruction: _FILE_INSTRUCTIONS) -> None: ...

    def close(self) -> None: ...


class NoTopicJobMasterEffects:
    """The shell of JobMasters. Without `files`, checkpoints are a table in memory; those of earlier processes count as
    complete."""

    def __init__(
        self,
        emit: Emit,
        follow: FollowHeartbeats = lambda *_: None,
        on_retire: Callable[[str], object] = lambda _: None,
        *,
        files: CheckpointFiles | None = None,
    ) -> None:
        self._emit = emit
        self._follow = follow
        self._on_retire = on_retire
        self._files = files
        self._storage = SimulatedStorage()
        self._instructions = InstructionTracker()

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._follow(role_address, state)
        for instruction in self._instructions.take_new(role_address, instructions):
            if self._files is not None and isinstance(instruction, _FILE_INSTRUCTIONS):
                self._files.perform(role_address, instruction)
                continue
            if isinstance(instruction, MeasureTasks):
                # These tasks do nothing that could be measured.
                continue
            if isinstance(instruction, FindCheckpoint):
                self._storage.add_candidates(instruction)
            self._emit(role_address, perform(role_address, instruction, self._storage))

    def retire(self, role_address: str) -> None:
        self._instructions.reset(role_address)
        self._on_retire(role_address)

    def close(self) -> None:
        if self._files is not None:
            self._files.close()


class InstantTaskBehavior(UniformTaskBehavior):
    """Tasks run for ever; everything else takes no time."""

    def start(self, task: Task, now: Time) -> TaskStart:
        return TaskStart(reports_initializing=True)


class NoOpTaskExecutorEffects:
    """The shell of any number of TaskExecutors of one process, and the environment of their tasks. Actions without a
    delay run at once, all others when `run_delayed` is called."""

    now: Time = 0

    def __init__(
        self,
        emit: Emit,
        follow: FollowHeartbeats = lambda *_: None,
        behavior: TaskBehavior | None = None,
    ) -> None:
        self.append_from_shell = emit
        self._follow = follow
        self._instructions = InstructionTracker()
        self.tasks = SimulatedTasks(self, behavior or InstantTaskBehavior(), SimulatedStorage())
        self._delayed: list[Callable[[], None]] = []

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._follow(role_address, state)
        for instruction in self._instructions.take_new(role_address, instructions):
            self.tasks.perform(role_address, instruction, state)

    def schedule_after(self, delay: Time, role_address: str, action: Callable[[], None]) -> None:
        if delay == 0:
            action()
        else:
            self._delayed.append(action)

    def run_delayed(self) -> None:
        """Runs the delayed actions."""
        delayed, self._delayed = self._delayed, []
        for action in delayed:
            action()

    def retire(self, role_address: str) -> None:
        self._instructions.reset(role_address)
        self.tasks.on_process_ended(role_address)

    def close(self) -> None:
        pass


class HeartbeatOnlyEffects:
    """A shell that performs no instruction: that of a ResourceManager whose workers a user starts."""

    def __init__(self, follow: FollowHeartbeats) -> None:
        self._follow = follow

    def retire(self, role_address: str) -> None: ...

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._follow(role_address, state)

    def close(self) -> None:
        pass
