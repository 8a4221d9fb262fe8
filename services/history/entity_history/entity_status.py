"""The status of an entity after each of its events.

`_STATUSES` has, for each kind of entity, the events that change its status. A status is over when no further event of
the entity is expected. Later events may still come, and the entity may start again, as a task does that restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ....schemas import client, dispatcher, everyone, job_master, resource_manager, task_executor
from ....schemas.body import Body
from ....schemas.states import EXECUTION_ENDS, JOB_ENDS
from ....schemas.types import ExecutionState, JobStatus
from ...core.role import CLIENT, instance_of, kind_of
from ..event_formatting import shorten_ids
from .entities import Entity, EntityKind, slot, task
from .event_annotator import AnnotatedEvent
from .event_text import reason


class EntityStatus(msgspec.Struct, frozen=True):
    """The status of an entity."""

    text: str
    over: bool = False
    failed: bool = False


class _Rule(msgspec.Struct, frozen=True):
    """The status after an event. `text` is a format of its body (`{b.field}`); the reason of the event follows."""

    text: str
    over: bool = False
    failed: bool = False

    def __call__(self, _: Entity, event: AnnotatedEvent) -> EntityStatus | None:
        return EntityStatus(_with_reason(self.text.format(b=event.body), event.body), self.over, self.failed)


Rule = Callable[[Entity, AnnotatedEvent], EntityStatus | None]


def initial_status(entity: Entity) -> EntityStatus:
    """Returns the status before the first event."""
    match entity.kind:
        case EntityKind.JOB:
            return EntityStatus("never submitted in this log")
        case EntityKind.CLIENT:
            return EntityStatus("no request")
        case _:
            return EntityStatus("only named")


def update_status(entity: Entity, before: EntityStatus, event: AnnotatedEvent) -> EntityStatus:
    """Returns the status after an event that was not ignored."""
    kind = type(event.body)
    if entity.kind is EntityKind.CLIENT:
        return _on_request(entity, event) or before
    if entity.kind is EntityKind.JOB and kind in _ONLY_FIRST and before.text not in _FIRST:
        return before
    if kind is job_master.CheckpointDiscarded and before.failed:
        return before
    rule = _STATUSES[entity.kind].get(kind)
    return before if rule is None else rule(entity, event) or before


def _with_reason(text: str, body: Body) -> str:
    why = reason(body)
    return f"{text}: {why}" if why else text


def _on_job_status(_: Entity, event: AnnotatedEvent) -> EntityStatus | None:
    body: Any = event.body
    status: JobStatus = body.status
    if isinstance(body, client.JobStatusChanged) and status in JOB_ENDS:
        # The end comes with its reason.
        return None
    failed = status in (JobStatus.FAILING, JobStatus.RESTARTING, JobStatus.FAILED)
    over = status in JOB_ENDS or isinstance(body, client.JobFinished)
    return EntityStatus(_with_reason(status.value, body), over, failed)


def _on_task_submitted(entity: Entity, event: AnnotatedEvent) -> EntityStatus | None:
    body: Any = event.body
    where = instance_of(event.entry.record.header.recipient)
    for subtask in body.subtasks:
        if task(body.job_id, body.vertex_id, subtask.subtask_index) == entity:
            return EntityStatus(f"submitted to {where}, attempt {subtask.attempt_number + 1}")
    return None


def _on_task_changed(_: Entity, event: AnnotatedEvent) -> EntityStatus:
    body: Any = event.body
    state: ExecutionState = body.execution_state
    text = _with_reason(f"{state.value} on {instance_of(event.entry.record.header.sender)}", body)
    return EntityStatus(text, state in EXECUTION_ENDS, state is ExecutionState.FAILED)


def _on_task_job_ended(_: Entity, event: AnnotatedEvent) -> EntityStatus | None:
    status: JobStatus = event.body.status  # type: ignore[attr-defined]
    if status not in JOB_ENDS:
        return None
    return EntityStatus(f"the job is {status.value}", over=True, failed=status is JobStatus.FAILED)


def _on_slots_reported(entity: Entity, event: AnnotatedEvent) -> EntityStatus:
    slots: Any = event.body.slots  # type: ignore[attr-defined]
    for reported in slots:
        if (
            reported.allocation_id
            and slot(reported.slot_id.resource_id, reported.slot_id.slot_number) == entity
        ):
            job_id = shorten_ids(reported.job_id or "?")
            return EntityStatus(f"held by job {job_id}, allocation {shorten_ids(reported.allocation_id)}")
    return EntityStatus("free")


def _on_elected(entity: Entity, event: AnnotatedEvent) -> EntityStatus | None:
    """Only the election for the entity itself counts."""
    body: Any = event.body
    if entity.kind is EntityKind.ROLE and body.role == entity.id:
        return EntityStatus(f"led by {body.address} under epoch {body.epoch}")
    if entity.kind is EntityKind.TASK_EXECUTOR and instance_of(body.role) == entity.id:
        return EntityStatus(f"its process {body.address} has started, and has not registered yet")
    return None


def _on_request(_: Entity, event: AnnotatedEvent) -> EntityStatus | None:
    if kind_of(event.entry.record.header.sender) != CLIENT:
        return None
    return EntityStatus(_with_reason(f"its last request: {event.entry.type}", event.body))


_SUBMITTED = "submitted, and not answered yet"
_PROGRAM_ACCEPTED = "submitted; its program is not built yet"
_ONLY_FIRST = frozenset({dispatcher.SubmitJob, client.JobRejected})
"""A second job under the id of an accepted one does not change it."""
_FIRST = frozenset({initial_status(Entity(EntityKind.JOB, "")).text, _SUBMITTED, _PROGRAM_ACCEPTED})
_STATUSES: Mapping[EntityKind, Mapping[type[Body], Rule]] = {
    EntityKind.JOB: {
        dispatcher.SubmitJob: _Rule(_SUBMITTED),
        dispatcher.ProgramAccepted: _Rule(_PROGRAM_ACCEPTED),
        client.JobAccepted: _Rule("accepted, and not started yet"),
        client.JobRejected: _Rule("rejected", over=True, failed=True),
        client.JobStatusChanged: _on_job_status,
        client.JobFinished: _on_job_status,
        dispatcher.JobReachedTerminalState: _on_job_status,
    },
    EntityKind.TASK: {
        job_master.StartJob: _Rule("wanted, and not submitted yet"),
        job_master.ResumeJob: _Rule("wanted, and not submitted yet"),
        task_executor.SubmitTask: _on_task_submitted,
        job_master.UpdateTaskExecutionState: _on_task_changed,
        everyone.TaskExecutorLost: _Rule("lost with {b.resource_id}", over=True, failed=True),
        client.JobStatusChanged: _on_task_job_ended,
    },
    EntityKind.SLOT: {
        resource_manager.SendSlotReport: _on_slots_reported,
        resource_manager.SlotReportContradicted: _on_slots_reported,
        task_executor.RequestSlot: _Rule("requested for job {b.job_id}"),
        resource_manager.SlotRequestRejected: _Rule("refused by its TaskExecutor", failed=True),
        task_executor.SlotsAccepted: _Rule("held by job {b.job_id}"),
        resource_manager.NotifySlotAvailable: _Rule("free"),
        everyone.TaskExecutorLost: _Rule("gone with {b.resource_id}", over=True, failed=True),
    },
    EntityKind.ALLOCATION: {
        resource_manager.RequestSlot: _Rule("requested"),
        task_executor.RequestSlot: _Rule("slot {b.slot_id.resource_id}/{b.slot_id.slot_number} is chosen"),
        resource_manager.SlotRequestAccepted: _Rule(
            "holds slot {b.slot_id.resource_id}/{b.slot_id.slot_number}"
        ),
        task_executor.SlotsAccepted: _Rule("holds a slot, which the job has accepted"),
        resource_manager.NotifySlotAvailable: _Rule(
            "over: slot {b.slot_id.resource_id}/{b.slot_id.slot_number} is free again", over=True
        ),
        resource_manager.CancelSlotRequest: _Rule("cancelled", over=True),
        job_master.SlotAllocationFailed: _Rule("no slot was found", over=True, failed=True),
        job_master.FailSlot: _Rule("its slot is gone", over=True, failed=True),
        everyone.TaskExecutorLost: _Rule("its slot is gone with {b.resource_id}", over=True, failed=True),
    },
    EntityKind.TASK_EXECUTOR: {
        everyone.LeaderElected: _on_elected,
        resource_manager.StartWorker: _Rule("requested, and not started yet"),
        resource_manager.WorkerStarted: _Rule("started by the ResourceManager, and not registered yet"),
        task_executor.TaskExecutorRegistrationSuccess: _Rule("registered"),
        task_executor.TaskExecutorRegistrationRejection: _Rule("rejected", over=True, failed=True),
        everyone.TaskExecutorLost: _Rule("lost", over=True, failed=True),
        resource_manager.DisconnectTaskManager: _Rule("left", over=True),
    },
    EntityKind.CHECKPOINT: {
        job_master.CheckpointTriggered: _Rule("begun, not complete yet"),
        job_master.CheckpointCompleted: _Rule(
            "complete, {b.checkpoint.size:,} bytes in {b.checkpoint.uri}", over=True
        ),
        job_master.CheckpointAborted: _Rule("aborted ({b.failure})", over=True, failed=True),
        job_master.CheckpointDiscarded: _Rule(
            "complete; its files are deleted, because nothing needs them any more", over=True
        ),
        job_master.CheckpointRestored: _Rule("tasks started from it", over=True),
    },
    EntityKind.ROLE: {
        everyone.LeaderElected: _on_elected,
        everyone.ClusterTerminated: _Rule("the cluster has ended", over=True),
    },
}
"""Kind of an entity -> event -> the function that returns the status after it; None: no change."""
