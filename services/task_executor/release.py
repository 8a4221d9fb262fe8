"""How tasks and slots come to their end: a slot is free when the last task in it has ended."""

from __future__ import annotations

from msgspec.structs import replace

from ...schemas.states import EXECUTION_ENDS
from .connections import connect
from .state import (
    FreedSlot,
    TaskExecutorState,
)


def cancel(state: TaskExecutorState, execution_attempt_id: str, cause: int) -> TaskExecutorState:
    """The task is to end; one that has ended, or is ending, stays as it is."""
    task = state.tasks.get(execution_attempt_id)
    if task is None or task.state in EXECUTION_ENDS or task.cancel is not None:
        return state
    return replace(state, tasks=state.tasks.set(execution_attempt_id, replace(task, cancel=cause)))


def release(state: TaskExecutorState, allocation_id: str, cause: int) -> TaskExecutorState:
    """The slot is not needed any more: its tasks are cancelled, and it is free when they have ended."""
    slot = state.slots.by_allocation(allocation_id)
    if slot is None:
        return state
    for attempt in sorted(slot.tasks):
        state = cancel(state, attempt, cause)
    return vacate(replace(state, slots=state.slots.release(allocation_id)), allocation_id, cause)


def vacate(state: TaskExecutorState, allocation_id: str, cause: int) -> TaskExecutorState:
    """Frees a slot that is being released and has no task left."""
    slot = state.slots.by_allocation(allocation_id)
    slots = state.slots.vacate(allocation_id)
    if slot is None or slots is state.slots:
        return state
    freed = state.freed.set(slot.number, FreedSlot(slot.number, allocation_id, cause))
    state = replace(state, slots=slots, freed=freed)
    connection = state.jobs.get(slot.job_id or "")
    return state if connection is None else connect(state, replace(connection, cause=cause))
