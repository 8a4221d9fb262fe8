"""The slots of a TaskExecutor: requested by the ResourceManager, accepted and freed by JobMasters.

A slot that no JobMaster accepts within `taskmanager.slot.timeout` is freed: FailSlot tells the JobMaster.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import SlotID
from ..core.role import JOB_MASTER, RESOURCE_MANAGER, OutgoingEvent, Step, Time, address
from .slot_release import release_slot, revoke_slot
from .state import (
    JobConnection,
    SlotAnswer,
    TaskExecutorState,
    connect,
)
from .task_slot_table import TaskSlotState


def on_request_slot(
    state: TaskExecutorState, record: Record, body: task_executor.RequestSlot
) -> TaskExecutorState:
    number = body.slot_id.slot_number
    held = state.slots.by_allocation(body.allocation_id)
    if held is not None:
        # The same request again: the answer is the slot that it already has.
        answer = SlotAnswer(body.allocation_id, held.number)
        return replace(state, slot_answers=state.slot_answers.set(record.offset, answer))
    slots = state.slots.allocate(number, body.job_id, body.allocation_id)
    if slots is None:
        slot = state.slots.slots.get(number)
        what = "does not exist" if slot is None else f"is {slot.state.value} for job {slot.job_id}"
        answer = SlotAnswer(body.allocation_id, number, f"slot {number} of {state.resource_id} {what}")
        return replace(state, slot_answers=state.slot_answers.set(record.offset, answer))
    connection = state.jobs.get(body.job_id) or JobConnection(body.job_id, record.offset)
    freed = state.freed.get(body.allocation_id)
    if freed is not None and freed.slot_number == number:
        # Given again for the same allocation before it could be said that it was free: it is not.
        state = replace(state, freed=state.freed.delete(body.allocation_id))
    state = replace(
        state,
        slots=slots,
        slot_answers=state.slot_answers.set(record.offset, SlotAnswer(body.allocation_id, number)),
    )
    unoffered = connection.slots_to_offer | {body.allocation_id}
    return connect(state, replace(connection, cause=record.offset, slots_to_offer=unoffered))


def on_slot_request_accepted(
    state: TaskExecutorState, record: Record, body: resource_manager.SlotRequestAccepted
) -> TaskExecutorState:
    # It waits for its JobMaster from now on: a time of this TaskExecutor's own clock, which will say when it is over.
    slots = state.slots.wait(body.allocation_id, record.header.time)
    return on_slot_request_rejected(replace(state, slots=slots), record, body)


def on_slot_request_rejected(
    state: TaskExecutorState,
    record: Record,
    _body: resource_manager.SlotRequestAccepted | resource_manager.SlotRequestRejected,
) -> TaskExecutorState:
    cause = record.header.cause
    if cause is None or cause not in state.slot_answers:
        return state
    return replace(state, slot_answers=state.slot_answers.delete(cause))


def on_slots_accepted(
    state: TaskExecutorState, _record: Record, body: task_executor.SlotsAccepted
) -> TaskExecutorState:
    slots = state.slots
    for allocation_id in body.allocation_ids:
        slots = slots.activate(allocation_id)
    return replace(state, slots=slots)


def on_slots_rejected(
    state: TaskExecutorState, record: Record, body: task_executor.SlotsRejected
) -> TaskExecutorState:
    for allocation_id in body.allocation_ids:
        state = release_slot(state, allocation_id, record.offset)
    return state


def on_free_slot(state: TaskExecutorState, record: Record, body: task_executor.FreeSlot) -> TaskExecutorState:
    if record.header.sender == RESOURCE_MANAGER:
        return revoke_slot(state, body.allocation_id, body.reason, record.offset)
    return release_slot(state, body.allocation_id, record.offset)


def on_fail_slot(state: TaskExecutorState, record: Record, body: job_master.FailSlot) -> TaskExecutorState:
    # Whatever became of the slot since that was decided: its JobMaster does not count on it any more.
    allocation_id = body.allocation_id
    if allocation_id in state.failed_slots:
        state = replace(state, failed_slots=state.failed_slots.delete(allocation_id))
    return release_slot(state, allocation_id, record.offset)


def on_notify_slot_available(
    state: TaskExecutorState, _record: Record, body: resource_manager.NotifySlotAvailable
) -> TaskExecutorState:
    if body.old_allocation_id not in state.freed:
        return state
    return replace(state, freed=state.freed.delete(body.old_allocation_id))


def on_disconnect_job_manager(
    state: TaskExecutorState, record: Record, body: task_executor.DisconnectJobManager
) -> TaskExecutorState:
    job_id, cause = body.job_id, record.offset
    if job_id not in state.jobs:
        return state
    for slot in state.slots.slots_of_job(job_id):
        allocation_id = slot.allocation_id or ""
        if slot.state is TaskSlotState.ALLOCATED:
            # It may have been requested, and be waited for, since the JobMaster decided to leave.
            state = revoke_slot(state, allocation_id, body.reason, cause)
        else:
            state = release_slot(state, allocation_id, cause)
    return connect(state, replace(state.jobs[job_id], cause=cause))


def outgoing_events(state: TaskExecutorState) -> list[OutgoingEvent]:
    """The reports about slots to the ResourceManager: accepted, rejected, available, in their order.

    A ResourceManager that has not answered the registration yet gets them afterwards.
    """
    if state.registration is None or state.registration.instance_id is None:
        return []
    return sorted(
        [*slot_request_answers(state), *available_notifications(state)], key=lambda each: each.cause or 0
    )


def slot_request_answers(state: TaskExecutorState) -> list[OutgoingEvent]:
    """SlotRequestAccepted and SlotRequestRejected, in the order of the requests."""
    owed = []
    for offset, answer in sorted(state.slot_answers.items()):
        slot_id = SlotID(resource_id=state.resource_id, slot_number=answer.slot_number)
        allocation_id = answer.allocation_id
        if answer.reason is None:
            accepted = resource_manager.SlotRequestAccepted(allocation_id=allocation_id, slot_id=slot_id)
            owed.append(OutgoingEvent(RESOURCE_MANAGER, accepted, offset))
        else:
            rejected = resource_manager.SlotRequestRejected(
                allocation_id=allocation_id, slot_id=slot_id, reason=answer.reason
            )
            owed.append(OutgoingEvent(RESOURCE_MANAGER, rejected, offset))
    return owed


def deadline(state: TaskExecutorState) -> Time | None:
    """When the slot that has waited longest for its JobMaster is freed."""
    oldest = state.slots.waiting.first
    if oldest is None or state.registration is None:
        return None
    return oldest[1] + state.registration.options.slot_timeout


def failure_events(state: TaskExecutorState, now: Time) -> list[OutgoingEvent]:
    """FailSlot for each slot that was revoked, or that no JobMaster accepted in time."""
    owed = [
        (failure.cause, allocation_id, failure.job_id, failure.reason)
        for allocation_id, failure in state.failed_slots.items()
    ]
    due = deadline(state)
    if due is not None and due <= now and state.registration is not None:
        timeout = state.registration.options.slot_timeout
        for allocation_id in state.slots.waiting.until(now - timeout):
            slot = state.slots.slots[state.slots.allocated[allocation_id]]
            job_id = slot.job_id or ""
            reason = f"slot {slot.number} of TaskExecutor {state.resource_id} was not taken within {timeout / 1e6:g} s"
            owed.append((state.jobs[job_id].cause, allocation_id, job_id, reason))
    return [
        OutgoingEvent(
            address(JOB_MASTER, job_id),
            job_master.FailSlot(allocation_id=allocation_id, reason=reason),
            cause,
        )
        for cause, allocation_id, job_id, reason in sorted(owed)
    ]


def available_notifications(state: TaskExecutorState) -> list[OutgoingEvent]:
    """NotifySlotAvailable for every slot that has become free."""
    registration = state.registration
    if registration is None or registration.instance_id is None:
        return []
    owed = []
    for freed in sorted(state.freed.values(), key=lambda each: (each.cause, each.slot_number)):
        body = resource_manager.NotifySlotAvailable(
            instance_id=registration.instance_id,
            slot_id=SlotID(resource_id=state.resource_id, slot_number=freed.slot_number),
            old_allocation_id=freed.allocation_id,
        )
        owed.append(OutgoingEvent(RESOURCE_MANAGER, body, freed.cause))
    return owed


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.RequestSlot: on_request_slot,
    task_executor.SlotsAccepted: on_slots_accepted,
    task_executor.SlotsRejected: on_slots_rejected,
    task_executor.FreeSlot: on_free_slot,
    task_executor.DisconnectJobManager: on_disconnect_job_manager,
    resource_manager.SlotRequestAccepted: on_slot_request_accepted,
    resource_manager.SlotRequestRejected: on_slot_request_rejected,
    resource_manager.NotifySlotAvailable: on_notify_slot_available,
    job_master.FailSlot: on_fail_slot,
}
