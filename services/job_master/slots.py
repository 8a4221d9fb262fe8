"""The slots of a job: what is heard of them, and what is said about them, around the SlotPool."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ..roles import (
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    Owed,
    Step,
    address,
    instance_of,
)
from . import executions, slot_pool
from .state import JobMasterState, PooledSlot, Progress, Rejection, SlotStep


def _no_slot(state: JobMasterState, record: Record, body: job_master.SlotAllocationFailed) -> JobMasterState:
    return executions.slot_not_allocated(state, body.allocation_id, body.reason, record.offset)


def _slot_lost(state: JobMasterState, record: Record, body: job_master.FailSlot) -> JobMasterState:
    return executions.slot_lost(state, body.allocation_id, body.reason, record.offset)


def _slots_offered(state: JobMasterState, record: Record, body: job_master.OfferSlots) -> JobMasterState:
    cause = record.offset
    for offer in body.slots:
        wanted = slot_pool.offered(state, offer.allocation_id, body.resource_id, cause)
        if wanted is not None:
            state = wanted
            continue
        rejection = Rejection(f"job {state.job_id} does not want it", cause)
        key = (body.resource_id, offer.allocation_id)
        state = replace(state, rejections=state.rejections.set(key, rejection))
    return state


def _slot_asked_for(
    state: JobMasterState, _record: Record, body: resource_manager.RequestSlot
) -> JobMasterState:
    return slot_pool.requested(state, body.allocation_id)


def _slot_returned(
    state: JobMasterState, _record: Record, body: resource_manager.CancelSlotRequest | task_executor.FreeSlot
) -> JobMasterState:
    return slot_pool.gone(state, body.allocation_id)


def _slots_taken(state: JobMasterState, record: Record, body: task_executor.SlotsAccepted) -> JobMasterState:
    for allocation_id in body.allocation_ids:
        state = slot_pool.accepted(state, allocation_id)
    return replace(state, cause=record.offset)


def _slots_turned_down(
    state: JobMasterState, record: Record, body: task_executor.SlotsRejected
) -> JobMasterState:
    rejections = state.rejections
    for allocation_id in body.allocation_ids:
        key = (instance_of(record.header.recipient), allocation_id)
        if key in rejections:
            rejections = rejections.delete(key)
    return replace(state, rejections=rejections)


def parting_words(state: JobMasterState) -> str:
    """What a JobMaster says when it lets go of slots and TaskExecutors (document 000)."""
    name = state.graph.name if state.graph else ""
    return f"Stopping JobMaster for job {name}({state.job_id})."


def _slot_message(state: JobMasterState, slot: PooledSlot) -> Owed:
    if slot.step is SlotStep.WANTED:
        request = resource_manager.RequestSlot(
            job_id=state.job_id, allocation_id=slot.allocation_id, resource_profile=None
        )
        return Owed(RESOURCE_MANAGER, request, state.cause)
    reason = parting_words(state)
    if slot.resource_id is None:
        cancel = resource_manager.CancelSlotRequest(allocation_id=slot.allocation_id, reason=reason)
        return Owed(RESOURCE_MANAGER, cancel, slot.cause)
    free = task_executor.FreeSlot(allocation_id=slot.allocation_id, reason=reason)
    return Owed(address(TASK_EXECUTOR, slot.resource_id), free, slot.cause)


def messages(state: JobMasterState) -> list[Owed]:
    """RequestSlot, CancelSlotRequest, FreeSlot, SlotsAccepted and SlotsRejected that are owed."""
    if state.registration is not Progress.DONE:
        return []
    owing = sorted(
        (state.slots[allocation_id] for allocation_id in state.slots_owing),
        key=lambda slot: (slot.cause, slot.group, slot.index),
    )
    offers: dict[tuple[str, int], list[str]] = {}
    owed = []
    for slot in owing:
        if slot.step is SlotStep.OFFERED:
            offers.setdefault((slot.resource_id or "", slot.cause), []).append(slot.allocation_id)
        else:
            owed.append(_slot_message(state, slot))
    for (resource_id, cause), allocation_ids in offers.items():
        accepted = task_executor.SlotsAccepted(job_id=state.job_id, allocation_ids=tuple(allocation_ids))
        owed.append(Owed(address(TASK_EXECUTOR, resource_id), accepted, cause))
    for (resource_id, allocation_id), rejection in sorted(
        state.rejections.items(), key=lambda pair: (pair[1].cause, pair[0])
    ):
        rejected = task_executor.SlotsRejected(
            job_id=state.job_id, allocation_ids=(allocation_id,), reason=rejection.reason
        )
        owed.append(Owed(address(TASK_EXECUTOR, resource_id), rejected, rejection.cause))
    return owed


STEPS: Mapping[type[Body], Step[JobMasterState]] = {
    job_master.SlotAllocationFailed: _no_slot,
    job_master.OfferSlots: _slots_offered,
    job_master.FailSlot: _slot_lost,
    resource_manager.RequestSlot: _slot_asked_for,
    resource_manager.CancelSlotRequest: _slot_returned,
    task_executor.SlotsAccepted: _slots_taken,
    task_executor.SlotsRejected: _slots_turned_down,
    task_executor.FreeSlot: _slot_returned,
}
