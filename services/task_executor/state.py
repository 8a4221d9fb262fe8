"""The TaskExecutor's state: its resources, the events that it owes, and what its shell has to do."""

from __future__ import annotations

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.types import CheckpointOptions
from ..core.outbox import Outbox, owe, remove_owed
from .owed_events import OwedToJobMaster, TaskExecutorEvent
from .resources import JobConnection, TaskExecutorResources


class CheckpointTrigger(msgspec.Struct, frozen=True):
    """A checkpoint to trigger in these tasks; those in `unanswered` have not reported a result."""

    attempts: tuple[str, ...]
    unanswered: frozenset[str]
    timestamp: int
    options: CheckpointOptions
    cause: int


class CheckpointEnd(msgspec.Struct, frozen=True):
    """A pending notification to tasks: the checkpoint was completed or aborted."""

    checkpoint_id: int
    attempts: tuple[str, ...]
    completed: bool
    cause: int


class Failure(msgspec.Struct, frozen=True):
    """A pending report to a JobMaster: a submitted task failed."""

    job_id: str
    reason: str
    cause: int


class TaskFailure(msgspec.Struct, frozen=True):
    """A task that has failed; those of one attempt in one slot count as one."""

    time: int
    allocation_id: str
    attempt_number: int
    reason: str


class TaskExecutorState(TaskExecutorResources, frozen=True):
    """The TaskExecutor's state. The fields from `outbox` on are pending events and instructions, so that `decide` costs
    no more than those."""

    slots_changed: int = -1
    """The offset of the last event that changed a slot."""
    task_failures: tuple[TaskFailure, ...] = ()
    """The last ones since TaskFailuresExceeded, oldest first."""
    outbox: Outbox[TaskExecutorEvent] = Outbox()
    unacknowledged: Map[str, int] = Map()
    """Tasks for which TaskAcknowledged is owed, with the offset of SubmitTask."""
    refused: Map[str, Failure] = Map()
    """By Execution: a submitted task that cannot run; UpdateTaskExecutionState is owed."""
    stopping: Map[str, int] = Map()
    """Tasks that have to end, with the offset of the event that requires it."""
    triggers: Map[tuple[str, int], CheckpointTrigger] = Map()
    """By job and checkpoint: the tasks that have not answered."""
    checkpoint_ends: Map[str, tuple[CheckpointEnd, ...]] = Map()
    """By job: the last few, oldest first."""


def connect(state: TaskExecutorState, connection: JobConnection) -> TaskExecutorState:
    """Stores a connection, and the events owed to its JobMaster."""
    job_id = connection.job_id
    state = replace(state, jobs=state.jobs.set(job_id, connection))
    if (
        not connection.registration_sent
        or (connection.answered and connection.slots_to_offer)
        or job_id not in state.slots.per_job
    ):
        return owe(state, OwedToJobMaster(connection.cause, job_id))
    return remove_owed(state, OwedToJobMaster, job_id)
