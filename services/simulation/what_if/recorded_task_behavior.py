"""The behavior of simulated tasks that repeat what a log recorded."""

from __future__ import annotations

from msgspec.structs import replace

from ....schemas.types import ExecutionState
from ...core.role import Time
from ...task_executor.state import Task
from ..latencies import Latencies
from ..task_behavior import CheckpointContribution, Subtask, TaskEnd, TaskStart, UniformTaskBehavior
from .recorded_checkpoint_acks import RecordedCheckpointAcks
from .recorded_task_times import RecordedTaskTimes


class RecordedTaskBehavior:
    """A Life: each subtask does what it did. One that did not end then runs for ever; of what it had not to do then
    (start again, be cancelled), nothing is known but what is usual."""

    def __init__(
        self,
        scripts: RecordedTaskTimes,
        contributions: RecordedCheckpointAcks,
        latencies: Latencies,
        *,
        fixed_start: bool = False,
    ) -> None:
        """`fixed_start`: how long a start takes is what the latencies say, whatever was recorded."""
        self._scripts = scripts
        self._contributions = contributions
        self._fixed_start = fixed_start
        self._usual = UniformTaskBehavior(latencies)
        self._begun: dict[tuple[Subtask, int], int] = {}
        self._alike: dict[str, tuple[str, RecordedTaskTimes]] = {}

    def like(self, job_id: str, other: str, scripts: RecordedTaskTimes) -> None:
        """A job's tasks run as long as those of another one did; of more subtasks, those again."""
        self._alike[job_id] = other, scripts

    def start(self, task: Task, now: Time) -> TaskStart:
        subtask = task.job_id, task.vertex_id, task.subtask_index
        key = subtask, task.attempt_number
        number = self._begun.get(key, 0)
        self._begun[key] = number + 1
        known = [] if self._fixed_start else self._scripts.starts.get(key, [])
        usual = self._usual.start(task, now)
        if number >= len(known):
            return usual
        return TaskStart(known[number].from_now(now, usual.after), known[number].instead)

    def stop(self, task: Task, now: Time) -> Time:
        key = (task.job_id, task.vertex_id, task.subtask_index), task.attempt_number
        known, usual = self._scripts.stops.get(key), self._usual.stop(task, now)
        return usual if known is None else known.from_now(now, usual)

    def end(self, subtask: Subtask, ended: int) -> TaskEnd | None:
        job_id, vertex_id, index = subtask
        if job_id in self._alike:
            other, scripts = self._alike[job_id]
            known = _task_ends(scripts, other, vertex_id, index)
        else:
            known = self._scripts.ends.get(subtask, [])
        if ended < len(known):
            return known[ended]
        # It goes back to a checkpoint, and does once more what it had done.
        again = known and known[-1].state is ExecutionState.FINISHED
        return replace(known[-1], at=None) if again else None

    def contribution(self, task: Task, checkpoint_id: int, now: Time) -> CheckpointContribution:
        subtask, usual = (
            (task.job_id, task.vertex_id, task.subtask_index),
            self._usual.contribution(task, checkpoint_id, now),
        )
        return self._contributions.take_ack(subtask, checkpoint_id, usual, now)


def _task_ends(scripts: RecordedTaskTimes, job_id: str, vertex_id: str, index: int) -> list[TaskEnd]:
    found = scripts.ends.get((job_id, vertex_id, index))
    if found is not None:
        return found
    # Of a larger parallelism: what is known of the vertex is had again by the others.
    known = sorted(each for each in scripts.ends if each[:2] == (job_id, vertex_id))
    return scripts.ends[known[index % len(known)]] if known else []
