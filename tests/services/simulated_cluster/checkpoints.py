"""The tasks of a cluster with random faults: they count records, and their checkpoints can fail in many ways.

A barrier is in the channels of a job's generation once one task has received it; each other task receives it when its
process gets there. A task commits, writes its part and acknowledges, in this order, so that what is in storage is what
the subtask had counted then.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tailrace.schemas import job_master
from tailrace.schemas.body import Body
from tailrace.schemas.types import ExecutionState
from tailrace.services.core.role import Time
from tailrace.services.simulation.checkpoint_storage import SimulatedStorage, part_name
from tailrace.services.simulation.simulated_tasks import Channels
from tailrace.services.simulation.task_behavior import (
    CheckpointContribution,
    Subtask,
    TaskEnd,
    TaskStart,
    subtask_of,
)
from tailrace.services.task_executor.instructions import TriggerTasks
from tailrace.services.task_executor.resources import Task

if TYPE_CHECKING:
    from ..async_simulator import SimulatedProcess

RECORDS = "records"
"""The accumulator of all tasks."""


@dataclass
class CheckpointFaults:
    """The probabilities of faults."""

    silent: float = 0.0
    """A task never acknowledges: its barrier is lost to it."""
    declined: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    """A task does not receive its barrier yet, though it could."""
    metadata: float = 0.0
    """The storage rejects the metadata."""


@dataclass
class SharedTaskState:
    """What the tasks of all processes share: it outlives processes and attempts."""

    storage: SimulatedStorage = field(default_factory=SimulatedStorage)
    channels: Channels = field(default_factory=Channels)
    faults: CheckpointFaults = field(default_factory=CheckpointFaults)
    counted: Counter[Subtask] = field(default_factory=Counter)
    """What each subtask has counted and committed."""
    writers: dict[Subtask, tuple[int, SimulatedProcess]] = field(default_factory=dict)
    """The attempt, by its number and process, that may commit: the last one that was started fences the others."""
    generations: dict[Subtask, int] = field(default_factory=dict)
    """The newest generation that a subtask has started."""

    def commit(self, subtask: Subtask, process: SimulatedProcess) -> dict[str, float]:
        """Counts one more record; returns what the subtask has counted in all, nothing if the process is fenced."""
        if self.writers[subtask][1] is not process:
            return {}
        self.counted[subtask] += 1
        return self.committed(subtask, process)

    def committed(self, subtask: Subtask, process: SimulatedProcess) -> dict[str, float]:
        """Returns what the subtask has counted in all, nothing if the process is fenced."""
        if self.writers[subtask][1] is not process or not self.counted[subtask]:
            return {}
        return {RECORDS: float(self.counted[subtask])}


class FaultyTaskBehavior:
    """The tasks of one process. They run until the test ends them, and commit a record before each report."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._shared = process.world.task_state
        self._known: set[str] = set()
        """The attempts that were started or cancelled."""

    def start(self, task: Task, now: Time) -> TaskStart:
        process, shared, attempt = self._process, self._shared, task.execution_attempt_id
        assert attempt not in self._known, f"{process.leads[0]} runs {attempt} twice"
        self._known.add(attempt)
        subtask = subtask_of(task)
        last, _ = shared.writers.get(subtask, (-1, None))
        if task.attempt_number >= last:
            shared.writers[subtask] = task.attempt_number, process
        fault = self._restore(task)
        if fault is not None:
            return TaskStart(instead=TaskEnd(0, ExecutionState.FAILED, fault, is_progress_lost=True))
        counts = {} if task.finished else shared.commit(subtask, process)
        if process.happens(process.world.task_failures):
            return TaskStart(instead=TaskEnd(0, ExecutionState.FAILED, "it can't be started", counts))
        return TaskStart(reports_initializing=process.happens(0.3))

    def stop(self, task: Task, now: Time) -> TaskEnd:
        self._known.add(task.execution_attempt_id)
        counts = self.last_counts(task.execution_attempt_id)
        return TaskEnd(0, ExecutionState.CANCELED, accumulators=counts)

    def end(self, subtask: Subtask, ended: int) -> TaskEnd | None:
        return None

    def contribution(self, task: Task, trigger: TriggerTasks, now: Time) -> CheckpointContribution | None:
        process, shared, faults = self._process, self._shared, self._shared.faults
        subtask = subtask_of(task)
        if shared.writers[subtask][1] is not process or process.tasks.is_stopping(task.execution_attempt_id):
            # It can't commit any more.
            return None
        if process.happens(faults.silent):
            return None
        if process.happens(faults.declined):
            return CheckpointContribution(declined="it can't be written")
        counts = shared.commit(subtask, process)
        return CheckpointContribution(
            count=shared.counted[subtask],
            accumulators=counts if trigger.options.stops else {},
            copies=2 if process.happens(faults.twice) else 1,
        )

    def last_counts(self, execution_attempt_id: str) -> dict[str, float]:
        """Returns what an attempt has counted that ends now; nothing if it does not run. It counts no more if it stops
        for a checkpoint."""
        tasks = self._process.tasks
        subtask = tasks.running().get(execution_attempt_id)
        if subtask is None:
            return {}
        if tasks.is_stopping(execution_attempt_id):
            return self._shared.committed(subtask, self._process)
        return self._shared.commit(subtask, self._process)

    def _restore(self, task: Task) -> str | None:
        """Restores the state of a subtask; returns why that is not possible, None if it is."""
        shared, subtask, restore = self._shared, subtask_of(task), task.restore
        known = shared.generations.get(subtask, 0)
        if shared.writers[subtask][1] is not self._process or task.generation < known:
            return None
        if restore is not None and not task.finished:
            fault = shared.storage.find_fault(restore.uri)
            if fault is not None:
                return fault
            if task.generation > known and restore.generation >= 0:
                shared.counted[subtask] = self._restored_count(task, restore.uri)
        shared.generations[subtask] = task.generation
        return None

    def _restored_count(self, task: Task, uri: str) -> int:
        """Returns what a subtask has counted in a checkpoint; of another parallelism, subtask 0 has all."""
        storage = self._shared.storage
        parts, prefix = storage.parts[uri], f"{task.vertex_id}/"
        before = {name for name in storage.metadata[uri].parts if name.startswith(prefix)}
        graph = self._process.states[self._process.leads[0]].jobs[task.job_id].graph
        now = next(each.parallelism for each in graph.vertices if each.vertex_id == task.vertex_id)
        finished = storage.metadata[uri].finished.get(task.vertex_id, ())
        if len(before) + len(finished) == now:
            return parts[part_name(task.vertex_id, task.subtask_index)].count
        for index in range(now, len(before)):
            self._shared.counted.pop((task.job_id, task.vertex_id, index), None)
        return 0 if task.subtask_index else sum(parts[name].count for name in before)


def stray_acknowledgement(draw: random.Random, body: Body, attempts: Callable[[], str]) -> Body:
    """Returns an acknowledgement or decline of another checkpoint or attempt."""
    match body:
        case job_master.AcknowledgeCheckpoint() | job_master.DeclineCheckpoint():
            match draw.choice(("checkpoint", "attempt", "neither")):
                case "checkpoint":
                    return replace(
                        body, checkpoint_id=draw.choice((max(1, body.checkpoint_id - 1), 1_000_000))
                    )
                case "attempt" if isinstance(body, job_master.AcknowledgeCheckpoint):
                    part = draw.choice(body.acknowledgements)
                    return replace(body, acknowledgements=(replace(part, execution_attempt_id=attempts()),))
                case "attempt":
                    return replace(body, execution_attempt_id=attempts())
    return body
