"""The ResourceManager's handlers of events about slots and slot requests; slot_manager.py has the state."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import ResourceProfile, SlotID
from ..core.resource_profile import profile_key
from ..core.role import IllegalEvent, Step
from .slot_requests import SlotRequest
from .state import ResourceManagerState
from .task_manager_slot import SlotKey


def slot_key(slot_id: SlotID) -> SlotKey:
    return slot_id.resource_id, slot_id.slot_number


def on_resource_manager_request_slot(
    state: ResourceManagerState, record: Record, body: resource_manager.RequestSlot
) -> ResourceManagerState:
    profile, number = body.resource_profile, body.resource_profile_number
    if number is not None:
        state, profile = _find_profile(state, record, body, number)
    request = SlotRequest(
        allocation_id=body.allocation_id,
        job_id=body.job_id,
        profile=profile,
        key=profile_key(profile),
        cause=record.offset,
        since=record.header.time,
        is_optional=body.is_optional,
    )
    return replace(state, slot_manager=state.slot_manager.request(request))


def _find_profile(
    state: ResourceManagerState, record: Record, body: resource_manager.RequestSlot, number: int
) -> tuple[ResourceManagerState, ResourceProfile]:
    """Returns the profile with this number, and the state that remembers it. Raises IllegalEvent."""
    job = state.job_masters.get(body.job_id)
    profile = body.resource_profile
    if job is None or (profile is None and number not in job.profiles):
        raise IllegalEvent(record, "registered", f"job {body.job_id} has no profile {number}")
    if profile is None:
        return state, job.profiles[number]
    job = replace(job, profiles=job.profiles.set(number, profile))
    return replace(state, job_masters=state.job_masters.set(body.job_id, job)), profile


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
    return replace(state, slot_manager=state.slot_manager.forget(body.allocation_id))


on_cancel_slot_request = on_slot_allocation_failed = _request_done

STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.NotifySlotAvailable: on_notify_slot_available,
    resource_manager.SlotRequestAccepted: on_slot_request_accepted,
    resource_manager.SlotRequestRejected: on_slot_request_rejected,
    resource_manager.RequestSlot: on_resource_manager_request_slot,
    resource_manager.CancelSlotRequest: on_cancel_slot_request,
    task_executor.RequestSlot: on_task_executor_request_slot,
    job_master.SlotAllocationFailed: on_slot_allocation_failed,
}
