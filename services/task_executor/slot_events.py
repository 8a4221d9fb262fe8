"""The slots of a TaskExecutor: requested by the ResourceManager, accepted and freed by JobMasters.

A slot that no JobMaster accepts within `taskmanager.slot.timeout` is freed: FailSlot informs the JobMaster.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.outbox import owe, remove_owed
from ..core.owed_events import OwedFailSlot
from ..core.role import RESOURCE_MANAGER, Step, Time
from .owed_events import OwedNotifySlotAvailable, OwedSlotRequestAccepted, OwedSlotRequestRejected
from .resources import JobConnection
from .slot_release import release_slot, revoke_slot
from .state import TaskExecutorState, connect
from .task_slot_table import TaskSlotState


def on_request_slot(
    state: TaskExecutorState, record: Record, body: task_executor.RequestSlot
) -> TaskExecutorState:
    number, offset = body.slot_id.slot_number, record.offset
    held = state.slots.by_allocation(body.allocation_id)
    if held is not None:
        # The same request again: the answer is the slot that it already has.
        return owe(state, OwedSlotRequestAccepted(offset, body.allocation_id, held.number))
    slots = state.slots.allocate(number, body.job_id, body.allocation_id)
    if slots is None:
        slot = state.slots.slots.get(number)
        what = "does not exist" if slot is None else f"is {slot.state.value} for job {slot.job_id}"
        reason = f"slot {number} of {state.resource_id} {what}"
        return owe(state, OwedSlotRequestRejected(offset, body.allocation_id, number, reason))
    connection = state.jobs.get(body.job_id) or JobConnection(body.job_id, offset)
    freed = state.outbox.get(OwedNotifySlotAvailable, body.allocation_id)
    if freed is not None and freed.slot_number == number:
        # Allocated again for the same allocation before the notification was sent: it is not free.
        state = remove_owed(state, OwedNotifySlotAvailable, body.allocation_id)
    state = owe(replace(state, slots=slots), OwedSlotRequestAccepted(offset, body.allocation_id, number))
    unoffered = connection.slots_to_offer | {body.allocation_id}
    return connect(state, replace(connection, cause=offset, slots_to_offer=unoffered))


def on_slot_request_accepted(
    state: TaskExecutorState, record: Record, body: resource_manager.SlotRequestAccepted
) -> TaskExecutorState:
    # It waits for its JobMaster from now on, by this TaskExecutor's own clock, which decides when the time is over.
    slots = state.slots.wait(body.allocation_id, record.header.time)
    cause = record.header.cause
    state = replace(state, slots=slots)
    return state if cause is None else remove_owed(state, OwedSlotRequestAccepted, cause)


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
    # Whatever happened to the slot since that decision: its JobMaster does not count on it any more.
    allocation_id = body.allocation_id
    return release_slot(remove_owed(state, OwedFailSlot, allocation_id), allocation_id, record.offset)


def on_disconnect_job_manager(
    state: TaskExecutorState, record: Record, body: task_executor.DisconnectJobManager
) -> TaskExecutorState:
    job_id, cause = body.job_id, record.offset
    if job_id not in state.jobs:
        return state
    for slot in state.slots.slots_of_job(job_id):
        allocation_id = slot.allocation_id or ""
        if slot.state is TaskSlotState.ALLOCATED:
            # Since the JobMaster decided to leave, the slot may have been requested again, and a JobMaster may wait
            # for it.
            state = revoke_slot(state, allocation_id, body.reason, cause)
        else:
            state = release_slot(state, allocation_id, cause)
    return connect(state, replace(state.jobs[job_id], cause=cause))


def deadline(state: TaskExecutorState) -> Time | None:
    """Returns the time at which the slot that has waited longest for its JobMaster is freed."""
    oldest = state.slots.waiting.first
    if oldest is None or state.registration is None:
        return None
    return oldest[1] + state.registration.options.slot_timeout


def slot_timeouts(state: TaskExecutorState, now: Time) -> list[OwedFailSlot]:
    """Returns FailSlot for each slot that no JobMaster accepted in time."""
    due = deadline(state)
    if due is None or due > now or state.registration is None:
        return []
    timeout, owed = state.registration.options.slot_timeout, []
    for allocation_id in state.slots.waiting.until(now - timeout):
        slot = state.slots.slots[state.slots.allocated[allocation_id]]
        job_id = slot.job_id or ""
        reason = (
            f"slot {slot.number} of TaskExecutor {state.resource_id} was not taken within {timeout / 1e6:g} s"
        )
        owed.append(OwedFailSlot(state.jobs[job_id].cause, allocation_id, job_id, reason))
    return owed


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.RequestSlot: on_request_slot,
    task_executor.SlotsAccepted: on_slots_accepted,
    task_executor.SlotsRejected: on_slots_rejected,
    task_executor.FreeSlot: on_free_slot,
    task_executor.DisconnectJobManager: on_disconnect_job_manager,
    resource_manager.SlotRequestAccepted: on_slot_request_accepted,
    job_master.FailSlot: on_fail_slot,
}
