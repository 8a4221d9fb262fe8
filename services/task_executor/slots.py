"""The slots of a TaskExecutor: asked for by the ResourceManager, taken and given back by JobMasters."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import SlotID
from ..roles import (
    RESOURCE_MANAGER,
    Owed,
    Step,
)
from .connections import connect
from .release import release
from .state import (
    JobConnection,
    SlotAnswer,
    TaskExecutorState,
)


def _slot_requested(
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
    state = replace(
        state,
        slots=slots,
        slot_answers=state.slot_answers.set(record.offset, SlotAnswer(body.allocation_id, number)),
    )
    return connect(state, replace(connection, cause=record.offset))


def _slot_answered(
    state: TaskExecutorState,
    record: Record,
    _body: resource_manager.SlotRequestAccepted | resource_manager.SlotRequestRejected,
) -> TaskExecutorState:
    cause = record.header.cause
    if cause is None or cause not in state.slot_answers:
        return state
    return replace(state, slot_answers=state.slot_answers.delete(cause))


def _slots_taken(
    state: TaskExecutorState, _record: Record, body: task_executor.SlotsAccepted
) -> TaskExecutorState:
    slots = state.slots
    for allocation_id in body.allocation_ids:
        slots = slots.activate(allocation_id)
    return replace(state, slots=slots)


def _slots_turned_down(
    state: TaskExecutorState, record: Record, body: task_executor.SlotsRejected
) -> TaskExecutorState:
    for allocation_id in body.allocation_ids:
        state = release(state, allocation_id, record.offset)
    return state


def _slot_not_needed(
    state: TaskExecutorState, record: Record, body: task_executor.FreeSlot
) -> TaskExecutorState:
    return release(state, body.allocation_id, record.offset)


def _freedom_notified(
    state: TaskExecutorState, _record: Record, body: resource_manager.NotifySlotAvailable
) -> TaskExecutorState:
    freed = state.freed.get(body.slot_id.slot_number)
    if freed is None or freed.allocation_id != body.old_allocation_id:
        return state
    return replace(state, freed=state.freed.delete(body.slot_id.slot_number))


def _job_manager_leaves(
    state: TaskExecutorState, record: Record, body: task_executor.DisconnectJobManager
) -> TaskExecutorState:
    job_id, cause = body.job_id, record.offset
    connection = state.jobs.get(job_id)
    if connection is None:
        return state
    for allocation_id in sorted(state.slots.per_job.get(job_id, frozenset())):
        state = release(state, allocation_id, cause)
    return connect(state, replace(state.jobs[job_id], cause=cause))


def answers(state: TaskExecutorState) -> list[Owed]:
    """SlotRequestAccepted and SlotRequestRejected, in the order of the requests."""
    owed = []
    for offset, answer in sorted(state.slot_answers.items()):
        slot_id = SlotID(resource_id=state.resource_id, slot_number=answer.slot_number)
        allocation_id = answer.allocation_id
        if answer.reason is None:
            accepted = resource_manager.SlotRequestAccepted(allocation_id=allocation_id, slot_id=slot_id)
            owed.append(Owed(RESOURCE_MANAGER, accepted, offset))
        else:
            rejected = resource_manager.SlotRequestRejected(
                allocation_id=allocation_id, slot_id=slot_id, reason=answer.reason
            )
            owed.append(Owed(RESOURCE_MANAGER, rejected, offset))
    return owed


def notifications(state: TaskExecutorState) -> list[Owed]:
    """NotifySlotAvailable for every slot that has become free."""
    registration = state.registration
    if registration is None or registration.instance_id is None:
        return []
    owed = []
    for number, freed in sorted(state.freed.items()):
        body = resource_manager.NotifySlotAvailable(
            instance_id=registration.instance_id,
            slot_id=SlotID(resource_id=state.resource_id, slot_number=number),
            old_allocation_id=freed.allocation_id,
        )
        owed.append(Owed(RESOURCE_MANAGER, body, freed.cause))
    return owed


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.RequestSlot: _slot_requested,
    task_executor.SlotsAccepted: _slots_taken,
    task_executor.SlotsRejected: _slots_turned_down,
    task_executor.FreeSlot: _slot_not_needed,
    task_executor.DisconnectJobManager: _job_manager_leaves,
    resource_manager.SlotRequestAccepted: _slot_answered,
    resource_manager.SlotRequestRejected: _slot_answered,
    resource_manager.NotifySlotAvailable: _freedom_notified,
}
