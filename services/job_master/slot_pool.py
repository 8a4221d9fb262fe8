"""The SlotPool: the slots that a job wants, waits for, holds and gives back.

A job wants, for each slot sharing group, as many slots as the largest parallelism in it. AllocationIDs are derived
from the job and the slot's place, so that a successor that asks again asks for the same slot.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from .state import JobMasterState, PooledSlot, SlotStep

OWING = frozenset({SlotStep.WANTED, SlotStep.OFFERED, SlotStep.RETURNING})


def want(state: JobMasterState, allocations: Mapping[str, tuple[str, int]], cause: int) -> JobMasterState:
    """Slots by AllocationID -> (slot sharing group, index) are wanted."""
    for allocation_id, (group, index) in allocations.items():
        state = put(state, PooledSlot(allocation_id, group, index, SlotStep.WANTED, cause))
    return replace(state, missing_slots=state.missing_slots + len(allocations))


def put(state: JobMasterState, slot: PooledSlot) -> JobMasterState:
    """Stores a slot and what it owes."""
    owing = state.slots_owing
    if slot.step in OWING:
        owing = owing.set(slot.allocation_id, slot.cause)
    elif slot.allocation_id in owing:
        owing = owing.delete(slot.allocation_id)
    return replace(state, slots=state.slots.set(slot.allocation_id, slot), slots_owing=owing)


def requested(state: JobMasterState, allocation_id: str) -> JobMasterState:
    """RequestSlot has been said."""
    return _step(state, allocation_id, SlotStep.WANTED, SlotStep.PENDING)


def offered(state: JobMasterState, allocation_id: str, resource_id: str, cause: int) -> JobMasterState | None:
    """A TaskExecutor offers the slot; None where the job does not want it."""
    slot = state.slots.get(allocation_id)
    if slot is None or slot.step not in (SlotStep.PENDING, SlotStep.OFFERED, SlotStep.ALLOCATED):
        return None
    if slot.resource_id not in (None, resource_id):
        # The ResourceManager took this TaskExecutor for lost and asked another one, which was first.
        return None
    if slot.step is SlotStep.ALLOCATED:
        # A TaskExecutor that restarted offers what it holds already: it is told again, and counted once.
        state = replace(state, missing_slots=state.missing_slots + 1)
    return put(state, replace(slot, step=SlotStep.OFFERED, resource_id=resource_id, cause=cause))


def accepted(state: JobMasterState, allocation_id: str) -> JobMasterState:
    """SlotsAccepted has been said."""
    slot = state.slots.get(allocation_id)
    if slot is None or slot.step is not SlotStep.OFFERED:
        return state
    return replace(put(state, replace(slot, step=SlotStep.ALLOCATED)), missing_slots=state.missing_slots - 1)


def give_back_all(state: JobMasterState, cause: int) -> JobMasterState:
    """Every slot is to be freed, every request to be cancelled."""
    for slot in list(state.slots.values()):
        if slot.step is SlotStep.WANTED:
            state = put(state, replace(slot, step=SlotStep.GONE))
        elif slot.step is not SlotStep.GONE:
            state = put(state, replace(slot, step=SlotStep.RETURNING, cause=cause))
    return state


def gone(state: JobMasterState, allocation_id: str) -> JobMasterState:
    """The slot has been given back, or is lost."""
    slot = state.slots.get(allocation_id)
    return state if slot is None else put(state, replace(slot, step=SlotStep.GONE))


def _step(state: JobMasterState, allocation_id: str, before: SlotStep, after: SlotStep) -> JobMasterState:
    slot = state.slots.get(allocation_id)
    if slot is None or slot.step is not before:
        return state
    return put(state, replace(slot, step=after))
