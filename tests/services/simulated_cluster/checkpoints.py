"""Checkpoints as the tasks of a simulated cluster take them: barriers flow, parts are written, and all can go wrong.

A barrier is in the channels of a job's generation once one task has taken its cut; each other task meets it when its
process gets there. A cut commits, writes its part and acknowledges, in this order, so that what is in storage is what
the subtask had counted then.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tailrace.schemas import job_master
from tailrace.schemas.body import Body
from tailrace.schemas.types import CheckpointOptions, ExecutionState
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.simulation.checkpoint_storage import SimulatedStorage, StatePart, part_name
from tailrace.services.simulation.task_events import acknowledge_checkpoint_event
from tailrace.services.task_executor.instructions import AbortTasks, ConfirmTasks, TriggerTasks
from tailrace.services.task_executor.state import Task

if TYPE_CHECKING:
    from ..async_simulator import SimulatedProcess, Subtask

TASK_INSTRUCTIONS = TriggerTasks | ConfirmTasks | AbortTasks
RECORDS = "records"
"""The accumulator of all tasks."""
CheckpointKey = tuple[str, int]
"""(job, checkpoint)."""


@dataclass
class CheckpointFaults:
    """How often what goes wrong; all of it never, unless a run says so."""

    silent: float = 0.0
    """A task never acknowledges: its barrier is lost to it."""
    declined: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    """A task does not meet its barrier yet, though it could."""
    metadata: float = 0.0
    """Storage refuses to write."""


@dataclass
class Barriers:
    """What all processes share: storage, and the channels that barriers are in."""

    storage: SimulatedStorage = field(default_factory=SimulatedStorage)
    sent: dict[CheckpointKey, tuple[int, CheckpointOptions]] = field(default_factory=dict)
    """-> (generation, options), once the first task has taken its cut."""
    generations: dict[Subtask, int] = field(default_factory=dict)
    """The newest generation that a subtask has begun."""
    trouble: CheckpointFaults = field(default_factory=CheckpointFaults)

    def forget(self, key: CheckpointKey) -> None:
        """It is complete: barriers up to its own have been met."""
        for each in [each for each in self.sent if each[0] == key[0] and each[1] <= key[1]]:
            del self.sent[each]


class TaskCheckpoints:
    """Of the tasks of one process."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._barriers = process.world.barriers
        self._tasks: dict[str, Task] = {}
        self._seen: set[tuple[str, CheckpointKey]] = set()
        self._begun: dict[CheckpointKey, int] = {}
        """The offsets at which checkpoints were asked for here."""
        self._stopping: dict[str, CheckpointKey] = {}

    def begin(self, task: Task) -> str | None:
        """Its state is restored; why it can't be, where its progress is lost."""
        process, barriers = self._process, self._barriers
        self._tasks[task.execution_attempt_id] = task
        subtask = task.job_id, task.vertex_id, task.subtask_index
        restore = task.restore
        _, writer = process.world.writers[subtask]
        if writer is not process or task.generation < barriers.generations.get(subtask, 0):
            return None
        anew = task.generation > barriers.generations.get(subtask, 0)
        if restore is not None and not task.finished:
            fault = barriers.storage.find_fault(restore.uri)
            if fault is not None:
                return fault
            if anew and restore.generation >= 0:
                part = barriers.storage.parts[restore.uri][part_name(task.vertex_id, task.subtask_index)]
                process.world.counted[subtask] = part.count
        barriers.generations[subtask] = task.generation
        return None

    def perform(self, instruction: TASK_INSTRUCTIONS) -> None:
        """What the JobMaster has the tasks told."""
        key = instruction.job_id, instruction.checkpoint_id
        here = [each for each in instruction.attempts if each in self._process.running]
        match instruction:
            case TriggerTasks(options=options, cause=cause):
                self._begun[key] = cause
                for attempt in here:
                    self._barriers.sent.setdefault(key, (self._tasks[attempt].generation, options))
                    self._meet(attempt, key, options)
            case ConfirmTasks():
                self._barriers.forget(key)
                for attempt in here:
                    if self._stopping.get(attempt) == key:
                        self._process.report(attempt, ExecutionState.FINISHED)
            case AbortTasks():
                for attempt in here:
                    self._seen.add((attempt, key))
                    if self._stopping.get(attempt) == key:
                        del self._stopping[attempt]

    def stands_still(self, attempt: str) -> bool:
        """Whether a savepoint stops it: it does nothing behind that."""
        return attempt in self._stopping

    def is_behind(self) -> bool:
        """Whether a task has a barrier before it."""
        return bool(self._waiting())

    def go_on(self) -> None:
        """Tasks meet the barriers that are before them, in order, mostly."""
        late = set()
        for attempt, key, options in self._waiting():
            if attempt in late or self._happens(self._barriers.trouble.late):
                late.add(attempt)
            elif attempt in self._process.running:
                self._meet(attempt, key, options)

    def _waiting(self) -> list[tuple[str, CheckpointKey, CheckpointOptions]]:
        jobs = {task[0] for task in self._process.running.values()}
        sent = [(key, *each) for key, each in self._barriers.sent.items() if key[0] in jobs]
        return [
            (attempt, key, options)
            for key, generation, options in sent
            for attempt, task in self._process.running.items()
            if task[0] == key[0]
            and self._tasks[attempt].generation == generation
            and (attempt, key) not in self._seen
        ]

    def _meet(self, attempt: str, key: CheckpointKey, options: CheckpointOptions) -> None:
        if (attempt, key) in self._seen:
            return
        self._seen.add((attempt, key))
        process, trouble = self._process, self._barriers.trouble
        subtask = process.running[attempt]
        if process.world.writers[subtask][1] is not process:
            # It can't commit any more, and will notice.
            return
        if self._happens(trouble.silent):
            return
        if self._happens(trouble.declined):
            self._say(job_master.DeclineCheckpoint(
                job_id=key[0], execution_attempt_id=attempt, checkpoint_id=key[1], reason="it can't be written"
            ))  # fmt: skip
            return
        process.commit(subtask)
        part = StatePart(attempt, process.world.counted[subtask])
        self._barriers.storage.write(options.directory, part_name(*subtask[1:]), part)
        if options.stops:
            self._stopping[attempt] = key
        counts = {RECORDS: float(part.count)} if options.stops else {}
        for _ in range(2 if self._happens(trouble.twice) else 1):
            acknowledged = acknowledge_checkpoint_event(key[0], attempt, key[1], counts, stops=options.stops)
            self._say(acknowledged.body)

    def _say(self, body: Body) -> None:
        assert isinstance(body, job_master.AcknowledgeCheckpoint | job_master.DeclineCheckpoint)
        begun = self._begun.get((body.job_id, body.checkpoint_id))
        cause = self._process.submission_of(body.execution_attempt_id) if begun is None else begun
        self._process.mean_to_say(
            self._process.leads[0], OutgoingEvent(f"job_master/{body.job_id}", body, cause)
        )

    def _happens(self, probability: float) -> bool:
        draw = self._process.world.draw
        return draw is not None and probability > 0 and draw.random() < probability


def stray_acknowledgement(draw: random.Random, body: Body, attempts: Callable[[], str]) -> Body:
    """An acknowledgement or decline that belongs to another checkpoint, attempt or job."""
    match body:
        case job_master.AcknowledgeCheckpoint() | job_master.DeclineCheckpoint():
            match draw.choice(("checkpoint", "attempt", "neither")):
                case "checkpoint":
                    return replace(
                        body, checkpoint_id=draw.choice((max(1, body.checkpoint_id - 1), 1_000_000))
                    )
                case "attempt":
                    return replace(body, execution_attempt_id=attempts())
    return body
