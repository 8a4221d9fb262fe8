"""What a TaskExecutor demands of the world: tasks that run, tasks that stop."""

from __future__ import annotations

from immutables import Map

from ...schemas.types import JobGraph
from ..roles import (
    Instruction,
)
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
