"""The instructions of a TaskExecutor: run tasks, stop tasks, and checkpoints in running tasks."""

from __future__ import annotations

from immutables import Map

from ...schemas.types import CheckpointOptions, JobGraph
from ..core.role import Instruction
from .state import (
    Task,
)


class RunTasks(Instruction, frozen=True):
    """Run these subtasks of one vertex; they were deployed together and share a query."""

    deployment_id: str
    job_id: str
    job_graph: JobGraph
    vertex_id: str
    attempts: frozenset[str]
    known: Map[str, Task]
    """All tasks of the TaskExecutor: those of `attempts` are looked up when they are asked for."""

    @property
    def key(self) -> str:
        return f"run/{self.deployment_id}"

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Those that are to run, in the order in which they were submitted."""
        return tuple(sorted((self.known[each] for each in self.attempts), key=lambda task: task.cause))


class StopTask(Instruction, frozen=True):
    """Cancel a task; the event that it has ended is what removes this instruction."""

    execution_attempt_id: str
    job_id: str
    cause: int

    @property
    def key(self) -> str:
        return f"stop/{self.execution_attempt_id}"


class TriggerTasks(Instruction, frozen=True):
    """Begin a checkpoint in these tasks. What removes this is what each of them says: AcknowledgeCheckpoint,
    DeclineCheckpoint, or that it has ended; or the end of the checkpoint.
    """

    job_id: str
    checkpoint_id: int
    attempts: tuple[str, ...]
    timestamp: int
    """When the checkpoint was triggered, in microseconds since the epoch."""
    options: CheckpointOptions
    cause: int

    @property
    def key(self) -> str:
        return f"trigger/{self.job_id}/{self.checkpoint_id}"


class ConfirmTasks(Instruction, frozen=True):
    """Tell these tasks that a checkpoint is complete. Nothing answers it: it stands until something newer is said of
    the job's checkpoints, so it may reach tasks that have ended, or that know nothing of it.
    """

    job_id: str
    checkpoint_id: int
    attempts: tuple[str, ...]
    cause: int

    @property
    def key(self) -> str:
        return f"confirm/{self.job_id}/{self.checkpoint_id}/{self.cause}"


class AbortTasks(Instruction, frozen=True):
    """Tell these tasks that a checkpoint will not be completed; as ConfirmTasks."""

    job_id: str
    checkpoint_id: int
    attempts: tuple[str, ...]
    cause: int

    @property
    def key(self) -> str:
        return f"abort/{self.job_id}/{self.checkpoint_id}/{self.cause}"
