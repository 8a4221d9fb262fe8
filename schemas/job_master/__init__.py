"""Events of the namespace tailrace.job_master: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ..body import Body
from ..types import (
    AccumulatorReport,
    CheckpointFailureReason,
    CheckpointOptions,
    CompletedCheckpoint,
    ExecutionState,
    JobGraph,
    ParallelismBounds,
    PartitionOffset,
    RestoredCheckpoint,
    SlotOffer,
    SnapshotType,
    SubtaskAcknowledgement,
    VertexMeasurement,
)

__all__ = [
    "AcknowledgeCheckpoint",
    "CancelJob",
    "ChannelsCreated",
    "ChannelsDeleted",
    "ChannelsFailed",
    "CheckpointAborted",
    "CheckpointCompleted",
    "CheckpointDiscarded",
    "CheckpointRestored",
    "CheckpointTriggered",
    "CheckpointsRemoved",
    "DeclineCheckpoint",
    "DisconnectTaskManager",
    "FailSlot",
    "HeartbeatFromTaskManager",
    "HeartbeatTimedOut",
    "JobConfigurationChanged",
    "JobManagerRegistrationSuccess",
    "JobMasterFailed",
    "MoveSlot",
    "OfferSlots",
    "RegisterTaskManager",
    "RescaleJob",
    "RescaleStarted",
    "ResetOffsets",
    "RestartScheduled",
    "RestartSuppressed",
    "RestartTasks",
    "RestoreFailed",
    "ResumeJob",
    "ScalingDecided",
    "SlotAllocationFailed",
    "SlotsShared",
    "SlowTaskDetected",
    "StartJob",
    "SuspendJob",
    "TaskAcknowledged",
    "TasksContradicted",
    "TasksMeasured",
    "TriggerCheckpoint",
    "UpdateTaskExecutionState",
]


class AcknowledgeCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor reports that some of its Executions have written their parts of a checkpoint: usually all of them, in one event. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.AcknowledgeCheckpoint"
    job_id: str
    """Id of the job that takes the checkpoint. Since 0.1.0."""
    checkpoint_id: int
    """Id of the checkpoint, counted from 1 in each job; savepoints share the counter. Since 0.1.0."""
    acknowledgements: tuple[SubtaskAcknowledgement, ...]
    """The parts that were written, one for each Execution. Since 0.1.0."""


class CancelJob(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher forwards a client's request to cancel the job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CancelJob"
    job_id: str
    """Id of the job to cancel. Since 0.1.0."""
    keep_checkpoints: bool = False
    """If true, the job's completed checkpoints stay in storage, whatever its retention option says. Since 0.1.0."""


class ChannelsCreated(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster's process has created the Kafka topics of the job's channels. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.ChannelsCreated"
    job_id: str
    """Id of the job whose topics exist now. Since 0.1.0."""


class ChannelsDeleted(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster's process has deleted the Kafka topics of the channels of a job that ended. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.ChannelsDeleted"
    job_id: str
    """Id of the job whose topics are deleted. Since 0.1.0."""


class ChannelsFailed(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster's process could not create the Kafka topics of the job's channels. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.ChannelsFailed"
    job_id: str
    """Id of the job whose topics do not exist. Since 0.1.0."""
    reason: str
    """Why the topics could not be created, as text for people. Since 0.1.0."""


class CheckpointAborted(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster's process could not complete a checkpoint, or the JobMaster gives it up. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointAborted"
    job_id: str
    """Id of the job whose checkpoint is aborted. Since 0.1.0."""
    checkpoint_id: int
    """Id of the aborted checkpoint, counted from 1 in each job; savepoints share the counter. Since 0.1.0."""
    failure: CheckpointFailureReason
    """Kind of the failure. It decides whether the failure counts for execution.checkpointing.tolerable-failed-checkpoints. Since 0.1.0."""
    reason: str
    """Why the checkpoint is aborted, as text for people. Since 0.1.0."""


class CheckpointCompleted(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster's process has written the metadata of a checkpoint. The checkpoint is complete. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointCompleted"
    job_id: str
    """Id of the job whose state the checkpoint holds. Since 0.1.0."""
    checkpoint: CompletedCheckpoint
    """Id, type, directory and size of the completed checkpoint. Since 0.1.0."""


class CheckpointDiscarded(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster's process has deleted a checkpoint's files, except those that other checkpoints use. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointDiscarded"
    job_id: str
    """Id of the job whose state the checkpoint held. Since 0.1.0."""
    checkpoint_id: int
    """Id of the discarded checkpoint, counted from 1 in each job; savepoints share the counter. Since 0.1.0."""


class CheckpointRestored(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster's process has found a complete checkpoint, and tasks may restore it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointRestored"
    job_id: str
    """Id of the job that restores the checkpoint. Since 0.1.0."""
    checkpoint: RestoredCheckpoint | None = None
    """The checkpoint to restore; null if there is none, and tasks start without state. Since 0.1.0."""
    passed_over: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Newer checkpoints that cannot be read: directory -> reason, as text for people. Since 0.1.0."""
    finished: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """Subtasks that had finished in the checkpoint, in the job's present parallelism: vertex id -> subtask indexes, from 0. Since 0.1.0."""
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Accumulators of the subtasks that had finished in the checkpoint: accumulator name -> sum. No state of a running subtask holds them. Since 0.1.0."""


class CheckpointTriggered(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster triggers a checkpoint and fixes which Executions take part in it (PendingCheckpoint in Flink). Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointTriggered"
    job_id: str
    """Id of the job that takes the checkpoint. Since 0.1.0."""
    checkpoint_id: int
    """Id of the checkpoint, counted from 1 in each job; savepoints share the counter. Since 0.1.0."""
    options: CheckpointOptions
    """Type and directories of the checkpoint. Since 0.1.0."""
    to_trigger: tuple[str, ...]
    """Ids of the Executions that start the barriers: sources, and tasks whose senders have all finished. Since 0.1.0."""
    to_acknowledge: tuple[str, ...]
    """Ids of the Executions whose acknowledgements the JobMaster awaits. Since 0.1.0."""
    finished: tuple[str, ...] = ()
    """Ids of the Executions that had finished before. Their subtasks stay finished after a restore (FLIP-147). Since 0.1.0."""
    requests: tuple[int, ...] = ()
    """Offsets of the TriggerCheckpoint events that this checkpoint answers; empty for a periodic checkpoint. Since 0.1.0."""
    retained: int = 1
    """Number of completed checkpoints that the job keeps when this one is complete; older ones are subsumed. Since 0.1.0."""


class CheckpointsRemoved(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster's process has deleted what the ended job's checkpoints left in storage, except what is retained. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointsRemoved"
    job_id: str
    """Id of the job that ended. Since 0.1.0."""


class DeclineCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor reports that a subtask cannot take part in a checkpoint. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.DeclineCheckpoint"
    job_id: str
    """Id of the job that takes the checkpoint. Since 0.1.0."""
    execution_attempt_id: str
    """Id of the Execution that declines. Since 0.1.0."""
    checkpoint_id: int
    """Id of the declined checkpoint, counted from 1 in each job; savepoints share the counter. Since 0.1.0."""
    reason: str
    """Why the subtask cannot take part, as text for people. Since 0.1.0."""


class DisconnectTaskManager(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor disconnects from the JobMaster because it holds no slot for the job any more. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.DisconnectTaskManager"
    job_id: str
    """Id of the job that the TaskExecutor has no slots for any more. Since 0.1.0."""
    resource_id: str
    """ResourceID of the TaskExecutor that disconnects. Since 0.1.0."""
    reason: str
    """Why the TaskExecutor disconnects, as text for people. Since 0.1.0."""


class FailSlot(Body, frozen=True, gc=False, kw_only=True):
    """The TaskExecutor or the ResourceManager reports that an allocated slot is gone. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.FailSlot"
    allocation_id: str
    """AllocationID of the slot that is gone. Since 0.1.0."""
    reason: str
    """Why the slot is gone, as text for people. Since 0.1.0."""


class HeartbeatFromTaskManager(Body, frozen=True, gc=False, kw_only=True):
    """A heartbeat from a TaskExecutor, with the job's Executions that run there. It is soft state: no role folds it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.HeartbeatFromTaskManager"
    job_id: str
    """Id of the job whose JobMaster receives the heartbeat. Since 0.1.0."""
    resource_id: str
    """ResourceID of the TaskExecutor that sends the heartbeat. Since 0.1.0."""
    position: int
    """Offset up to which the TaskExecutor had folded the log. Since 0.1.0."""
    accumulator_report: AccumulatorReport
    """The job's Executions at the TaskExecutor, and their accumulators. Since 0.1.0."""


class HeartbeatTimedOut(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster's process has received no heartbeat from a TaskExecutor within heartbeat.timeout. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.HeartbeatTimedOut"
    resource_id: str
    """ResourceID of the silent TaskExecutor. Since 0.1.0."""
    reason: str
    """How long the TaskExecutor has been silent, as text for people. Since 0.1.0."""


class JobConfigurationChanged(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher tells a JobMaster that options of its job have changed. Its next decisions go by them. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.JobConfigurationChanged"
    job_id: str
    """Id of the job. Since 0.1.0."""
    configuration: Mapping[str, str]
    """Option -> its new value. Since 0.1.0."""
    removed: tuple[str, ...] = ()
    """Options that have the value again that the job was started with. Since 0.1.0."""


class JobManagerRegistrationSuccess(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager has registered the JobMaster. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.JobManagerRegistrationSuccess"
    job_id: str
    """Id of the job whose JobMaster is registered. Since 0.1.0."""


class JobMasterFailed(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster cannot decide, or the log does not accept an event that it has to send. The job fails; other jobs continue. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.JobMasterFailed"
    job_id: str
    """Id of the job that fails. Since 0.1.0."""
    reason: str
    """Which error the JobMaster raised, as text for people. Since 0.1.0."""


class MoveSlot(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager asks a JobMaster to give up a slot on a quarantined TaskExecutor as soon as it has another one. The tasks in it continue there from their last commit. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.MoveSlot"
    allocation_id: str
    """AllocationID of the slot. Since 0.1.0."""
    reason: str
    """Why, as text for people. Since 0.1.0."""


class OfferSlots(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor offers the JobMaster slots that were requested for the job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.OfferSlots"
    job_id: str
    """Id of the job that the slots were requested for. Since 0.1.0."""
    resource_id: str
    """ResourceID of the TaskExecutor that offers the slots. Since 0.1.0."""
    slots: tuple[SlotOffer, ...]
    """The offered slots: AllocationID, number and resources of each. Since 0.1.0."""


class RegisterTaskManager(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor that holds a slot for the job registers at the JobMaster. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.RegisterTaskManager"
    job_id: str
    """Id of the job that the TaskExecutor holds a slot for. Since 0.1.0."""
    resource_id: str
    """ResourceID of the TaskExecutor that registers. Since 0.1.0."""


class RescaleJob(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher forwards a client's request to change the parallelism of the job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.RescaleJob"
    job_id: str
    """Id of the job to rescale. Since 0.1.0."""
    parallelism: int | None = None
    """The wanted parallelism of all vertices that run at the default parallelism of the job: the largest one at its submission; null to change those in bounds only. Since 0.1.0."""
    bounds: Mapping[str, ParallelismBounds] = msgspec.field(default_factory=dict)
    """The wanted parallelism of single vertices, by their ids or names; these go before parallelism. Since 0.1.0."""
    reason: str = ""
    """Why, as text for people; empty if the client gives no reason. Since 0.1.0."""
    max_slots: int | None = None
    """The number of slots that the job may use; null for no limit. Since 0.1.0."""
    requester: str
    """Address of the client that awaits the answer. Since 0.1.0."""
    tenant: str = ""
    """Tenant of this client; empty: none. Since 0.1.0."""


class RescaleStarted(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster accepts a request to change the parallelism, or its adaptive scheduler decides to: it requests the missing slots while the job runs on, and then takes the checkpoint from which the tasks restart. A job of which no task was submitted yet changes at once. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.RescaleStarted"
    job_id: str
    """Id of the job. Since 0.1.0."""
    parallelism: Mapping[str, int]
    """The new parallelism of each vertex that changes, by vertex id. Since 0.1.0."""
    bounds: Mapping[str, ParallelismBounds] = msgspec.field(default_factory=dict)
    """The bounds of the parallelism of each vertex that the request names, by vertex id. Since 0.1.0."""
    reason: str = ""
    """Why, as text for people. Since 0.1.0."""
    is_adaptive: bool = False
    """True if the adaptive scheduler decides it, without a request. Since 0.1.0."""
    has_cut: bool = True
    """False if no task was submitted yet: the job changes at once, without a checkpoint. Since 0.1.0."""


class ResetOffsets(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher tells a JobMaster that Kafka sources of its paused job continue from other positions. Of several resets of a partition the last one counts. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.ResetOffsets"
    job_id: str
    """Id of the job. Since 0.1.0."""
    offsets: tuple[PartitionOffset, ...]
    """The new positions. Other partitions keep theirs. Since 0.1.0."""


class RestartScheduled(Body, frozen=True, gc=False, kw_only=True):
    """The restart strategy lets the tasks of a failure restart, and says when. The tasks restart together with those that fail before this event is in the log. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.RestartScheduled"
    job_id: str
    """Id of the job whose tasks restart. Since 0.1.0."""
    restart_at: int
    """Time from which the tasks are submitted, in microseconds since the epoch. Since 0.1.0."""
    failure_count: int
    """Number of failures that the restart strategy counts, with this one; for the exponential delay since its last reset. Since 0.1.0."""
    backoff_us: int = 0
    """Delay without jitter, in microseconds, which the exponential delay multiplies at the next failure; 0 for other strategies. Since 0.1.0."""
    failures_in_interval: int = 0
    """Number of failures that the failure rate still counts, with this one; 0 for other strategies. Since 0.1.0."""


class RestartSuppressed(Body, frozen=True, gc=False, kw_only=True):
    """The restart strategy does not let the tasks of a failure restart: the job fails. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.RestartSuppressed"
    job_id: str
    """Id of the job that fails. Since 0.1.0."""
    failure_count: int
    """Number of failures that the restart strategy counts, with this one. Since 0.1.0."""
    reason: str
    """Which tasks failed, where and why, as text for people. Since 0.1.0."""


class RestartTasks(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher asks a JobMaster to restart tasks from their last commit, because a client asked for it. It is no failure. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.RestartTasks"
    job_id: str
    """Id of the job. Since 0.1.0."""
    vertex_id: str | None = None
    """The vertex whose tasks restart; null: those of all vertices. Since 0.1.0."""
    subtask_index: int | None = None
    """The subtask of the vertex that restarts, from 0; null: all of them. Since 0.1.0."""


class RestoreFailed(Body, frozen=True, gc=False, kw_only=True):
    """The JobMaster's process has found no checkpoint to restore, or the checkpoint does not fit the job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.RestoreFailed"
    job_id: str
    """Id of the job that cannot start from a checkpoint. Since 0.1.0."""
    reason: str
    """Why no checkpoint can be restored, as text for people. Since 0.1.0."""


class ResumeJob(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher asks the JobMaster to resume a suspended job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.ResumeJob"
    job_id: str
    """Id of the job to resume. Since 0.1.0."""


class ScalingDecided(Body, frozen=True, gc=False, kw_only=True):
    """The autoscaler has decided on the parallelism of the job. The numbers that it decided on are in the TasksMeasured event that caused this one. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.ScalingDecided"
    job_id: str
    """Id of the job. Since 0.1.0."""
    parallelism: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The new parallelism of each vertex that should change, by vertex id; empty if none should. Since 0.1.0."""
    capacity: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What each of these vertices can process at its present parallelism, in records per second (the true processing rate in Flink); a vertex whose limit nothing shows is missing. Since 0.1.0."""
    is_advice: bool = False
    """If true, the job is not rescaled, for job.autoscaler.scaling.enabled is false; if false, it is rescaled if parallelism is not empty. Since 0.1.0."""
    reason: str
    """Why, as text for people. Since 0.1.0."""


class SlotAllocationFailed(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager cannot fulfil a slot request. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.SlotAllocationFailed"
    allocation_id: str
    """AllocationID of the slot request that failed. Since 0.1.0."""
    reason: str
    """How many slots are requested, free and registered, as text for people. Since 0.1.0."""


class SlotsShared(Body, frozen=True, gc=False, kw_only=True):
    """The adaptive scheduler waits no longer for slots: tasks without a slot continue from their last commits in slots of other tasks of the job, until the job has a parallelism that fits its slots. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.SlotsShared"
    job_id: str
    """Id of the job. Since 0.1.0."""
    slots: Mapping[str, str]
    """AllocationID of each slot request that is given up -> AllocationID of the slot in which its tasks continue. Since 0.1.0."""
    reason: str
    """Why, as text for people. Since 0.1.0."""


class SlowTaskDetected(Body, frozen=True, gc=False, kw_only=True):
    """A task of a stage runs for much longer than others of its vertex have. It moves to an available slot of the job on another TaskExecutor, with the tasks that share its slot, and continues there from its last commit. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.SlowTaskDetected"
    job_id: str
    """Id of the job. Since 0.1.0."""
    execution_attempt_id: str
    """Id of the attempt that is slow. Since 0.1.0."""
    allocation_id: str
    """AllocationID of the slot to which it moves. Since 0.1.0."""
    reason: str
    """Why it counts as slow, as text for people. Since 0.1.0."""


class StartJob(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher starts a JobMaster for an accepted job. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.StartJob"
    job_id: str
    """Id of the job to start. Since 0.1.0."""
    job_graph: JobGraph
    """The JobGraph to run. Since 0.1.0."""
    configuration: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Option key -> value: the cluster's defaults, overridden by the job's own options. Since 0.1.0."""
    savepoint_path: str | None = None
    """Directory of the savepoint or checkpoint that the job starts from; null to start without state. Since 0.1.0."""
    allow_non_restored_state: bool = False
    """If true, state in the savepoint that no operator of the job takes is skipped; if false, the job fails because of it. Since 0.1.0."""
    job_graph_blob: str | None = None
    """Key of the blob from which TaskExecutors get the JobGraph with these options, permanent/<job id>/<SHA-256>; null for a graph of up to 64 KiB, which JobManagerRegistrationSuccess contains. Since 0.1.0."""
    tenant: str = ""
    """Tenant whose job it is; empty: none. Since 0.1.0."""
    bounds: Mapping[str, ParallelismBounds] = msgspec.field(default_factory=dict)
    """Adaptive scheduler: the bounds of the parallelism of each vertex that may have another one, by vertex id; empty for the default scheduler. Since 0.1.0."""


class SuspendJob(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher asks the JobMaster to suspend the job: its tasks end, its progress stays. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.SuspendJob"
    job_id: str
    """Id of the job to suspend. Since 0.1.0."""
    reason: str
    """Why the job is suspended, as text for people. Since 0.1.0."""


class TaskAcknowledged(Body, frozen=True, gc=False, kw_only=True):
    """The TaskExecutor has received a task that the JobMaster submitted. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.TaskAcknowledged"
    execution_attempt_id: str
    """Id of the Execution that the TaskExecutor received. Since 0.1.0."""


class TasksContradicted(Body, frozen=True, gc=False, kw_only=True):
    """Two heartbeats in a row of a TaskExecutor lack Executions that the JobMaster expects there. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.TasksContradicted"
    resource_id: str
    """ResourceID of the TaskExecutor that sent the heartbeats. Since 0.1.0."""
    execution_attempt_ids: tuple[str, ...]
    """Ids of the Executions that the TaskExecutor does not run. Since 0.1.0."""
    reason: str
    """What the heartbeats said, as text for people. Since 0.1.0."""


class TasksMeasured(Body, frozen=True, gc=False, kw_only=True):
    """What all tasks of a job did in a window of time. The autoscaler decides on it. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.TasksMeasured"
    job_id: str
    """Id of the job. Since 0.1.0."""
    duration: int
    """Length of the window, in microseconds. Since 0.1.0."""
    vertices: tuple[VertexMeasurement, ...] = ()
    """The vertices, by id. Those of which a subtask was not measured are missing. Since 0.1.0."""


class TriggerCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher forwards a client's request for a checkpoint, a savepoint, or a stop with savepoint. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.TriggerCheckpoint"
    job_id: str
    """Id of the job to take a checkpoint or savepoint of. Since 0.1.0."""
    snapshot_type: SnapshotType
    """Whether the client requests a checkpoint or a savepoint. Since 0.1.0."""
    directory: str | None = None
    """For a savepoint, the directory in which its own directory is created, a path or URI; null for the option state.savepoints.dir. Since 0.1.0."""
    stops: bool = False
    """If true, the job ends with the savepoint. Since 0.1.0."""
    drains: bool = False
    """If true, event time advances to its end before the savepoint. Since 0.1.0."""
    requester: str
    """Address of the client that awaits the answer. Since 0.1.0."""
    tenant: str = ""
    """Tenant of this client; empty: none. Since 0.1.0."""
    trigger_id: str | None = None
    """For a savepoint, an id that the client has chosen: requests of a job with the same id are one request, also when its savepoint is complete; null: each request takes a savepoint. Since 0.1.0."""


class UpdateTaskExecutionState(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor reports that an Execution has changed its state. Since 0.1.0."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.UpdateTaskExecutionState"
    job_id: str
    """Id of the job that the Execution belongs to. Since 0.1.0."""
    execution_attempt_id: str
    """Id of the Execution that changed its state. Since 0.1.0."""
    execution_state: ExecutionState
    """New state of the Execution. Since 0.1.0."""
    failure: str | None = None
    """For FAILED, which error was raised and where, as text for people; null for other states. Since 0.1.0."""
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What the subtask has counted and committed: accumulator name -> value. Empty unless the Execution has ended. Since 0.1.0."""
    progress_lost: bool = False
    """For FAILED: if true, the committed progress that the Execution should continue from is gone, and the job has to restore a checkpoint. Since 0.1.0."""
