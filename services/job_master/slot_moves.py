"""Moves of tasks to other slots: a slot is requested in place of one that the job holds, which stays until then.

The ResourceManager asks for a move when a TaskExecutor is quarantined (MoveSlot). The JobMaster requests the other slot
first. When a TaskExecutor offers it, the tasks move (`failover.move_tasks`). If the request fails, or the slot is lost
or empty before, nothing moves. A job that ends, rescales or stops with a savepoint moves nothing: the ResourceManager
asks again.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...schemas import job_master
from ...schemas.event import Record
from ..core.outbox import owe
from ..core.role import derive_id
from .checkpoints.stop_phase import StopPhase
from .job_status import ACTIVE
from .slot_pool import AllocatedSlot, PendingRequest, SlotStep
from .state import StartedJob


def on_move_slot(state: StartedJob, record: Record, body: job_master.MoveSlot) -> StartedJob:
    old = state.slots.slots.get(body.allocation_id)
    if old is None or old.replacement is not None or not may_move(state):
        return state
    if old.slot is None:
        return give_back(state, old.allocation_id, body.reason, record.offset)
    request = PendingRequest(
        allocation_id=derive_id(state.job_id, "slot", *old.slot, state.slots.generation),
        slot=old.slot,
        profile=state.topology.profiles_of([old.slot], state.stage)[old.slot],
        cause=record.offset,
        replaces=old.allocation_id,
    )
    return replace(state, slots=state.slots.request_replacement(request, old))


def may_move(state: StartedJob) -> bool:
    """Whether tasks of the job may move to other slots."""
    is_calm = state.checkpoints.stop is StopPhase.NONE and state.rescaling.current is None
    return state.status in ACTIVE and is_calm and not state.shares_slots


def find_movable(state: StartedJob, request: PendingRequest) -> AllocatedSlot | None:
    """Returns the slot whose tasks move to the one that is offered for this request; None if they stay."""
    old = state.slots.slots.get(request.replaces or "")
    tree = state.sharing.trees.get(request.slot)
    if old is None or tree is None or request.step is not SlotStep.PENDING or not may_move(state):
        return None
    return old if old.slot == request.slot and tree.allocation_id == old.allocation_id else None


def cancel_move(state: StartedJob, allocation_id: str, reason: str, cause: int) -> StartedJob:
    """Cancels the request for a slot in place of this one, which is lost or empty."""
    old = state.slots.slots.get(allocation_id)
    if old is None or old.replacement is None:
        return state
    return give_back(state, old.replacement, reason, cause)


def give_back(state: StartedJob, allocation_id: str, reason: str, cause: int) -> StartedJob:
    """Returns a slot, or cancels a request that the ResourceManager may know."""
    pool, owed = state.slots.give_back(allocation_id, reason, cause)
    state = replace(state, slots=pool)
    return state if owed is None else owe(state, owed)
