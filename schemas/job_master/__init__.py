"""Events of the namespace tailrace.job_master: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ..body import Body
from ..types import (
    AccumulatorReport,
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointOptions,
    CompletedCheckpoint,
    ExecutionState,
    JobGraph,
    RestoredCheckpoint,
    SlotOffer,
    SnapshotType,
    SubtaskState,
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
    "JobManagerRegistrationSuccess",
    "JobMasterFailed",
    "OfferSlots",
    "RegisterTaskManager",
    "RestoreFailed",
    "ResumeJob",
    "SlotAllocationFailed",
    "StartJob",
    "SuspendJob",
    "TaskAcknowledged",
    "TasksContradicted",
    "TriggerCheckpoint",
    "UpdateTaskExecutionState",
]


class AcknowledgeCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """A subtask's part of a checkpoint is in storage (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.AcknowledgeCheckpoint"
    job_id: str
    """The job."""
    execution_attempt_id: str
    """The Execution."""
    checkpoint_id: int
    """The checkpoint, counted from 1 in each job; savepoints are counted with them."""
    metrics: CheckpointMetrics
    """How it went."""
    subtask_state: SubtaskState
    """What it has written."""


class CancelJob(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher passes a request to cancel on."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CancelJob"
    job_id: str
    """The job."""
    keep_checkpoints: bool = False
    """Whether the completed checkpoints stay, whatever the job's retention says."""


class ChannelsCreated(Body, frozen=True, gc=False, kw_only=True):
    """The topics of the job's channels exist."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.ChannelsCreated"
    job_id: str
    """The job."""


class ChannelsDeleted(Body, frozen=True, gc=False, kw_only=True):
    """The topics of the ended job's channels are gone."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.ChannelsDeleted"
    job_id: str
    """The job."""


class ChannelsFailed(Body, frozen=True, gc=False, kw_only=True):
    """The topics of the job's channels could not be created."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.ChannelsFailed"
    job_id: str
    """The job."""
    reason: str
    """Why."""


class CheckpointAborted(Body, frozen=True, gc=False, kw_only=True):
    """A checkpoint will not be completed."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointAborted"
    job_id: str
    """The job."""
    checkpoint_id: int
    """The checkpoint, counted from 1 in each job; savepoints are counted with them."""
    failure: CheckpointFailureReason
    """Of which kind."""
    reason: str
    """Why, in words."""


class CheckpointCompleted(Body, frozen=True, gc=False, kw_only=True):
    """The metadata of a checkpoint is in storage: it is complete."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointCompleted"
    job_id: str
    """The job."""
    checkpoint: CompletedCheckpoint
    """Where it is."""


class CheckpointDiscarded(Body, frozen=True, gc=False, kw_only=True):
    """A checkpoint's files are gone, but for those that others use."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointDiscarded"
    job_id: str
    """The job."""
    checkpoint_id: int
    """The checkpoint, counted from 1 in each job; savepoints are counted with them."""


class CheckpointRestored(Body, frozen=True, gc=False, kw_only=True):
    """A checkpoint was found whole, and tasks may begin with it."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointRestored"
    job_id: str
    """The job."""
    checkpoint: RestoredCheckpoint | None = None
    """Which one; null: there is none, and tasks begin with nothing."""
    passed_over: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Newer ones that can't be read: directory -> why."""
    finished: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """Subtasks that had finished in it, of the job's own parallelism: vertex -> their numbers."""
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What subtasks that had finished in it had counted, all together: it is in no other's state."""


class CheckpointTriggered(Body, frozen=True, gc=False, kw_only=True):
    """A checkpoint has begun: what is awaited is fixed (PendingCheckpoint)."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointTriggered"
    job_id: str
    """The job."""
    checkpoint_id: int
    """The checkpoint, counted from 1 in each job; savepoints are counted with them."""
    options: CheckpointOptions
    """How."""
    to_trigger: tuple[str, ...]
    """Executions that are told to begin: those that read no channel, or whose senders have all ended."""
    to_acknowledge: tuple[str, ...]
    """Executions whose acknowledgement is awaited."""
    finished: tuple[str, ...] = ()
    """Executions that had finished before; their subtasks stay finished after a restore."""
    requests: tuple[int, ...] = ()
    """Offsets of the requests that this answers; none for a periodic one."""


class CheckpointsRemoved(Body, frozen=True, gc=False, kw_only=True):
    """All that the job's checkpoints left in storage is gone, but for what is to be kept."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CheckpointsRemoved"
    job_id: str
    """The job."""


class DeclineCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """A subtask can't contribute to a checkpoint (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.DeclineCheckpoint"
    job_id: str
    """The job."""
    execution_attempt_id: str
    """The Execution."""
    checkpoint_id: int
    """The checkpoint, counted from 1 in each job; savepoints are counted with them."""
    reason: str
    """Why."""


class DisconnectTaskManager(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor has no more slots for the job (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.DisconnectTaskManager"
    job_id: str
    """The job."""
    resource_id: str
    """The TaskExecutor."""
    reason: str
    """Why."""


class FailSlot(Body, frozen=True, gc=False, kw_only=True):
    """An allocated slot is gone."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.FailSlot"
    allocation_id: str
    """The allocation."""
    reason: str
    """Why."""


class HeartbeatFromTaskManager(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor lives, and these Executions of the job run there (document 000). Soft state."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.HeartbeatFromTaskManager"
    job_id: str
    """The job."""
    resource_id: str
    """The TaskExecutor."""
    position: int
    """The offset up to which the sender had folded the log."""
    accumulator_report: AccumulatorReport
    """The Executions and what they have counted."""


class HeartbeatTimedOut(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor was not heard of for too long; says the JobMaster's shell."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.HeartbeatTimedOut"
    resource_id: str
    """The TaskExecutor."""
    reason: str
    """Why."""


class JobManagerRegistrationSuccess(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager knows the JobMaster."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.JobManagerRegistrationSuccess"
    job_id: str
    """The job."""


class JobMasterFailed(Body, frozen=True, gc=False, kw_only=True):
    """A JobMaster can't decide, or owes an event that the log does not take: its job fails, and no other."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.JobMasterFailed"
    job_id: str
    """The job."""
    reason: str
    """Why."""


class OfferSlots(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor offers slots that were requested for the job."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.OfferSlots"
    job_id: str
    """The job."""
    resource_id: str
    """The TaskExecutor."""
    slots: tuple[SlotOffer, ...]
    """The slots."""


class RegisterTaskManager(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor that holds a slot for the job registers."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.RegisterTaskManager"
    job_id: str
    """The job."""
    resource_id: str
    """The TaskExecutor."""


class RestoreFailed(Body, frozen=True, gc=False, kw_only=True):
    """There is no checkpoint to begin with, or it does not fit the job."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.RestoreFailed"
    job_id: str
    """The job."""
    reason: str
    """Why."""


class ResumeJob(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher wants a suspended job to go on."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.ResumeJob"
    job_id: str
    """The job."""


class SlotAllocationFailed(Body, frozen=True, gc=False, kw_only=True):
    """The ResourceManager can't give the slot."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.SlotAllocationFailed"
    allocation_id: str
    """The request."""
    reason: str
    """Wanted, free and registered slots."""


class StartJob(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher starts a JobMaster for an accepted job."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.StartJob"
    job_id: str
    """The job."""
    job_graph: JobGraph
    """What to run."""
    configuration: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The cluster's defaults with the job's own settings over them."""
    savepoint_path: str | None = None
    """The savepoint or checkpoint to begin with."""
    allow_non_restored_state: bool = False
    """Whether state in it may be left out that no operator of the job takes."""


class SuspendJob(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher wants the job to pause: its tasks end, its progress stays."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.SuspendJob"
    job_id: str
    """The job."""
    reason: str
    """Why."""


class TaskAcknowledged(Body, frozen=True, gc=False, kw_only=True):
    """The TaskExecutor has taken the task."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.TaskAcknowledged"
    execution_attempt_id: str
    """The Execution."""


class TasksContradicted(Body, frozen=True, gc=False, kw_only=True):
    """A TaskExecutor does not run Executions that it should run."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.TasksContradicted"
    resource_id: str
    """The TaskExecutor."""
    execution_attempt_ids: tuple[str, ...]
    """The Executions that it does not know."""
    reason: str
    """Why."""


class TriggerCheckpoint(Body, frozen=True, gc=False, kw_only=True):
    """Take a checkpoint, a savepoint, or stop with one: a client's request, passed on."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.TriggerCheckpoint"
    job_id: str
    """The job."""
    snapshot_type: SnapshotType
    """A checkpoint or a savepoint."""
    directory: str | None = None
    """For a savepoint: the directory to make its own in; null: the configured one."""
    stops: bool = False
    """Whether the job is to end with it."""
    drains: bool = False
    """Whether time comes to its end before."""
    requester: str
    """The client to be answered."""


class UpdateTaskExecutionState(Body, frozen=True, gc=False, kw_only=True):
    """An Execution has changed its state (document 000)."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.UpdateTaskExecutionState"
    job_id: str
    """The job."""
    execution_attempt_id: str
    """The Execution."""
    execution_state: ExecutionState
    """The new state."""
    failure: str | None = None
    """For FAILED: what was raised and where."""
    accumulators: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What the attempt has counted and committed, by name; empty unless it has ended."""
    progress_lost: bool = False
    """For FAILED: what the attempt was to go on from is gone; the job has to go back to a checkpoint."""
