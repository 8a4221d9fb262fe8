"""Slots and requests as the ResourceManager hears of them, around the SlotManager."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import SlotID
from ..core.resource_profile import profile_key
from ..core.role import JOB_MASTER, TASK_EXECUTOR, OutgoingEvent, Step, address, instance_of
from .slot_requests import SlotRequest
from .state import ResourceManagerState
from .task_manager_slot import SlotKey


def slot_key(slot_id: SlotID) -> SlotKey:
    return slot_id.resource_id, slot_id.slot_number


def on_resource_manager_request_slot(
    state: ResourceManagerState, record: Record, body: resource_manager.RequestSlot
) -> ResourceManagerState:
    request = SlotRequest(
        allocation_id=body.allocation_id,
        job_id=body.job_id,
        profile=body.resource_profile,
        key=profile_key(body.resource_profile),
        cause=record.offset,
        since=record.header.time,
    )
    return replace(state, slot_manager=state.slot_manager.request(request))


def on_task_executor_request_slot(
    state: ResourceManagerState, record: Record, body: task_executor.RequestSlot
) -> ResourceManagerState:
    key, offset, time = slot_key(body.slot_id), record.offset, record.header.time
    manager = state.slot_manager.pend(body.allocation_id, key, body.job_id, offset, time)
    return replace(state, slot_manager=manager)


def on_slot_request_accepted(
    state: ResourceManagerState, record: Record, body: resource_manager.SlotRequestAccepted
) -> ResourceManagerState:
    manager, key = state.slot_manager, slot_key(body.slot_id)
    return replace(
        state, slot_manager=manager.allocate(body.allocation_id, key, record.offset, record.header.time)
    )


def on_slot_request_rejected(
    state: ResourceManagerState, record: Record, body: resource_manager.SlotRequestRejected
) -> ResourceManagerState:
    manager, key = state.slot_manager, slot_key(body.slot_id)
    return replace(
        state, slot_manager=manager.reject(body.allocation_id, key, record.offset, record.header.time)
    )


def on_notify_slot_available(
    state: ResourceManagerState, record: Record, body: resource_manager.NotifySlotAvailable
) -> ResourceManagerState:
    manager, key = state.slot_manager, slot_key(body.slot_id)
    return replace(
        state, slot_manager=manager.release(key, body.old_allocation_id, record.offset, record.header.time)
    )


def _request_done(
    state: ResourceManagerState,
    record: Record,
    body: resource_manager.CancelSlotRequest | job_master.SlotAllocationFailed,
) -> ResourceManagerState:
    return replace(state, slot_manager=state.slot_manager.forget(body.allocation_id, record.header.time))


def on_fail_slot(
    state: ResourceManagerState, _record: Record, body: job_master.FailSlot
) -> ResourceManagerState:
    if body.allocation_id not in state.lost:
        return state
    return replace(state, lost=state.lost.delete(body.allocation_id))


def on_free_slot(
    state: ResourceManagerState, record: Record, body: task_executor.FreeSlot
) -> ResourceManagerState:
    key = instance_of(record.header.recipient), body.allocation_id
    return replace(state, surplus=state.surplus.delete(key)) if key in state.surplus else state


def corrections(state: ResourceManagerState) -> list[OutgoingEvent]:
    """FailSlot for allocations whose slots are gone, FreeSlot for slots that TaskExecutors hold for nobody."""
    owed = [
        (
            lost.cause,
            allocation_id,
            OutgoingEvent(
                address(JOB_MASTER, lost.job_id),
                job_master.FailSlot(allocation_id=allocation_id, reason=lost.reason),
                lost.cause,
            ),
        )
        for allocation_id, lost in state.lost.items()
    ]
    for (resource_id, allocation_id), reason in state.surplus.items():
        body = task_executor.FreeSlot(allocation_id=allocation_id, reason=reason.text)
        owed.append(
            (
                reason.cause,
                allocation_id,
                OutgoingEvent(address(TASK_EXECUTOR, resource_id), body, reason.cause),
            )
        )
    return [each for _, _, each in sorted(owed, key=lambda each: each[:2])]


on_cancel_slot_request = on_slot_allocation_failed = _request_done

STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.NotifySlotAvailable: on_notify_slot_available,
    resource_manager.SlotRequestAccepted: on_slot_request_accepted,
    resource_manager.SlotRequestRejected: on_slot_request_rejected,
    resource_manager.RequestSlot: on_resource_manager_request_slot,
    resource_manager.CancelSlotRequest: on_cancel_slot_request,
    task_executor.RequestSlot: on_task_executor_request_slot,
    task_executor.FreeSlot: on_free_slot,
    job_master.SlotAllocationFailed: on_slot_allocation_failed,
    job_master.FailSlot: on_fail_slot,
}
