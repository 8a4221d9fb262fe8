"""Events of the namespace tailrace.task_executor: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from typing import ClassVar

from ..body import Body
from ..types import (
    AllocatedSlotReport,
    CheckpointOptions,
    JobGraph,
    ResourceProfile,
    RestoredCheckpoint,
    SlotID,
)

__all__ = [
    "AbortCheckpoint",
    "AllocatedSlotsContradicted",
    "CancelTask",
    "ConfirmCheckpoint",
    "DisconnectJobManager",
    "DisconnectResourceManager",
    "FreeSlot",
    "HeartbeatFromJobManager",
    "HeartbeatFromResourceManager",
    "HeartbeatTimedOut",
    "JobManagerRegistrationSuccess",
    "RequestSlot",
    "SlotsAccepted",
    "SlotsRejected",
    "SubmitTask",
    "TaskExecutorRegistrationRejection",
    "TaskExecutorRegistrationSuccess",
    "TriggerCheckpoint",
]


class AbortCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """A checkpoint will not be completed: who waits for its barriers goes on."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.AbortCheckpoint"
    job_id: str
    """The job."""
    checkpoint_id: int
    """The checkpoint, counted from 1 in each job; savepoints are counted with them."""
    execution_attempt_ids: tuple[str, ...]
    """The Executions."""


class AllocatedSlotsContradicted(Body, frozen=True, gc=False, kw_only=True):
    """A JobMaster's AllocatedSlotReport differs from what the TaskExecutor holds for the job."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.AllocatedSlotsContradicted"
    job_id: str
    """The job."""
    missing: tuple[str, ...]
    """Allocations that only the JobMaster believes in."""
    surplus: tuple[str, ...]
    """Allocations that only the TaskExecutor holds."""


class CancelTask(Body, frozen=True, gc=False, kw_only=True):
    """Stop an Execution."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.CancelTask"
    job_id: str
    """The job."""
    execution_attempt_id: str
    """The Execution."""


class ConfirmCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """A checkpoint is complete (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.ConfirmCheckpoint"
    job_id: str
    """The job."""
    checkpoint_id: int
    """The checkpoint, counted from 1 in each job; savepoints are counted with them."""
    execution_attempt_ids: tuple[str, ...]
    """The Executions that were part of it and still run."""
    restore: RestoredCheckpoint | None = None
    """The checkpoint, where it is what the Executions begin with if their TaskExecutor is started again; null for a savepoint."""


class DisconnectJobManager(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster ends the connection for its job (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.DisconnectJobManager"
    job_id: str
    """The job."""
    reason: str
    """Why."""


class DisconnectResourceManager(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager ends the connection: the TaskExecutor shuts down."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.DisconnectResourceManager"
    reason: str
    """Why."""


class FreeSlot(Body, frozen=True, gc=False, kw_only=True):
    """The slot is not needed any more."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.FreeSlot"
    allocation_id: str
    """The allocation."""
    reason: str
    """Why."""


class HeartbeatFromJobManager(Body, frozen=True, gc=False, kw_only=True):
    """A JobMaster lives, and these are the slots that it holds here (document 000). Soft state."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.HeartbeatFromJobManager"
    position: int
    """The offset up to which the sender had folded the log."""
    allocated_slot_report: AllocatedSlotReport
    """Its slots at this TaskExecutor."""


class HeartbeatFromResourceManager(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager lives (document 000). Soft state."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.HeartbeatFromResourceManager"


class HeartbeatTimedOut(Body, frozen=True, gc=False, kw_only=True):
    """A master was not heard of for too long; says the TaskExecutor's shell."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.HeartbeatTimedOut"
    peer: str
    """The master's address."""
    reason: str
    """Why."""


class JobManagerRegistrationSuccess(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster knows the TaskExecutor and tells it about the job, once."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.JobManagerRegistrationSuccess"
    job_id: str
    """The job."""
    job_graph: JobGraph
    """The job's information, needed to run any of its tasks."""


class RequestSlot(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager asks for a slot on behalf of a job."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.RequestSlot"
    slot_id: SlotID
    """The slot."""
    job_id: str
    """The job."""
    allocation_id: str
    """The allocation."""
    resource_profile: ResourceProfile | None = None
    """What was asked for; null: any (UNKNOWN)."""
    reason: str
    """Why this slot was chosen."""


class SlotsAccepted(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster takes the slots that were offered."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.SlotsAccepted"
    job_id: str
    """The job."""
    allocation_ids: tuple[str, ...]
    """The allocations."""


class SlotsRejected(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster does not take the slots that were offered."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.SlotsRejected"
    job_id: str
    """The job."""
    allocation_ids: tuple[str, ...]
    """The allocations."""
    reason: str
    """Why."""


class SubmitTask(Body, frozen=True, gc=False, kw_only=True):
    """Run an Execution in a slot."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.SubmitTask"
    job_id: str
    """The job."""
    vertex_id: str
    """The JobVertex."""
    subtask_index: int
    """The subtask, from 0."""
    attempt_number: int
    """The attempt, from 0."""
    execution_attempt_id: str
    """The Execution."""
    allocation_id: str
    """The slot's allocation."""
    deployment_id: str
    """Subtasks of the vertex that are deployed here together have it in common: they share a query."""
    deployment_size: int
    """How many they are."""
    generation: int = 0
    """How often the job was rolled back to a checkpoint: what older generations have sent and committed counts for nothing."""
    restore: RestoredCheckpoint | None = None
    """The last completed checkpoint: what the subtask's state begins with."""
    finished: bool = False
    """Whether the subtask had finished in that checkpoint: it only says so to those that it sends to."""
    checkpoints_over: int = 0
    """The newest checkpoint that has begun: those up to it are over for this Execution, and late barriers of theirs count for nothing."""


class TaskExecutorRegistrationRejection(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager does not take the TaskExecutor."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.TaskExecutorRegistrationRejection"
    reason: str
    """Why, and what to do."""


class TaskExecutorRegistrationSuccess(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager has registered the TaskExecutor."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.TaskExecutorRegistrationSuccess"
    instance_id: str
    """The InstanceID of this registration."""


class TriggerCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """Begin a checkpoint in these Executions (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.TriggerCheckpoint"
    job_id: str
    """The job."""
    checkpoint_id: int
    """The checkpoint, counted from 1 in each job; savepoints are counted with them."""
    execution_attempt_ids: tuple[str, ...]
    """The Executions."""
    timestamp: int
    """When the checkpoint was triggered, in microseconds since the epoch."""
    options: CheckpointOptions
    """How."""
