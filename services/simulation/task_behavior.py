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
from ..task_executor.state import Task
from .latencies import Latencies, Work

Subtask = tuple[str, str, int]
"""(job, vertex, index)."""
IN_STEP: Time = 100_000
"""Who is no further than this from a time that is known of something is taken to be there at the same time."""


def step_delay(now: Time, delay: Time, at: Time | None) -> Time:
    """The delay, or just the one until `at`, where that is about the same: small differences do not add up."""
    if at is None or abs(now + delay - at) > IN_STEP:
        return delay
    return max(0, at - now)


class TaskEnd(msgspec.Struct, frozen=True):
    """How an attempt ends by itself, once its subtask has run for `after` since it last ended so."""

    after: Time
    state: ExecutionState = ExecutionState.FINISHED
    failure: str | None = None
    accumulators: Mapping[str, float] = {}
    is_progress_lost: bool = False
    at: Time | None = None
    """When one ended so that is to happen again."""


class TaskStart(msgspec.Struct, frozen=True):
    """How an attempt begins: it runs after a delay, or ends then without ever having run."""

    after: Time
    instead: TaskEnd | None = None


class CheckpointContribution(msgspec.Struct, frozen=True):
    """A part in a checkpoint: acknowledged after a delay, or declined then, with a reason."""

    after: Time
    declined: str | None = None


class TaskBehavior(Protocol):
    """Of all tasks of a world."""

    def start(self, task: Task, now: Time) -> TaskStart:
        """Of an attempt that begins now."""
        ...

    def stop(self, task: Task, now: Time) -> Time:
        """How long it takes to cancel it."""
        ...

    def end(self, subtask: Subtask, ended: int) -> TaskEnd | None:
        """How the subtask's attempts end, which have ended by themselves so often; None: they run for ever."""
        ...

    def contribution(self, task: Task, checkpoint_id: int, now: Time) -> CheckpointContribution:
        """Its part in a checkpoint that reaches it now."""
        ...


class UniformTaskBehavior:
    """All tasks run for the same time, or for ever."""

    def __init__(self, latencies: Latencies, run: Time | None = None) -> None:
        self._latencies = latencies
        self._run = run

    def start(self, task: Task, now: Time) -> TaskStart:
        del now
        what = (task.job_id, task.vertex_id, task.subtask_index, task.attempt_number)
        return TaskStart(self._latencies.take(Work.START_TASK, *what))

    def stop(self, task: Task, now: Time) -> Time:
        del now
        what = (task.job_id, task.vertex_id, task.subtask_index, task.attempt_number)
        return self._latencies.take(Work.STOP_TASK, *what)

    def end(self, subtask: Subtask, ended: int) -> TaskEnd | None:
        del subtask, ended
        return None if self._run is None else TaskEnd(self._run)

    def contribution(self, task: Task, checkpoint_id: int, now: Time) -> CheckpointContribution:
        del now
        what = (task.job_id, checkpoint_id, task.job_id, task.vertex_id, task.subtask_index)
        return CheckpointContribution(self._latencies.take(Work.CHECKPOINT, *what))
