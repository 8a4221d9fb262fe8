"""The behavior of simulated tasks: how long they start and run, how they end, and when they acknowledge checkpoints.

The run time of a subtask counts over all its attempts: a restarted attempt continues where the last one stopped, as a
real task does whose progress is in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from ...schemas.types import ExecutionState
from ..core.role import Time
from ..task_executor.instructions import TriggerTasks
from ..task_executor.resources import Task
from .latencies import Latencies, Work

Subtask = tuple[str, str, int]
"""(job, vertex, index)."""
SAME_TIME: Time = 100_000
"""Times that differ by no more are taken as the same."""


def subtask_of(task: Task) -> Subtask:
    """Returns the subtask that a task is an attempt of."""
    return task.job_id, task.vertex_id, task.subtask_index


def delay_until(now: Time, delay: Time, at: Time | None) -> Time:
    """Returns the delay; if it ends at about the recorded time `at`, the delay until exactly then, so that small
    differences do not add up."""
    if at is None or abs(now + delay - at) > SAME_TIME:
        return delay
    return max(0, at - now)


class TaskEnd(msgspec.Struct, frozen=True):
    """How an attempt ends: after its subtask has run for `after` since its last end, or that long after its
    cancellation."""

    after: Time = 0
    state: ExecutionState = ExecutionState.FINISHED
    failure: str | None = None
    accumulators: Mapping[str, float] = {}
    is_progress_lost: bool = False
    at: Time | None = None
    """The recorded time of the end that is repeated."""


class TaskStart(msgspec.Struct, frozen=True):
    """How an attempt starts: it runs after a delay, or ends then without having run."""

    after: Time = 0
    instead: TaskEnd | None = None
    reports_initializing: bool = False


class CheckpointContribution(msgspec.Struct, frozen=True):
    """The part of a task in a checkpoint: it acknowledges after a delay, or declines then for a reason."""

    after: Time = 0
    declined: str | None = None
    count: int = 0
    """The records that the state has counted."""
    accumulators: Mapping[str, float] = {}
    copies: int = 1
    """How often it is acknowledged."""


class TaskBehavior(Protocol):
    """Defines the behavior of all tasks of a simulation."""

    def start(self, task: Task, now: Time) -> TaskStart:
        """Returns how an attempt starts that is started now."""
        ...

    def stop(self, task: Task, now: Time) -> TaskEnd:
        """Returns how an attempt ends that is cancelled now."""
        ...

    def end(self, subtask: Subtask, ended: int) -> TaskEnd | None:
        """Returns how the attempts of the subtask end next, after `ended` ends by themselves; None: never."""
        ...

    def contribution(self, task: Task, trigger: TriggerTasks, now: Time) -> CheckpointContribution | None:
        """Returns the task's part in a checkpoint whose barrier reaches it now; None: it never acknowledges."""
        ...


class UniformTaskBehavior:
    """All tasks run for the same time, or for ever. Without latencies everything else takes no time."""

    def __init__(self, latencies: Latencies | None = None, run: Time | None = None) -> None:
        self._latencies = latencies
        self._run = run

    def start(self, task: Task, now: Time) -> TaskStart:
        del now
        return TaskStart(self._take(Work.START_TASK, *subtask_of(task), task.attempt_number))

    def stop(self, task: Task, now: Time) -> TaskEnd:
        del now
        after = self._take(Work.STOP_TASK, *subtask_of(task), task.attempt_number)
        return TaskEnd(after, ExecutionState.CANCELED)

    def end(self, subtask: Subtask, ended: int) -> TaskEnd | None:
        del subtask, ended
        return None if self._run is None else TaskEnd(self._run)

    def contribution(self, task: Task, trigger: TriggerTasks, now: Time) -> CheckpointContribution | None:
        del now
        what = (task.job_id, trigger.checkpoint_id, *subtask_of(task))
        return CheckpointContribution(self._take(Work.CHECKPOINT, *what))

    def _take(self, work: Work, *what: object) -> Time:
        return 0 if self._latencies is None else self._latencies.take(work, *what)
