"""Events of the namespace tailrace.job_master: generated from the .avsc files beside this one by `make schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from ..body import Body
from ..types import AccumulatorReport, ExecutionState, JobGraph, SlotOffer

__all__ = [
    "CancelJob",
    "ChannelsCreated",
    "ChannelsDeleted",
    "ChannelsFailed",
    "DisconnectTaskManager",
    "FailSlot",
    "HeartbeatFromTaskManager",
    "HeartbeatTimedOut",
    "JobManagerRegistrationSuccess",
    "OfferSlots",
    "RegisterTaskManager",
    "ResumeJob",
    "SlotAllocationFailed",
    "StartJob",
    "SuspendJob",
    "TaskAcknowledged",
    "TasksContradicted",
    "UpdateTaskExecutionState",
]


class CancelJob(Body, frozen=True, gc=False, kw_only=True):
    """The Dispatcher passes a request to cancel on."""

    AVRO_NAME: ClassVar[str] = "tailrace.job_master.CancelJob"
    job_id: str
    """The job."""


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
