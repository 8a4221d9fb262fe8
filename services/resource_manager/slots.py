"""Slots and requests as the ResourceManager hears and speaks of them, around the SlotManager."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ...schemas import job_master, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import SlotID
from ..roles import (
    JOB_MASTER,
    TASK_EXECUTOR,
    Owed,
    Step,
    address,
)
from .slot_manager import SlotKey, SlotManager, SlotRequest, SlotState
from .state import LostSlot, ResourceManagerState


def slot_key(slot_id: SlotID) -> SlotKey:
    return slot_id.resource_id, slot_id.slot_number


def _slot_available(
    state: ResourceManagerState, _record: Record, body: resource_manager.NotifySlotAvailable
) -> ResourceManagerState:
    return replace(state, slots=state.slots.release(slot_key(body.slot_id), body.old_allocation_id))


def _slot_allocated(
    state: ResourceManagerState, _record: Record, body: resource_manager.SlotRequestAccepted
) -> ResourceManagerState:
    request = state.slots.requests.get(body.allocation_id)
    job_id = request.job_id if request else None
    return replace(state, slots=state.slots.allocate(body.allocation_id, slot_key(body.slot_id), job_id))


def _slot_refused(
    state: ResourceManagerState, record: Record, body: resource_manager.SlotRequestRejected
) -> ResourceManagerState:
    slots = state.slots.reject(body.allocation_id, slot_key(body.slot_id), record.offset)
    return replace(state, slots=slots)


def _slot_wanted(
    state: ResourceManagerState, record: Record, body: resource_manager.RequestSlot
) -> ResourceManagerState:
    request = SlotRequest(
        allocation_id=body.allocation_id,
        job_id=body.job_id,
        profile=body.resource_profile,
        cause=record.offset,
        since=record.header.time,
    )
    return replace(state, slots=state.slots.request(request))


def _slot_asked_for(
    state: ResourceManagerState, record: Record, body: task_executor.RequestSlot
) -> ResourceManagerState:
    return replace(state, slots=state.slots.pend(body.allocation_id, slot_key(body.slot_id), record.offset))


def _request_over(
    state: ResourceManagerState,
    _record: Record,
    body: resource_manager.CancelSlotRequest | job_master.SlotAllocationFailed,
) -> ResourceManagerState:
    return replace(state, slots=state.slots.forget(body.allocation_id))


def _loss_told(
    state: ResourceManagerState, _record: Record, body: job_master.FailSlot
) -> ResourceManagerState:
    if body.allocation_id not in state.lost:
        return state
    return replace(state, lost=state.lost.delete(body.allocation_id))


def _slots_reported(
    state: ResourceManagerState, record: Record, body: resource_manager.SendSlotReport
) -> ResourceManagerState:
    worker = state.workers.get(body.resource_id)
    if worker is None or worker.instance_id != body.instance_id:
        return state
    decided_at = record.offset if record.header.decided_at is None else record.header.decided_at
    slots = state.slots.report(body.resource_id, body.slots, decided_at)
    kept = slots.allocations_of(body.resource_id)
    gone = [each for each in state.slots.allocations_of(body.resource_id) if each not in kept]
    reason = f"TaskExecutor {body.resource_id} does not hold it any more"
    return lose(state, slots, body.resource_id, gone, reason, record.offset)


def lose(
    state: ResourceManagerState,
    slots: SlotManager,
    resource_id: str,
    gone: Iterable[str],
    reason: str,
    cause: int,
) -> ResourceManagerState:
    """The allocations `gone` of a TaskExecutor are no longer in `slots`.

    Requests that only waited for such a slot wait again; JobMasters that held one are owed the news.
    """
    lost, before = state.lost, state.slots.allocations_of(resource_id)
    for allocation_id in gone:
        key = before[allocation_id]
        slot = state.slots.slots[key]
        if slot.state is SlotState.PENDING:
            # Its JobMaster never got it: another slot will do.
            slots = slots.retry(allocation_id, key, cause)
            continue
        if not slots.is_for(allocation_id, key):
            # Its JobMaster gets the slot of another TaskExecutor, which was asked when this one was lost.
            continue
        slots = slots.forget(allocation_id)
        if slot.job_id in state.job_masters:
            lost = lost.set(allocation_id, LostSlot(slot.job_id or "", reason, cause))
    return replace(state, lost=lost, slots=slots)


def request(request: SlotRequest, key: SlotKey, reason: str) -> Owed:
    """RequestSlot to the slot's TaskExecutor; `reason` says why that slot."""
    resource_id, number = key
    body = task_executor.RequestSlot(
        slot_id=SlotID(resource_id=resource_id, slot_number=number),
        job_id=request.job_id,
        allocation_id=request.allocation_id,
        resource_profile=request.profile,
        reason=reason,
    )
    return Owed(address(TASK_EXECUTOR, resource_id), body, request.cause)


def losses(state: ResourceManagerState) -> list[Owed]:
    """FailSlot for every allocation whose slot is gone."""
    return [
        Owed(
            address(JOB_MASTER, lost.job_id),
            job_master.FailSlot(allocation_id=allocation_id, reason=lost.reason),
            lost.cause,
        )
        for allocation_id, lost in sorted(state.lost.items(), key=lambda pair: (pair[1].cause, pair[0]))
    ]


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.SendSlotReport: _slots_reported,
    resource_manager.NotifySlotAvailable: _slot_available,
    resource_manager.SlotRequestAccepted: _slot_allocated,
    resource_manager.SlotRequestRejected: _slot_refused,
    resource_manager.RequestSlot: _slot_wanted,
    resource_manager.CancelSlotRequest: _request_over,
    task_executor.RequestSlot: _slot_asked_for,
    job_master.SlotAllocationFailed: _request_over,
    job_master.FailSlot: _loss_told,
}
