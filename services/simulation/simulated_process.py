"""The processes of simulated tasks: all tasks of a job in a slot are one, if they were submitted so.

A process starts when its last task is there. Its tasks fail and are cancelled together; each may finish alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...schemas.types import ExecutionState
from ..core.role import Time
from ..task_executor.resources import Task
from .task_behavior import Subtask, TaskEnd, subtask_of


@dataclass(eq=False)
class SimulatedTask:
    """An Execution that a TaskExecutor has started."""

    task: Task
    address: str
    cause: int
    since: Time | None = None
    """When it started or continued to run; None: it does not run."""
    is_running: bool = False
    is_cancelled: bool = False
    stopping: int | None = None
    """The savepoint that it has acknowledged and stops for."""
    received: set[int] = field(default_factory=set)
    """The checkpoints whose barriers it has received."""
    aborted: set[int] = field(default_factory=set)
    process: list[SimulatedTask] = field(default_factory=list)
    """The tasks of its process that have not ended, by their submission; empty while it waits for the others."""

    @property
    def subtask(self) -> Subtask:
        return subtask_of(self.task)


_Slot = tuple[str, str, int]
"""(address of the TaskExecutor, allocation, subtask index)."""


class ProcessStarts:
    """Tasks that wait for the other tasks of their process."""

    def __init__(self) -> None:
        self._waiting: dict[_Slot, list[SimulatedTask]] = {}

    def add(self, task: SimulatedTask, size: int) -> list[SimulatedTask]:
        """Returns the tasks of the process, with `size` tasks, that starts with this task; empty if others are
        missing."""
        slot = task.address, task.task.allocation_id, task.task.subtask_index
        tasks = [*self._waiting.pop(slot, ()), task]
        if len(tasks) < size:
            self._waiting[slot] = tasks
            return []
        for each in tasks:
            each.process = tasks
        return list(tasks)

    def remove(self, task: SimulatedTask) -> None:
        """Removes a task that ends before its process starts."""
        slot = task.address, task.task.allocation_id, task.task.subtask_index
        left = [each for each in self._waiting.get(slot, ()) if each is not task]
        if left:
            self._waiting[slot] = left
        else:
            self._waiting.pop(slot, None)

    def __iter__(self) -> Iterator[SimulatedTask]:
        return (task for tasks in self._waiting.values() for task in tasks)


def end_with_process(first: SimulatedTask, end: TaskEnd, counted: TaskEnd, own: TaskEnd | None) -> TaskEnd:
    """Returns the end of a task whose process ends with another task, as `end` says.

    `counted`: its end by a cancellation, for its accumulators. `own`: its next end by itself: the same if that is a
    failure.
    """
    if end.state is not ExecutionState.FAILED:
        return TaskEnd(0, end.state, accumulators=counted.accumulators)
    if own is not None and own.state is ExecutionState.FAILED:
        return own
    _, vertex_id, index = first.subtask
    reason = f"{vertex_id} ({index + 1}) in the same slot failed: {end.failure}"
    return TaskEnd(0, ExecutionState.FAILED, reason, counted.accumulators)
