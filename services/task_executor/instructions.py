"""The instructions of a TaskExecutor: run tasks, stop tasks, and checkpoints in running tasks."""

from __future__ import annotations

from immutables import Map

from ...schemas.types import CheckpointOptions, ExecutionState, JobGraph
from ..core.role import Instruction
from .resources import Task


class RunTasks(Instruction, frozen=True):
    """Run these subtasks of one vertex. They were submitted together and share a query."""

    deployment_id: str
    job_id: str
    job_graph: JobGraph | str
    """The graph, or the key of its blob."""
    vertex_id: str
    attempts: frozenset[str]
    known: Map[str, Task]
    """All tasks of the TaskExecutor: those of `attempts` are looked up on request."""

    @property
    def key(self) -> str:
        return f"run/{self.deployment_id}"

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Returns the subtasks to run, by their index."""
        found = (self.known[attempt] for attempt in sorted(self.attempts))
        return tuple(sorted(found, key=lambda task: task.subtask_index))

    def process_size(self, task: Task) -> int:
        """Returns the number of tasks with which a task of this deployment shares its process.

        A task that ran before continues with those that are left in its slot: others may have finished since.
        """
        if task.slot_tasks == 1 or task.state is ExecutionState.DEPLOYING:
            return task.slot_tasks
        return sum(
            other.allocation_id == task.allocation_id
            and other.subtask_index == task.subtask_index
            and other.state is not ExecutionState.CANCELING
            for other in self.known.values()
        )


class StopTask(Instruction, frozen=True):
    """Cancel a task. The event of its end removes this instruction."""

    execution_attempt_id: str
    job_id: str
    cause: int

    @property
    def key(self) -> str:
        return f"stop/{self.execution_attempt_id}"


class TriggerTasks(Instruction, frozen=True):
    """Trigger a checkpoint in these tasks. It is removed when each task has acknowledged, declined or ended, or when
    the checkpoint is over."""

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
    """Tell these tasks that a checkpoint is complete. No event answers it: it stays until a newer notification of the
    job's checkpoints, so it may reach tasks that have ended or do not know the checkpoint."""

    job_id: str
    checkpoint_id: int
    attempts: tuple[str, ...]
    cause: int

    @property
    def key(self) -> str:
        return f"confirm/{self.job_id}/{self.checkpoint_id}/{self.cause}"


class AbortTasks(Instruction, frozen=True):
    """Tell these tasks that a checkpoint is aborted; removed like ConfirmTasks."""

    job_id: str
    checkpoint_id: int
    attempts: tuple[str, ...]
    cause: int

    @property
    def key(self) -> str:
        return f"abort/{self.job_id}/{self.checkpoint_id}/{self.cause}"
