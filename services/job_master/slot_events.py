"""The slots of a job: the events that the JobMaster handles and sends for its SlotPool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ...schemas import job_master, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import SlotOffer
from ..core.role import RESOURCE_MANAGER, TASK_EXECUTOR, OutgoingEvent, Step, Time, address
from . import failover, scheduling, task_executor_connections
from .job_status import ACTIVE
from .slot_pool import SlotStep
from .state import Connection, Handshake, JobMasterState, OfferAnswer

# Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md): these are asked for all the time.
_PENDING: Final = SlotStep.PENDING


def on_slot_allocation_failed(
    state: JobMasterState, record: Record, body: job_master.SlotAllocationFailed
) -> JobMasterState:
    request = state.slots.requests.get(body.allocation_id)
    if request is None or request.step is not _PENDING:
        # A TaskExecutor has offered the slot meanwhile, or it is not wanted any more.
        return state
    return failover.fail_request(state, body.allocation_id, body.reason, record)


def on_fail_slot(state: JobMasterState, record: Record, body: job_master.FailSlot) -> JobMasterState:
    if task_executor_connections.is_stale(state, record):
        return state
    allocation_id, pool = body.allocation_id, state.slots
    slot, request = pool.slots.get(allocation_id), pool.requests.get(allocation_id)
    if slot is not None:
        # A TaskExecutor that says so has freed the slot; another may be wrong about that.
        free = record.header.sender != address(TASK_EXECUTOR, slot.resource_id)
        return failover.lose_slots(state, [slot], body.reason, record, free=free)
    if request is not None and request.step is _PENDING:
        return failover.fail_request(state, allocation_id, body.reason, record)
    return state


def on_offer_slots(state: JobMasterState, record: Record, body: job_master.OfferSlots) -> JobMasterState:
    if task_executor_connections.is_stale(state, record):
        return state
    resource_id, cause, pool = body.resource_id, record.offset, state.slots
    connection = state.connections.get(resource_id)
    wanted = state.status in ACTIVE and (connection is None or connection.disconnect is None)
    accepted, rejected = [], []
    taken: list[SlotOffer] = []
    for offer in {each.allocation_id: each for each in body.slots}.values():
        held, request = pool.slots.get(offer.allocation_id), pool.requests.get(offer.allocation_id)
        if held is not None and held.resource_id == resource_id:
            # A TaskExecutor that restarted offers what it holds already: it is told again.
            accepted.append(offer.allocation_id)
        elif wanted and request is not None and request.step is _PENDING:
            accepted.append(offer.allocation_id)
            taken.append(offer)
        else:
            rejected.append(offer.allocation_id)
    trees = {
        slot: replace(state.sharing.trees[slot], resolved=True)
        for slot in (pool.requests[offer.allocation_id].slot for offer in taken)
    }
    if accepted or rejected:
        reason = f"job {state.job_id} does not want it"
        answer = OfferAnswer(resource_id, tuple(accepted), tuple(rejected), reason)
        state = replace(state, answers=state.answers.set(cause, answer))
    if not taken:
        return state
    state = replace(
        state, slots=pool.accept_offer(taken, resource_id, cause), sharing=state.sharing.add_tree(trees)
    )
    if connection is None:
        # It was disconnected when it had no slots; it has been given one since.
        state = task_executor_connections.connect(state, Connection(resource_id, Handshake.DONE, cause))
    return scheduling.assign_slots(state, trees, cause)


def on_request_slot(
    state: JobMasterState, record: Record, body: resource_manager.RequestSlot
) -> JobMasterState:
    allocation_id = body.allocation_id
    if allocation_id in state.slots.requests or allocation_id in state.slots.slots:
        return replace(state, slots=state.slots.requested(allocation_id))
    # It was not wanted any more when this came into the log.
    reason = f"job {state.job_id} does not want it any more"
    return replace(state, slots=state.slots.returns(allocation_id, None, reason, record.offset))


def on_cancel_slot_request(
    state: JobMasterState, _record: Record, body: resource_manager.CancelSlotRequest
) -> JobMasterState:
    return replace(state, slots=state.slots.finish_return(body.allocation_id))


def on_free_slot(state: JobMasterState, record: Record, body: task_executor.FreeSlot) -> JobMasterState:
    allocation_id = body.allocation_id
    slot = state.slots.slots.get(allocation_id)
    state = replace(state, slots=state.slots.finish_return(allocation_id).remove_task_executor(allocation_id))
    return state if slot is None else failover.free_slot(state, slot, record.offset)


def on_slots_accepted(
    state: JobMasterState, record: Record, _body: task_executor.SlotsAccepted
) -> JobMasterState:
    return _remove_answer(state, record.header.cause, accepted=True)


def on_slots_rejected(
    state: JobMasterState, record: Record, _body: task_executor.SlotsRejected
) -> JobMasterState:
    return _remove_answer(state, record.header.cause, accepted=False)


def _remove_answer(state: JobMasterState, offer: int | None, *, accepted: bool) -> JobMasterState:
    answer = None if offer is None else state.answers.get(offer)
    if offer is None or answer is None:
        return state
    left = replace(answer, accepted=()) if accepted else replace(answer, rejected=())
    if left.accepted or left.rejected:
        return replace(state, answers=state.answers.set(offer, left))
    return replace(state, answers=state.answers.delete(offer))


def request_events(state: JobMasterState, now: Time) -> list[OutgoingEvent]:
    """RequestSlot, in the order of the slots' groups and places."""
    if state.registration is not Handshake.DONE or state.status not in ACTIVE:
        return []
    due = state.slots.wanted.due(now)
    wanted = sorted((state.slots.requests[each].slot, each, cause) for each, cause in due)
    return [
        OutgoingEvent(
            RESOURCE_MANAGER,
            resource_manager.RequestSlot(
                job_id=state.job_id,
                allocation_id=allocation_id,
                resource_profile=state.slots.requests[allocation_id].profile,
            ),
            max(cause, state.cause),
        )
        for _, allocation_id, cause in wanted
    ]


def offer_answers(state: JobMasterState) -> list[OutgoingEvent]:
    """SlotsAccepted and SlotsRejected, in the order of the offers."""
    owed = []
    for offset, answer in sorted(state.answers.items()):
        recipient = address(TASK_EXECUTOR, answer.resource_id)
        if answer.accepted:
            accepted = task_executor.SlotsAccepted(job_id=state.job_id, allocation_ids=answer.accepted)
            owed.append(OutgoingEvent(recipient, accepted, offset))
        if answer.rejected:
            rejected = task_executor.SlotsRejected(
                job_id=state.job_id, allocation_ids=answer.rejected, reason=answer.reason
            )
            owed.append(OutgoingEvent(recipient, rejected, offset))
    return owed


def return_events(state: JobMasterState, now: Time) -> list[OutgoingEvent]:
    """FreeSlot and CancelSlotRequest: for returned slots, in order, and for slots that were idle for too long."""
    owed = []
    for each in sorted(state.slots.returning.values(), key=lambda one: (one.cause, one.allocation_id)):
        if each.resource_id is None:
            cancel = resource_manager.CancelSlotRequest(allocation_id=each.allocation_id, reason=each.reason)
            owed.append(OutgoingEvent(RESOURCE_MANAGER, cancel, each.cause))
        else:
            owed.append(_free(each.resource_id, each.allocation_id, each.reason, each.cause))
    reason = f"idle for {state.options.slot_idle_timeout / 1e6:g} s in job {state.job_id}"
    for allocation_id, cause in sorted(state.slots.idle.due(now), key=lambda pair: (pair[1], pair[0])):
        slot = state.slots.slots[allocation_id]
        owed.append(_free(slot.resource_id, allocation_id, reason, cause))
    return owed


def _free(resource_id: str, allocation_id: str, reason: str, cause: int) -> OutgoingEvent:
    body = task_executor.FreeSlot(allocation_id=allocation_id, reason=reason)
    return OutgoingEvent(address(TASK_EXECUTOR, resource_id), body, cause)


def deadline(state: JobMasterState) -> Time | None:
    """When a request is to be sent, or an idle slot to be freed."""
    times = [state.slots.idle.earliest]
    if state.registration is Handshake.DONE and state.status in ACTIVE:
        times.append(state.slots.wanted.earliest)
    return min((each for each in times if each is not None), default=None)


STEPS: Mapping[type[Body], Step[JobMasterState]] = {
    job_master.SlotAllocationFailed: on_slot_allocation_failed,
    job_master.OfferSlots: on_offer_slots,
    job_master.FailSlot: on_fail_slot,
    resource_manager.RequestSlot: on_request_slot,
    resource_manager.CancelSlotRequest: on_cancel_slot_request,
    task_executor.SlotsAccepted: on_slots_accepted,
    task_executor.SlotsRejected: on_slots_rejected,
    task_executor.FreeSlot: on_free_slot,
}
