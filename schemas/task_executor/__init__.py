"""Events of the namespace tailrace.task_executor: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from typing import ClassVar

from ..body import Body
from ..types import (
    AllocatedSlotReport,
    CheckpointOptions,
    JobGraph,
    OffsetsReset,
    RestoredCheckpoint,
    SlotID,
    TaskDeploymentDescriptor,
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
    """The JobMaster tells a TaskExecutor that a checkpoint is aborted. Tasks that wait for its barriers continue. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.AbortCheckpoint"
    job_id: str
    """Id of the job whose checkpoint is aborted. Since 0.1.0."""
    checkpoint_id: int
    """Id of the aborted checkpoint, counted from 1 in each job; savepoints share the counter. Since 0.1.0."""
    execution_attempt_ids: tuple[str, ...]
    """Ids of the Executions at this TaskExecutor that take part in the checkpoint. Since 0.1.0."""


class AllocatedSlotsContradicted(Body, frozen=True, gc=False, kw_only=True):
    """Two AllocatedSlotReports in a row of a JobMaster differ from the slots that the TaskExecutor holds for the job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.AllocatedSlotsContradicted"
    job_id: str
    """Id of the job whose JobMaster sent the reports. Since 0.1.0."""
    missing: tuple[str, ...]
    """AllocationIDs that only the JobMaster knows. The TaskExecutor reports them as failed. Since 0.1.0."""
    surplus: tuple[str, ...]
    """AllocationIDs that only the TaskExecutor knows. The TaskExecutor frees these slots. Since 0.1.0."""


class CancelTask(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster asks a TaskExecutor to cancel an Execution. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.CancelTask"
    job_id: str
    """Id of the job that the Execution belongs to. Since 0.1.0."""
    execution_attempt_id: str
    """Id of the Execution to cancel. Since 0.1.0."""


class ConfirmCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster tells a TaskExecutor that a checkpoint is complete. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.ConfirmCheckpoint"
    job_id: str
    """Id of the job whose state the checkpoint holds. Since 0.1.0."""
    checkpoint_id: int
    """Id of the completed checkpoint, counted from 1 in each job; savepoints share the counter. Since 0.1.0."""
    execution_attempt_ids: tuple[str, ...]
    """Ids of the Executions at this TaskExecutor that took part in the checkpoint and still run. Since 0.1.0."""
    restore: RestoredCheckpoint | None = None
    """The checkpoint that these Executions restore if their TaskExecutor starts again; null for a savepoint. Since 0.1.0."""


class DisconnectJobManager(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster disconnects a TaskExecutor from the job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.DisconnectJobManager"
    job_id: str
    """Id of the job whose JobMaster disconnects. Since 0.1.0."""
    reason: str
    """Why the JobMaster disconnects, as text for people. Since 0.1.0."""


class DisconnectResourceManager(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager disconnects a TaskExecutor. The TaskExecutor ends. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.DisconnectResourceManager"
    reason: str
    """Why the ResourceManager disconnects, as text for people. Since 0.1.0."""


class FreeSlot(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster or the ResourceManager asks a TaskExecutor to free a slot. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.FreeSlot"
    allocation_id: str
    """AllocationID of the slot to free. Since 0.1.0."""
    reason: str
    """Why the slot is not needed any more, as text for people. Since 0.1.0."""


class HeartbeatFromJobManager(Body, frozen=True, gc=False, kw_only=True):
    """A heartbeat from a JobMaster, with the slots that it holds at this TaskExecutor. It is soft state: no role folds it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.HeartbeatFromJobManager"
    position: int
    """Offset up to which the JobMaster had folded the log. Since 0.1.0."""
    allocated_slot_report: AllocatedSlotReport
    """The slots that the JobMaster holds at this TaskExecutor. Since 0.1.0."""


class HeartbeatFromResourceManager(Body, frozen=True, gc=False, kw_only=True):
    """A heartbeat from the ResourceManager, to all TaskExecutors. It is soft state: no role folds it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.HeartbeatFromResourceManager"


class HeartbeatTimedOut(Body, frozen=True, gc=False, kw_only=True):
    """The TaskExecutor's process has received no heartbeat from a master within heartbeat.timeout. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.HeartbeatTimedOut"
    peer: str
    """Address of the silent role: resource_manager or job_master/<job id>. Since 0.1.0."""
    reason: str
    """How long the master has been silent, as text for people. Since 0.1.0."""


class JobManagerRegistrationSuccess(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster has registered the TaskExecutor and sends it the job, once per registration: the JobGraph, or the key of the blob that contains it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.JobManagerRegistrationSuccess"
    job_id: str
    """Id of the job that the TaskExecutor holds slots for. Since 0.1.0."""
    job_graph: JobGraph | None = None
    """The JobGraph, which the TaskExecutor needs to run the job's tasks; null if it is in a blob. Since 0.1.0."""
    job_graph_blob: str | None = None
    """Key of the blob that contains the JobGraph, permanent/<job id>/<SHA-256>: the TaskExecutor fetches it from a BlobServer; null if job_graph has it. Since 0.1.0."""


class RequestSlot(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager asks a TaskExecutor to allocate a slot for a job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.RequestSlot"
    slot_id: SlotID
    """TaskExecutor and number of the slot to allocate. Since 0.1.0."""
    job_id: str
    """Id of the job that gets the slot. Since 0.1.0."""
    allocation_id: str
    """AllocationID under which the slot is allocated. Since 0.1.0."""
    reason: str
    """Why the ResourceManager chose this slot, as text for people. Since 0.1.0."""


class SlotsAccepted(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster accepts slots that the TaskExecutor offered. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.SlotsAccepted"
    job_id: str
    """Id of the job whose JobMaster accepts the slots. Since 0.1.0."""
    allocation_ids: tuple[str, ...]
    """AllocationIDs of the accepted slots. Since 0.1.0."""


class SlotsRejected(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster rejects slots that the TaskExecutor offered. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.SlotsRejected"
    job_id: str
    """Id of the job whose JobMaster rejects the slots. Since 0.1.0."""
    allocation_ids: tuple[str, ...]
    """AllocationIDs of the rejected slots. Since 0.1.0."""
    reason: str
    """Why the JobMaster rejects the slots, as text for people. Since 0.1.0."""


class SubmitTask(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster submits tasks: the TaskExecutor runs an Execution of each of these subtasks of one vertex in a slot. They start together and share one Spark query. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.SubmitTask"
    job_id: str
    """Id of the job that the tasks belong to. Since 0.1.0."""
    vertex_id: str
    """Id of the JobVertex that the tasks belong to. Since 0.1.0."""
    deployment_id: str
    """Id of this deployment: the subtasks of one vertex that this TaskExecutor starts together. Since 0.1.0."""
    subtasks: tuple[TaskDeploymentDescriptor, ...]
    """The subtasks, by their index; at least one and at most 1,000. Since 0.1.0."""
    generation: int = 0
    """How often the job has restored a checkpoint since it started. What an older generation sent and committed is ignored. Since 0.1.0."""
    restore: RestoredCheckpoint | None = None
    """The completed checkpoint that the subtasks restore; null to start without a checkpoint. Since 0.1.0."""
    checkpoints_over: int = 0
    """Id of the newest checkpoint that was triggered before the Executions were submitted. They ignore barriers up to it; 0 if there is none. Since 0.1.0."""
    offset_resets: tuple[OffsetsReset, ...] = ()
    """Positions of the vertex's Kafka source that were reset while the job was paused, oldest first. A subtask applies those that it has not committed yet. Since 0.1.0."""


class TaskExecutorRegistrationRejection(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager rejects the registration of a TaskExecutor. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.TaskExecutorRegistrationRejection"
    reason: str
    """Why the registration is rejected and what to do, as text for people. Since 0.1.0."""


class TaskExecutorRegistrationSuccess(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager has registered a TaskExecutor. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.TaskExecutorRegistrationSuccess"
    instance_id: str
    """InstanceID of this registration. Since 0.1.0."""


class TriggerCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster asks a TaskExecutor to start a checkpoint in Executions that receive no barrier. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.task_executor.TriggerCheckpoint"
    job_id: str
    """Id of the job that takes the checkpoint. Since 0.1.0."""
    checkpoint_id: int
    """Id of the checkpoint, counted from 1 in each job; savepoints share the counter. Since 0.1.0."""
    execution_attempt_ids: tuple[str, ...]
    """Ids of the Executions that start the checkpoint. Since 0.1.0."""
    timestamp: int
    """When the checkpoint was triggered, in microseconds since the Unix epoch. Since 0.1.0."""
    options: CheckpointOptions
    """Type and directories of the checkpoint. Since 0.1.0."""
