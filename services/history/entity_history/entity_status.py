"""What has become of an entity: as its events come, and at the end of the log.

An outcome is over once nothing more is to be expected of the entity; something may be said of it all the same, and it
may begin anew (a task that is retried, a TaskExecutor that registers again).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ....schemas import client, dispatcher, everyone, job_master, resource_manager, task_executor
from ....schemas.types import ExecutionState, JobStatus
from ...core.role import instance_of
from .entities import Entity, EntityKind, slot
from .event_annotator import AnnotatedEvent, EventAnnotator
from .event_descriptions import format_count, format_size, loss
from .event_formatting import shorten_ids

_ENDS = {JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED}


class EntityStatus(msgspec.Struct, frozen=True):
    """How things stand with an entity."""

    text: str
    over: bool = False
    failed: bool = False
    admitted: bool = False
    """Of a job: whether it was accepted. A second one under its id does not touch it."""
    requests: int = 0
    """Of a client."""


def initial_status(entity: Entity) -> EntityStatus:
    """Before anything is known."""
    match entity.kind:
        case EntityKind.JOB:
            return EntityStatus("never submitted, as far as the log goes")
        case EntityKind.CLIENT:
            return EntityStatus("no request")
        case _:
            return EntityStatus("named, and no more")


def update_status(
    entity: Entity, before: EntityStatus, told: AnnotatedEvent, teller: EventAnnotator
) -> EntityStatus:
    """How things stand after an event that was not ignored."""
    found = _STATUS_UPDATES[entity.kind](entity, before, told, teller)
    return before if found is None else found


def _why(reason: str | None) -> str:
    lines = [each.strip() for each in (reason or "").splitlines() if each.strip()]
    return f": {shorten_ids(lines[-1 if lines[0].startswith('Traceback') else 0])}" if lines else ""


def _job_status(told: AnnotatedEvent, before: EntityStatus) -> EntityStatus | None:
    match told.body:
        case dispatcher.SubmitJob() | client.JobRejected() if before.admitted:
            return None
        case client.JobRejected(reason=reason):
            return EntityStatus(f"rejected{_why(reason)}", over=True, failed=True)
        case client.JobStatusChanged(status=status) if status not in _ENDS:
            unwell = status in (JobStatus.FAILING, JobStatus.RESTARTING)
            return EntityStatus(status.value, failed=unwell, admitted=True)
        case dispatcher.JobReachedTerminalState(status=status, reason=reason):
            ended = status in _ENDS
            return EntityStatus(
                f"{status.value}{_why(reason)}", over=ended, failed=status is JobStatus.FAILED, admitted=True
            )
        case client.JobFinished(status=status, reason=reason):
            return EntityStatus(
                f"{status.value}{_why(reason)}", over=True, failed=status is JobStatus.FAILED, admitted=True
            )
        case client.JobAccepted():
            return EntityStatus("accepted, and not started yet", admitted=True)
        case dispatcher.SubmitJob():
            return EntityStatus("submitted, and not answered yet")
        case _:
            return None


def _task_status(told: AnnotatedEvent, teller: EventAnnotator) -> EntityStatus | None:
    match told.body:
        case job_master.StartJob() | job_master.ResumeJob():
            return EntityStatus("wanted, and not submitted yet")
        case task_executor.SubmitTask(attempt_number=number):
            where = instance_of(told.entry.record.header.recipient)
            return EntityStatus(f"submitted to {where}, attempt {number + 1}")
        case job_master.UpdateTaskExecutionState(execution_state=state, failure=failure):
            where = instance_of(told.entry.record.header.sender)
            over = state in (ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED)
            return EntityStatus(
                f"{state.value} on {where}{_why(failure)}", over=over, failed=state is ExecutionState.FAILED
            )
        case everyone.TaskExecutorLost() as lost:
            return EntityStatus(f"lost with {lost.resource_id}{_why(loss(lost))}", over=True, failed=True)
        case client.JobStatusChanged(status=status) if status in _ENDS:
            return EntityStatus(f"the job is {status.value}", over=True, failed=status is JobStatus.FAILED)
        case _:
            return None


def _slot_status(entity: Entity, told: AnnotatedEvent) -> EntityStatus | None:
    match told.body:
        case (
            resource_manager.SendSlotReport(slots=slots)
            | resource_manager.SlotReportContradicted(slots=slots)
        ):
            for each in slots:
                if slot(each.slot_id.resource_id, each.slot_id.slot_number) == entity:
                    return (
                        _held(each.job_id, each.allocation_id) if each.allocation_id else EntityStatus("free")
                    )
            return EntityStatus("free")
        case task_executor.RequestSlot(job_id=job_id, allocation_id=allocation_id):
            return _held(job_id, allocation_id, "asked for by")
        case resource_manager.SlotRequestRejected():
            return EntityStatus("refused by its TaskExecutor", failed=True)
        case task_executor.SlotsAccepted(job_id=job_id):
            return EntityStatus(f"held by job {shorten_ids(job_id)}")
        case resource_manager.NotifySlotAvailable():
            return EntityStatus("free")
        case everyone.TaskExecutorLost() as lost:
            return EntityStatus(f"gone with {lost.resource_id}{_why(loss(lost))}", over=True, failed=True)
        case _:
            return None


def _held(job_id: str | None, allocation_id: str | None, how: str = "held by") -> EntityStatus:
    return EntityStatus(
        f"{how} job {shorten_ids(job_id or '?')}, allocation {shorten_ids(allocation_id or '?')}"
    )


def _allocation_status(entity: Entity, told: AnnotatedEvent, teller: EventAnnotator) -> EntityStatus | None:
    given = teller.entities.slot_of.get(entity.id)
    where = given.id if given is not None else "a slot"
    match told.body:
        case resource_manager.RequestSlot():
            return EntityStatus("asked for")
        case task_executor.RequestSlot():
            return EntityStatus(f"{where} was chosen for it")
        case resource_manager.SlotRequestAccepted():
            return EntityStatus(f"holds {where}")
        case task_executor.SlotsAccepted():
            return EntityStatus(f"holds {where}, which the job has taken")
        case resource_manager.NotifySlotAvailable():
            return EntityStatus(f"over: {where} is free again", over=True)
        case resource_manager.CancelSlotRequest(reason=reason):
            return EntityStatus(f"not wanted any more{_why(reason)}", over=True)
        case job_master.SlotAllocationFailed(reason=reason):
            return EntityStatus(f"no slot was found{_why(reason)}", over=True, failed=True)
        case job_master.FailSlot(reason=reason):
            return EntityStatus(f"its slot is gone{_why(reason)}", over=True, failed=True)
        case everyone.TaskExecutorLost() as lost:
            return EntityStatus(
                f"its slot is gone with {lost.resource_id}{_why(loss(lost))}", over=True, failed=True
            )
        case _:
            return None


def _task_executor_status(entity: Entity, told: AnnotatedEvent) -> EntityStatus | None:
    match told.body:
        case everyone.LeaderElected(role=role, address=address) if instance_of(role) == entity.id:
            return EntityStatus(f"its process {address} has begun, and has not registered yet")
        case resource_manager.StartWorker():
            return EntityStatus("wanted, and not started yet")
        case resource_manager.WorkerStarted():
            return EntityStatus("started by the ResourceManager, and not registered yet")
        case task_executor.TaskExecutorRegistrationSuccess():
            return EntityStatus("registered")
        case task_executor.TaskExecutorRegistrationRejection(reason=reason):
            return EntityStatus(f"turned away{_why(reason)}", over=True, failed=True)
        case everyone.TaskExecutorLost() as lost:
            return EntityStatus(f"lost{_why(loss(lost))}", over=True, failed=True)
        case resource_manager.DisconnectTaskManager(reason=reason):
            return EntityStatus(f"left{_why(reason)}", over=True)
        case _:
            return None


def _checkpoint_status(told: AnnotatedEvent, before: EntityStatus) -> EntityStatus | None:
    match told.body:
        case job_master.CheckpointTriggered():
            return EntityStatus("begun, and not complete yet")
        case job_master.CheckpointCompleted(checkpoint=checkpoint):
            return EntityStatus(f"complete, {format_size(checkpoint.size)} in {checkpoint.uri}", over=True)
        case job_master.CheckpointAborted(reason=reason, failure=kind):
            return EntityStatus(f"given up ({kind.value}){_why(reason)}", over=True, failed=True)
        case job_master.CheckpointDiscarded() if not before.failed:
            return EntityStatus(
                "it was complete, and its files are deleted: nothing needs them any more", over=True
            )
        case job_master.CheckpointRestored():
            return EntityStatus("tasks began with it", over=True)
        case _:
            return None


def _role_status(entity: Entity, told: AnnotatedEvent) -> EntityStatus | None:
    match told.body:
        case everyone.LeaderElected(role=role, address=address, epoch=epoch) if role == entity.id:
            return EntityStatus(f"led by {address} under epoch {epoch}")
        case everyone.ClusterTerminated(reason=reason):
            return EntityStatus(f"the cluster has ended{_why(reason)}", over=True)
        case _:
            return None


def _client_status(told: AnnotatedEvent, before: EntityStatus) -> EntityStatus | None:
    header = told.entry.record.header
    if not header.sender.startswith("client/"):
        return None
    count = before.requests + 1
    return EntityStatus(format_count(count, "request"), requests=count)


_STATUS_UPDATES: Mapping[
    EntityKind, Callable[[Entity, EntityStatus, AnnotatedEvent, EventAnnotator], EntityStatus | None]
] = {
    EntityKind.JOB: lambda _entity, before, told, _teller: _job_status(told, before),
    EntityKind.TASK: lambda _entity, _before, told, teller: _task_status(told, teller),
    EntityKind.SLOT: lambda entity, _before, told, _teller: _slot_status(entity, told),
    EntityKind.ALLOCATION: lambda entity, _before, told, teller: _allocation_status(entity, told, teller),
    EntityKind.TASK_EXECUTOR: lambda entity, _before, told, _teller: _task_executor_status(entity, told),
    EntityKind.CHECKPOINT: lambda _entity, before, told, _teller: _checkpoint_status(told, before),
    EntityKind.ROLE: lambda entity, _before, told, _teller: _role_status(entity, told),
    EntityKind.CLIENT: lambda _entity, before, told, _teller: _client_status(told, before),
}
