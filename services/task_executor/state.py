"""The TaskExecutor's state: its registration, slots, connected jobs, and tasks."""

from __future__ import annotations

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas import resource_manager
from ...schemas.types import CheckpointOptions, ExecutionState, JobGraph, RestoredCheckpoint
from ..configuration.role_options import TaskExecutorOptions
from .task_slot_table import TaskSlotTable


class Registration(msgspec.Struct, frozen=True):
    """The registration at the ResourceManager. `instance_id` is None until the answer; `reported`: the slot report was
    sent."""

    is_sent: resource_manager.RegisterTaskExecutor
    """As the process said it at its start; said again where the ResourceManager has lost sight of it."""
    options: TaskExecutorOptions
    owed: bool = False
    """Whether it is to be said again."""
    cause: int | None = None
    instance_id: str | None = None
    reported: bool = False


class Deployment(msgspec.Struct, frozen=True):
    """Subtasks of one vertex that are deployed together and share a query.

    It is complete when `size` subtasks have `arrived`, whatever happened to them.
    """

    vertex_id: str
    size: int
    cause: int
    """The offset of the first one's SubmitTask."""
    arrived: int = 0
    runnable: frozenset[str] = frozenset()
    """Those that have neither ended nor are to end."""

    @property
    def complete(self) -> bool:
        return self.arrived >= self.size


class JobConnection(msgspec.Struct, frozen=True):
    """A job with slots here. `graph` is None until its JobMaster has answered once."""

    job_id: str
    cause: int
    registration_sent: bool = False
    """RegisterTaskManager has been said."""
    answered: bool = False
    """The JobMaster has answered that."""
    graph: JobGraph | None = None
    slots_to_offer: frozenset[str] = frozenset()
    """Allocated slots that OfferSlots is owed for."""
    deployments: Map[str, Deployment] = Map()
    """Those that are not complete yet, or have something to run."""
    attempts: Map[tuple[str, int], int] = Map()
    """(vertex, subtask) -> the last attempt that was submitted here: what is not newer has been seen."""


class Task(msgspec.Struct, frozen=True):
    """An Execution that was submitted here and has not ended."""

    execution_attempt_id: str
    job_id: str
    vertex_id: str
    subtask_index: int
    attempt_number: int
    allocation_id: str
    deployment_id: str
    cause: int
    state: ExecutionState = ExecutionState.DEPLOYING
    generation: int = 0
    """How often the job had been rolled back."""
    restore: RestoredCheckpoint | None = None
    """The last completed checkpoint, as far as it is known here: what it begins with, also in a process that is
    started again."""
    finished: bool = False
    """Whether the subtask had finished in the checkpoint that it begins with."""
    checkpoints_over: int = 0
    """Barriers of checkpoints up to this one count for nothing in a process that starts now."""
    stopped_by_savepoint: int | None = None
    """The savepoint that stops it and that it has acknowledged: it does nothing more, in no process."""


class SlotAnswer(msgspec.Struct, frozen=True):
    """A pending SlotRequestAccepted (no reason) or SlotRequestRejected."""

    allocation_id: str
    slot_number: int
    reason: str | None = None


class FreedSlot(msgspec.Struct, frozen=True):
    """A pending NotifySlotAvailable."""

    slot_number: int
    allocation_id: str
    cause: int


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
    """A pending report to a JobMaster: a slot, or a submitted task, failed."""

    job_id: str
    reason: str
    cause: int


class TaskExecutorState(msgspec.Struct, frozen=True):
    """The TaskExecutor's state. The fields from `slot_answers` on are pending events and instructions, so that `decide`
    costs no more than those."""

    resource_id: str
    registration: Registration | None = None
    """None before the process has registered itself, and after it has left."""
    slots: TaskSlotTable = TaskSlotTable()
    slots_changed: int = -1
    """The offset of the last event that changed a slot."""
    jobs: Map[str, JobConnection] = Map()
    tasks: Map[str, Task] = Map()
    leaving: str | None = None
    """Why the ResourceManager ends the connection: the TaskExecutor shuts down."""
    leaving_cause: int | None = None
    left: bool = False

    slot_answers: Map[int, SlotAnswer] = Map()
    """By the offset of the request."""
    freed: Map[str, FreedSlot] = Map()
    """By AllocationID: a slot may be freed, given and freed again before that can be said."""
    failed_slots: Map[str, Failure] = Map()
    """By AllocationID: FailSlot is owed."""
    unacknowledged: Map[str, int] = Map()
    """Tasks that TaskAcknowledged is owed for, with the offset of SubmitTask."""
    refused: Map[str, Failure] = Map()
    """By Execution: it was submitted and can't run; UpdateTaskExecutionState is owed."""
    stopping: Map[str, int] = Map()
    """Tasks that are to end, with the offset of what demands it."""
    jobs_owing: Map[str, int] = Map()
    """Jobs that RegisterTaskManager, OfferSlots or DisconnectTaskManager is owed to."""
    triggers: Map[tuple[str, int], CheckpointTrigger] = Map()
    """By job and checkpoint: what tasks have not answered."""
    declines: Map[tuple[int, str], Failure] = Map()
    """By checkpoint and Execution: DeclineCheckpoint is owed."""
    checkpoint_ends: Map[str, tuple[CheckpointEnd, ...]] = Map()
    """By job: the last few, oldest first."""


def connect(state: TaskExecutorState, connection: JobConnection) -> TaskExecutorState:
    """Stores a connection, and maintains the index of connections with pending events."""
    job_id = connection.job_id
    owing = state.jobs_owing
    if (
        not connection.registration_sent
        or (connection.answered and connection.slots_to_offer)
        or job_id not in state.slots.per_job
    ):
        owing = owing.set(job_id, connection.cause)
    elif job_id in owing:
        owing = owing.delete(job_id)
    return replace(state, jobs=state.jobs.set(job_id, connection), jobs_owing=owing)
