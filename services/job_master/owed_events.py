"""The events that a JobMaster owes until they are in the log, for a job that is started or terminated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import msgspec

from ...pipelines.graph.accumulators import total
from ...schemas import client, dispatcher, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.types import CheckpointOptions, CompletedCheckpoint, JobGraph, RestoredCheckpoint
from ..core.outbox import OutboxOrder, OwedAnswer, OwedEvent, step_of_sent
from ..core.owed_events import OwedFreeSlot
from ..core.role import DISPATCHER, RESOURCE_MANAGER, OutgoingEvent, Step, Time, instance_of
from .job_result import JobResult


class _StartedJob(Protocol):
    """A job that still has its graph."""

    @property
    def job_id(self) -> str: ...
    @property
    def graph(self) -> JobGraph: ...
    @property
    def graph_blob(self) -> str | None: ...


class OwedRegisterJobManager(OwedEvent, frozen=True, tag=True):
    """To the ResourceManager, before the first slot is requested."""

    ids = 0

    def outgoing_event(self, state: JobResult) -> OutgoingEvent:
        body = resource_manager.RegisterJobManager(job_id=state.job_id)
        return OutgoingEvent(RESOURCE_MANAGER, body, self.cause)


class OwedJobManagerRegistrationSuccess(OwedEvent, frozen=True, tag=True):
    """To a TaskExecutor that has registered."""

    resource_id: str

    def outgoing_event(self, state: _StartedJob) -> OutgoingEvent:
        blob = state.graph_blob
        body = task_executor.JobManagerRegistrationSuccess(
            job_id=state.job_id, job_graph=state.graph if blob is None else None, job_graph_blob=blob
        )
        return self.to_task_executor(self.resource_id, body)


class OwedSlotsAccepted(OwedAnswer, frozen=True, tag=True):
    """To the OfferSlots at `cause`, for some of its slots."""

    resource_id: str
    allocation_ids: tuple[str, ...]

    def outgoing_event(self, state: JobResult) -> OutgoingEvent:
        body = task_executor.SlotsAccepted(job_id=state.job_id, allocation_ids=self.allocation_ids)
        return self.to_task_executor(self.resource_id, body)


class OwedSlotsRejected(OwedAnswer, frozen=True, tag=True):
    """To the OfferSlots at `cause`, for some of its slots."""

    resource_id: str
    allocation_ids: tuple[str, ...]

    def outgoing_event(self, state: JobResult) -> OutgoingEvent:
        reason = f"job {state.job_id} does not want it"
        body = task_executor.SlotsRejected(
            job_id=state.job_id, allocation_ids=self.allocation_ids, reason=reason
        )
        return self.to_task_executor(self.resource_id, body)


class OwedRequestSlot(OwedEvent, frozen=True, tag=True):
    """To the ResourceManager. `slot_events.request_events` creates the event."""

    allocation_id: str


class OwedSubmitTask(OwedEvent, frozen=True, tag=True):
    """For an Execution. `deployment.submit_events` creates one event for several."""

    execution_attempt_id: str


class OwedCancelTask(OwedEvent, frozen=True, tag=True):
    """For an Execution that has to end."""

    execution_attempt_id: str
    resource_id: str

    def outgoing_event(self, state: JobResult) -> OutgoingEvent:
        body = task_executor.CancelTask(job_id=state.job_id, execution_attempt_id=self.execution_attempt_id)
        return self.to_task_executor(self.resource_id, body)


class _OwedNotification(OwedEvent, frozen=True, tag=True):
    """About a checkpoint, for Executions at a TaskExecutor. The fields of the event have the same names."""

    body: ClassVar[type[Body]]

    checkpoint_id: int
    resource_id: str
    execution_attempt_ids: tuple[str, ...]
    ids = 2

    def outgoing_event(self, state: JobResult) -> OutgoingEvent:
        fields = msgspec.structs.asdict(self)
        del fields["cause"], fields["resource_id"]
        return self.to_task_executor(self.resource_id, self.body(job_id=state.job_id, **fields))


class OwedTriggerCheckpoint(_OwedNotification, frozen=True, tag=True):
    """For Executions that receive no barriers."""

    body = task_executor.TriggerCheckpoint

    timestamp: Time
    options: CheckpointOptions


class OwedConfirmCheckpoint(_OwedNotification, frozen=True, tag=True):
    """The Executions restore `restore` from now on."""

    body = task_executor.ConfirmCheckpoint

    restore: RestoredCheckpoint | None


class OwedAbortCheckpoint(_OwedNotification, frozen=True, tag=True):
    """The Executions take part in the checkpoint."""

    body = task_executor.AbortCheckpoint


class OwedCheckpointSucceeded(OwedAnswer, frozen=True, tag=True):
    """To the client that has requested a checkpoint at `cause`."""

    requester: str
    checkpoint: CompletedCheckpoint
    tenant: str = ""

    def outgoing_event(self, state: JobResult) -> OutgoingEvent:
        body = client.CheckpointSucceeded(job_id=state.job_id, checkpoint=self.checkpoint)
        return OutgoingEvent(self.requester, body, self.cause, self.tenant)


class OwedCheckpointFailed(OwedAnswer, frozen=True, tag=True):
    """To the client that has requested a checkpoint at `cause`."""

    requester: str
    reason: str
    tenant: str = ""

    def outgoing_event(self, state: JobResult) -> OutgoingEvent:
        body = client.CheckpointFailed(job_id=state.job_id, reason=self.reason)
        return OutgoingEvent(self.requester, body, self.cause, self.tenant)


class OwedRescaleFailed(OwedAnswer, frozen=True, tag=True):
    """To the client that has requested another parallelism at `cause`."""

    requester: str
    reason: str
    tenant: str = ""

    def outgoing_event(self, state: JobResult) -> OutgoingEvent:
        body = client.RescaleFailed(job_id=state.job_id, reason=self.reason)
        return OutgoingEvent(self.requester, body, self.cause, self.tenant)


class OwedCancelSlotRequest(OwedEvent, frozen=True, tag=True):
    """To the ResourceManager, for a request that the job no longer needs."""

    allocation_id: str
    reason: str

    def outgoing_event(self, _state: object) -> OutgoingEvent:
        body = resource_manager.CancelSlotRequest(allocation_id=self.allocation_id, reason=self.reason)
        return OutgoingEvent(RESOURCE_MANAGER, body, self.cause)


class OwedDisconnectJobManager(OwedEvent, frozen=True, tag=True):
    """To a TaskExecutor: the job has ended, or the TaskExecutor is silent."""

    resource_id: str
    reason: str

    def outgoing_event(self, state: JobResult) -> OutgoingEvent:
        body = task_executor.DisconnectJobManager(job_id=state.job_id, reason=self.reason)
        return self.to_task_executor(self.resource_id, body)


class OwedJobReachedTerminalState(OwedEvent, frozen=True, tag=True):
    """To the Dispatcher: the job has ended, or is suspended."""

    ids = 0

    def outgoing_event(self, state: JobResult) -> OutgoingEvent:
        body = dispatcher.JobReachedTerminalState(
            job_id=state.job_id,
            status=state.status,
            reason=state.reason,
            accumulators=total(state.accumulators.values()),
        )
        return OutgoingEvent(DISPATCHER, body, self.cause)


class OwedUnregisterJobManager(OwedEvent, frozen=True, tag=True):
    """DisconnectJobManager to the ResourceManager, when the job has ended or is suspended."""

    ids = 0

    def outgoing_event(self, state: JobResult) -> OutgoingEvent:
        body = resource_manager.DisconnectJobManager(job_id=state.job_id, status=state.status)
        return OutgoingEvent(RESOURCE_MANAGER, body, self.cause)


CheckpointNotification = OwedTriggerCheckpoint | OwedConfirmCheckpoint | OwedAbortCheckpoint
TerminatedJobEvent = (
    OwedSlotsRejected
    | OwedCheckpointSucceeded
    | OwedCheckpointFailed
    | OwedRescaleFailed
    | OwedCancelSlotRequest
    | OwedDisconnectJobManager
    | OwedJobReachedTerminalState
    | OwedUnregisterJobManager
)
JobMasterEvent = (
    OwedRegisterJobManager
    | OwedJobManagerRegistrationSuccess
    | OwedSlotsAccepted
    | OwedCancelTask
    | OwedFreeSlot
    | TerminatedJobEvent
)
ORDER = OutboxOrder(
    OwedRegisterJobManager,
    OwedJobManagerRegistrationSuccess,
    (OwedSlotsAccepted, OwedSlotsRejected),
    OwedCancelTask,
    (OwedCheckpointSucceeded, OwedCheckpointFailed, OwedRescaleFailed),
    (OwedFreeSlot, OwedCancelSlotRequest),
    OwedDisconnectJobManager,
    OwedJobReachedTerminalState,
    OwedUnregisterJobManager,
    (OwedTriggerCheckpoint, OwedConfirmCheckpoint, OwedAbortCheckpoint),
)

on_job_manager_registration_success = step_of_sent(
    OwedJobManagerRegistrationSuccess, lambda header, _: (instance_of(header.recipient),), same_cause=True
)
on_slots_accepted = step_of_sent(OwedSlotsAccepted, lambda header, _: (header.cause,))
on_slots_rejected = step_of_sent(OwedSlotsRejected, lambda header, _: (header.cause,))
on_checkpoint_succeeded = step_of_sent(OwedCheckpointSucceeded, lambda header, _: (header.cause,))
on_checkpoint_failed = step_of_sent(OwedCheckpointFailed, lambda header, _: (header.cause,))
on_rescale_failed = step_of_sent(OwedRescaleFailed, lambda header, _: (header.cause,))
on_cancel_slot_request = step_of_sent(OwedCancelSlotRequest, lambda _, body: (body.allocation_id,))
on_disconnect_job_manager = step_of_sent(
    OwedDisconnectJobManager, lambda header, _: (instance_of(header.recipient),)
)
on_job_reached_terminal_state = step_of_sent(OwedJobReachedTerminalState, lambda _header, _body: ())
on_resource_manager_disconnect_job_manager = step_of_sent(OwedUnregisterJobManager, lambda _header, _body: ())

STEPS: Mapping[type[Body], Step[Any]] = {
    client.CheckpointSucceeded: on_checkpoint_succeeded,
    client.CheckpointFailed: on_checkpoint_failed,
    client.RescaleFailed: on_rescale_failed,
    dispatcher.JobReachedTerminalState: on_job_reached_terminal_state,
    resource_manager.CancelSlotRequest: on_cancel_slot_request,
    resource_manager.DisconnectJobManager: on_resource_manager_disconnect_job_manager,
    task_executor.JobManagerRegistrationSuccess: on_job_manager_registration_success,
    task_executor.SlotsAccepted: on_slots_accepted,
    task_executor.SlotsRejected: on_slots_rejected,
    task_executor.DisconnectJobManager: on_disconnect_job_manager,
}
"""The steps of these events when they are read from the log; those of a started job may do more."""
