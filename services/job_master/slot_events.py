"""The slots of a job: the events that the JobMaster handles and sends for its SlotPool."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from msgspec.structs import replace

from ...schemas import job_master, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import SlotOffer
from ..core.outbox import owe, remove_owed
from ..core.owed_events import OwedFreeSlot
from ..core.resource_profile import profile_key
from ..core.role import RESOURCE_MANAGER, TASK_EXECUTOR, OutgoingEvent, Step, Time, address, instance_of
from . import failover, scheduling, slot_moves, task_executor_connections
from .job_status import ACTIVE
from .owed_events import OwedCancelSlotRequest, OwedSlotsAccepted, OwedSlotsRejected
from .rescale import adaptive_scheduler
from .slot_pool import AllocatedSlot, SlotPool, SlotStep
from .state import ConnectionState, RegistrationState, StartedJob

# Cached members: Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md), and these are
# needed often.
_PENDING: Final = SlotStep.PENDING


def on_slot_allocation_failed(
    state: StartedJob, record: Record, body: job_master.SlotAllocationFailed
) -> StartedJob:
    request = state.slots.requests.get(body.allocation_id)
    if request is None or request.step is not _PENDING:
        # A TaskExecutor has offered the slot meanwhile, or it is no longer needed.
        return state
    return failover.fail_request(state, body.allocation_id, body.reason, record)


def on_fail_slot(state: StartedJob, record: Record, body: job_master.FailSlot) -> StartedJob:
    if task_executor_connections.is_stale(state, record):
        return state
    allocation_id, pool = body.allocation_id, state.slots
    slot, request = pool.slots.get(allocation_id), pool.requests.get(allocation_id)
    if slot is not None:
        # A TaskExecutor that reports this has freed the slot; the report of another one may be wrong.
        free = record.header.sender != address(TASK_EXECUTOR, slot.resource_id)
        return failover.lose_slots(state, [slot], body.reason, record, free=free)
    if request is not None and request.step is _PENDING:
        return failover.fail_request(state, allocation_id, body.reason, record)
    return state


def on_offer_slots(state: StartedJob, record: Record, body: job_master.OfferSlots) -> StartedJob:
    if task_executor_connections.is_stale(state, record):
        return state
    resource_id, cause, pool = body.resource_id, record.offset, state.slots
    connection = state.connections.get(resource_id)
    wanted = state.status in ACTIVE and connection is not ConnectionState.DISCONNECTING
    accepted, rejected = [], []
    taken: list[SlotOffer] = []
    replaced: list[tuple[AllocatedSlot, str]] = []
    for offer in {slot.allocation_id: slot for slot in body.slots}.values():
        held, request = pool.slots.get(offer.allocation_id), pool.requests.get(offer.allocation_id)
        if held is not None and held.resource_id == resource_id:
            # A restarted TaskExecutor offers slots that it already holds: it is answered again.
            accepted.append(offer.allocation_id)
        elif wanted and request is not None and request.step is _PENDING and request.replaces is None:
            accepted.append(offer.allocation_id)
            taken.append(offer)
        elif wanted and request is not None and (old := slot_moves.find_movable(state, request)) is not None:
            accepted.append(offer.allocation_id)
            taken.append(offer)
            replaced.append((old, offer.allocation_id))
        else:
            rejected.append(offer.allocation_id)
            if request is not None and request.replaces is not None and request.step is _PENDING:
                # The TaskExecutor frees it, and the tasks stay where they are.
                pool = pool.cancel_request(offer.allocation_id)
    requests = [pool.requests[offer.allocation_id] for offer in taken]
    reserve = {request.allocation_id for request in requests if state.is_reserve(request)}
    trees = {
        request.slot: replace(state.sharing.trees[request.slot], resolved=True)
        for request in requests
        if request.replaces is None and request.allocation_id not in reserve
    }
    if accepted:
        state = owe(state, OwedSlotsAccepted(cause, resource_id, tuple(accepted)))
    if rejected:
        state = owe(state, OwedSlotsRejected(cause, resource_id, tuple(rejected)))
        if state.status in ACTIVE:
            state, pool = _request_again(state, pool, rejected, cause)
    if not taken:
        return replace(state, slots=pool)
    pool = pool.accept_offer(taken, resource_id, cause)
    for allocation_id in sorted(reserve):
        pool = pool.available(allocation_id, record.header.time, cause)
    state = replace(state, slots=pool, sharing=state.sharing.add_tree(trees))
    if connection is None:
        # It was disconnected when it had no slots; it has been assigned one since.
        connections = state.connections.set(resource_id, ConnectionState.CONNECTED)
        state = replace(state, connections=connections)
    state = scheduling.assign_slots(state, trees, cause)
    for old, allocation_id in replaced:
        reason = f"its tasks have moved to TaskExecutor {resource_id}"
        state = failover.move_tasks(state, old, allocation_id, reason, cause)
    return state


def _request_again(
    state: StartedJob, pool: SlotPool, rejected: list[str], cause: int
) -> tuple[StartedJob, SlotPool]:
    """Requests other slots in place of rejected ones that were requested: their TaskExecutor still has to read that it
    is disconnected, as after a pause, and the ResourceManager forgets the requests."""
    requests = (pool.requests.get(allocation_id) for allocation_id in rejected)
    waiting = [each for each in requests if each is not None and each.step is _PENDING]
    state = replace(state, slots=pool)
    if not waiting:
        return state, pool
    # A rescale requests its own slots again by itself.
    slots = sorted(each.slot for each in waiting if not state.is_reserve(each))
    for request in waiting:
        state = slot_moves.give_back(state, request.allocation_id, "its TaskExecutor is disconnected", cause)
    state = scheduling.find_slots(state, slots, cause)
    return state, state.slots


def on_request_slot(state: StartedJob, record: Record, body: resource_manager.RequestSlot) -> StartedJob:
    allocation_id = body.allocation_id
    if allocation_id in state.slots.requests or allocation_id in state.slots.slots:
        return replace(state, slots=state.slots.requested(allocation_id, body.resource_profile_number))
    # It was no longer needed when this was appended to the log.
    return owe(state, not_wanted(state.job_id, allocation_id, record.offset))


def not_wanted(job_id: str, allocation_id: str, cause: int) -> OwedCancelSlotRequest:
    """Returns the answer to the own RequestSlot at `cause`, which was appended too late."""
    return OwedCancelSlotRequest(cause, allocation_id, f"job {job_id} does not want it any more")


def on_free_slot(state: StartedJob, record: Record, body: task_executor.FreeSlot) -> StartedJob:
    allocation_id = body.allocation_id
    slot = state.slots.slots.get(allocation_id)
    state = remove_owed(state, OwedFreeSlot, allocation_id, instance_of(record.header.recipient))
    state = replace(state, slots=state.slots.remove_slot(allocation_id))
    return state if slot is None else failover.free_slot(state, slot, record.offset)


def idle_slots(state: StartedJob, now: Time) -> list[OwedFreeSlot]:
    """Returns FreeSlot for slots that were available for too long. A rescale keeps all of them."""
    timeout, pool, spare = state.options.slot_idle_timeout, state.slots, _spare_slots(state)
    if not spare:
        return []
    reason = f"idle for {timeout / 1e6:g} s in job {state.job_id}"
    idle = (pool.slots[allocation_id] for allocation_id in islice(pool.idle.until(now - timeout), spare))
    return [OwedFreeSlot(slot.cause, slot.allocation_id, slot.resource_id, reason) for slot in idle]


def _spare_slots(state: StartedJob) -> int:
    """Returns how many available slots the job does not keep. Tasks that run may become slow, and move."""
    if state.rescaling.current is not None:
        return 0
    kept = 0 if state.options.slow_task_detector is None else state.counts.unfinished
    kept += adaptive_scheduler.reserved_slots(state)
    return max(0, len(state.slots.idle) - kept)


def request_events(state: StartedJob, now: Time) -> list[OutgoingEvent]:
    """Returns RequestSlot, in the order of the slots' groups and places."""
    if state.registration is not RegistrationState.REGISTERED or state.status not in ACTIVE:
        return []
    requests = state.slots.requests
    wanted = [(requests[owed.allocation_id], owed.cause) for _, owed in state.slots.wanted.due(now)]
    if not wanted:
        return []
    numbers, events = dict(state.slots.profile_numbers), []
    unused = 1 + max(numbers.values(), default=-1)
    for request, cause in sorted(wanted, key=lambda pair: (pair[0].slot, pair[0].allocation_id)):
        profile, number = request.profile, None
        if profile is not None:
            number = numbers.setdefault(profile_key(profile), unused)
            if number == unused:
                unused += 1
            else:
                # An earlier request contains it.
                profile = None
        body = resource_manager.RequestSlot(
            job_id=state.job_id,
            allocation_id=request.allocation_id,
            resource_profile=profile,
            resource_profile_number=number,
            is_optional=request.is_optional,
        )
        events.append(OutgoingEvent(RESOURCE_MANAGER, body, max(cause, state.cause)))
    return events


def deadline(state: StartedJob) -> Time | None:
    """Returns the time at which a request has to be sent, or an idle slot to be freed."""
    idle = state.slots.idle.first if _spare_slots(state) else None
    times = [None if idle is None else idle[1] + state.options.slot_idle_timeout]
    if state.registration is RegistrationState.REGISTERED and state.status in ACTIVE:
        times.append(state.slots.wanted.earliest)
    return min((time_ for time_ in times if time_ is not None), default=None)


STEPS: Mapping[type[Body], Step[StartedJob]] = {
    job_master.SlotAllocationFailed: on_slot_allocation_failed,
    job_master.OfferSlots: on_offer_slots,
    job_master.FailSlot: on_fail_slot,
    job_master.MoveSlot: slot_moves.on_move_slot,
    resource_manager.RequestSlot: on_request_slot,
    task_executor.FreeSlot: on_free_slot,
}
