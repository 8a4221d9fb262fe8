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
from .entities import Entity, Kind, slot
from .event_annotator import Teller, Told
from .event_descriptions import counted, loss, size
from .event_formatting import shortened

_ENDS = {JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED}


class Outcome(msgspec.Struct, frozen=True):
    """How things stand with an entity."""

    text: str
    over: bool = False
    failed: bool = False
    admitted: bool = False
    """Of a job: whether it was accepted. A second one under its id does not touch it."""
    requests: int = 0
    """Of a client."""


def initial(entity: Entity) -> Outcome:
    """Before anything is known."""
    match entity.kind:
        case Kind.JOB:
            return Outcome("never submitted, as far as the log goes")
        case Kind.CLIENT:
            return Outcome("no request")
        case _:
            return Outcome("named, and no more")


def outcome(entity: Entity, before: Outcome, told: Told, teller: Teller) -> Outcome:
    """How things stand after an event that was not ignored."""
    found = _OUTCOMES[entity.kind](entity, before, told, teller)
    return before if found is None else found


def _why(reason: str | None) -> str:
    lines = [each.strip() for each in (reason or "").splitlines() if each.strip()]
    return f": {shortened(lines[-1 if lines[0].startswith('Traceback') else 0])}" if lines else ""


def _of_job(told: Told, before: Outcome) -> Outcome | None:
    match told.body:
        case dispatcher.SubmitJob() | client.JobRejected() if before.admitted:
            return None
        case client.JobRejected(reason=reason):
            return Outcome(f"rejected{_why(reason)}", over=True, failed=True)
        case client.JobStatusChanged(status=status) if status not in _ENDS:
            unwell = status in (JobStatus.FAILING, JobStatus.RESTARTING)
            return Outcome(status.value, failed=unwell, admitted=True)
        case dispatcher.JobReachedTerminalState(status=status, reason=reason):
            ended = status in _ENDS
            return Outcome(
                f"{status.value}{_why(reason)}", over=ended, failed=status is JobStatus.FAILED, admitted=True
            )
        case client.JobFinished(status=status, reason=reason):
            return Outcome(
                f"{status.value}{_why(reason)}", over=True, failed=status is JobStatus.FAILED, admitted=True
            )
        case client.JobAccepted():
            return Outcome("accepted, and not started yet", admitted=True)
        case dispatcher.SubmitJob():
            return Outcome("submitted, and not answered yet")
        case _:
            return None


def _of_task(told: Told, teller: Teller) -> Outcome | None:
    match told.body:
        case job_master.StartJob() | job_master.ResumeJob():
            return Outcome("wanted, and not submitted yet")
        case task_executor.SubmitTask(attempt_number=number):
            where = instance_of(told.entry.record.header.recipient)
            return Outcome(f"submitted to {where}, attempt {number + 1}")
        case job_master.UpdateTaskExecutionState(execution_state=state, failure=failure):
            where = instance_of(told.entry.record.header.sender)
            over = state in (ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED)
            return Outcome(
                f"{state.value} on {where}{_why(failure)}", over=over, failed=state is ExecutionState.FAILED
            )
        case everyone.TaskExecutorLost() as lost:
            return Outcome(f"lost with {lost.resource_id}{_why(loss(lost))}", over=True, failed=True)
        case client.JobStatusChanged(status=status) if status in _ENDS:
            return Outcome(f"the job is {status.value}", over=True, failed=status is JobStatus.FAILED)
        case _:
            return None


def _of_slot(entity: Entity, told: Told) -> Outcome | None:
    match told.body:
        case (
            resource_manager.SendSlotReport(slots=slots)
            | resource_manager.SlotReportContradicted(slots=slots)
        ):
            for each in slots:
                if slot(each.slot_id.resource_id, each.slot_id.slot_number) == entity:
                    return _held(each.job_id, each.allocation_id) if each.allocation_id else Outcome("free")
            return Outcome("free")
        case task_executor.RequestSlot(job_id=job_id, allocation_id=allocation_id):
            return _held(job_id, allocation_id, "asked for by")
        case resource_manager.SlotRequestRejected():
            return Outcome("refused by its TaskExecutor", failed=True)
        case task_executor.SlotsAccepted(job_id=job_id):
            return Outcome(f"held by job {shortened(job_id)}")
        case resource_manager.NotifySlotAvailable():
            return Outcome("free")
        case everyone.TaskExecutorLost() as lost:
            return Outcome(f"gone with {lost.resource_id}{_why(loss(lost))}", over=True, failed=True)
        case _:
            return None


def _held(job_id: str | None, allocation_id: str | None, how: str = "held by") -> Outcome:
    return Outcome(f"{how} job {shortened(job_id or '?')}, allocation {shortened(allocation_id or '?')}")


def _of_allocation(entity: Entity, told: Told, teller: Teller) -> Outcome | None:
    given = teller.entities.slot_of.get(entity.id)
    where = given.id if given is not None else "a slot"
    match told.body:
        case resource_manager.RequestSlot():
            return Outcome("asked for")
        case task_executor.RequestSlot():
            return Outcome(f"{where} was chosen for it")
        case resource_manager.SlotRequestAccepted():
            return Outcome(f"holds {where}")
        case task_executor.SlotsAccepted():
            return Outcome(f"holds {where}, which the job has taken")
        case resource_manager.NotifySlotAvailable():
            return Outcome(f"over: {where} is free again", over=True)
        case resource_manager.CancelSlotRequest(reason=reason):
            return Outcome(f"not wanted any more{_why(reason)}", over=True)
        case job_master.SlotAllocationFailed(reason=reason):
            return Outcome(f"no slot was found{_why(reason)}", over=True, failed=True)
        case job_master.FailSlot(reason=reason):
            return Outcome(f"its slot is gone{_why(reason)}", over=True, failed=True)
        case everyone.TaskExecutorLost() as lost:
            return Outcome(
                f"its slot is gone with {lost.resource_id}{_why(loss(lost))}", over=True, failed=True
            )
        case _:
            return None


def _of_task_executor(entity: Entity, told: Told) -> Outcome | None:
    match told.body:
        case everyone.LeaderElected(role=role, address=address) if instance_of(role) == entity.id:
            return Outcome(f"its process {address} has begun, and has not registered yet")
        case resource_manager.StartWorker():
            return Outcome("wanted, and not started yet")
        case resource_manager.WorkerStarted():
            return Outcome("started by the ResourceManager, and not registered yet")
        case task_executor.TaskExecutorRegistrationSuccess():
            return Outcome("registered")
        case task_executor.TaskExecutorRegistrationRejection(reason=reason):
            return Outcome(f"turned away{_why(reason)}", over=True, failed=True)
        case everyone.TaskExecutorLost() as lost:
            return Outcome(f"lost{_why(loss(lost))}", over=True, failed=True)
        case resource_manager.DisconnectTaskManager(reason=reason):
            return Outcome(f"left{_why(reason)}", over=True)
        case _:
            return None


def _of_checkpoint(told: Told, before: Outcome) -> Outcome | None:
    match told.body:
        case job_master.CheckpointTriggered():
            return Outcome("begun, and not complete yet")
        case job_master.CheckpointCompleted(checkpoint=checkpoint):
            return Outcome(f"complete, {size(checkpoint.size)} in {checkpoint.uri}", over=True)
        case job_master.CheckpointAborted(reason=reason, failure=kind):
            return Outcome(f"given up ({kind.value}){_why(reason)}", over=True, failed=True)
        case job_master.CheckpointDiscarded() if not before.failed:
            return Outcome(
                "it was complete, and its files are deleted: nothing needs them any more", over=True
            )
        case job_master.CheckpointRestored():
            return Outcome("tasks began with it", over=True)
        case _:
            return None


def _of_role(entity: Entity, told: Told) -> Outcome | None:
    match told.body:
        case everyone.LeaderElected(role=role, address=address, epoch=epoch) if role == entity.id:
            return Outcome(f"led by {address} under epoch {epoch}")
        case everyone.ClusterTerminated(reason=reason):
            return Outcome(f"the cluster has ended{_why(reason)}", over=True)
        case _:
            return None


def _of_client(told: Told, before: Outcome) -> Outcome | None:
    header = told.entry.record.header
    if not header.sender.startswith("client/"):
        return None
    count = before.requests + 1
    return Outcome(counted(count, "request"), requests=count)


_OUTCOMES: Mapping[Kind, Callable[[Entity, Outcome, Told, Teller], Outcome | None]] = {
    Kind.JOB: lambda _entity, before, told, _teller: _of_job(told, before),
    Kind.TASK: lambda _entity, _before, told, teller: _of_task(told, teller),
    Kind.SLOT: lambda entity, _before, told, _teller: _of_slot(entity, told),
    Kind.ALLOCATION: lambda entity, _before, told, teller: _of_allocation(entity, told, teller),
    Kind.TASK_EXECUTOR: lambda entity, _before, told, _teller: _of_task_executor(entity, told),
    Kind.CHECKPOINT: lambda _entity, before, told, _teller: _of_checkpoint(told, before),
    Kind.ROLE: lambda entity, _before, told, _teller: _of_role(entity, told),
    Kind.CLIENT: lambda _entity, before, told, _teller: _of_client(told, before),
}
