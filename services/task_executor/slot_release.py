"""Releases tasks and slots: a slot is free when its last task has ended."""

from __future__ import annotations

from msgspec.structs import replace

from ...schemas.types import ExecutionState
from . import deployment_batches
from .job_connections import connect
from .state import Failure, FreedSlot, TaskExecutorState


def cancel_task(state: TaskExecutorState, execution_attempt_id: str, cause: int) -> TaskExecutorState:
    """The task is to end; one that has ended, or is ending, stays as it is."""
    task = state.tasks.get(execution_attempt_id)
    if task is None or task.state is ExecutionState.CANCELING:
        return state
    return replace(
        deployment_batches.remove_task(state, task),
        tasks=state.tasks.set(execution_attempt_id, replace(task, state=ExecutionState.CANCELING)),
        stopping=state.stopping.set(execution_attempt_id, cause),
    )


def release_slot(state: TaskExecutorState, allocation_id: str, cause: int) -> TaskExecutorState:
    """The slot is not needed any more: its tasks are cancelled, and it is free when they have ended."""
    slot = state.slots.by_allocation(allocation_id)
    if slot is None or not slot.held:
        return state
    for attempt in sorted(slot.tasks):
        state = cancel_task(state, attempt, cause)
    connection = state.jobs.get(slot.job_id or "")
    if connection is not None and allocation_id in connection.slots_to_offer:
        state = connect(
            state, replace(connection, slots_to_offer=connection.slots_to_offer - {allocation_id})
        )
    return free_if_empty(replace(state, slots=state.slots.release(allocation_id)), allocation_id, cause)


def revoke_slot(state: TaskExecutorState, allocation_id: str, reason: str, cause: int) -> TaskExecutorState:
    """Releases a slot that its JobMaster has not given back, and may hold or wait for: it is owed FailSlot."""
    slot = state.slots.by_allocation(allocation_id)
    if slot is None or not slot.held:
        return state
    failure = Failure(slot.job_id or "", reason, cause)
    state = replace(state, failed_slots=state.failed_slots.set(allocation_id, failure))
    return release_slot(state, allocation_id, cause)


def free_if_empty(state: TaskExecutorState, allocation_id: str, cause: int) -> TaskExecutorState:
    """Frees a slot that is being released and has no task left."""
    slot = state.slots.by_allocation(allocation_id)
    slots = state.slots.free_if_empty(allocation_id)
    if slot is None or slots is state.slots:
        return state
    freed = state.freed.set(allocation_id, FreedSlot(slot.number, allocation_id, cause))
    state = replace(state, slots=slots, freed=freed)
    connection = state.jobs.get(slot.job_id or "")
    return state if connection is None else connect(state, replace(connection, cause=cause))


def reset_all(state: TaskExecutorState, cause: int) -> TaskExecutorState:
    """Nobody counts on this TaskExecutor any more: all its tasks are to end, all its slots are free when they have.

    Nobody waits for what it owes, either. Slots without tasks are free at once, and nobody is notified: who comes to
    know this TaskExecutor again gets a slot report.
    """
    state = TaskExecutorState(
        resource_id=state.resource_id,
        registration=state.registration,
        slots=state.slots,
        slots_changed=state.slots_changed,
        tasks=state.tasks,
        leaving=state.leaving,
        leaving_cause=state.leaving_cause,
        left=state.left,
        stopping=state.stopping,
    )
    for attempt in sorted(state.tasks):
        state = cancel_task(state, attempt, cause)
    slots = state.slots
    for allocation_id in sorted(slots.allocated):
        slots = slots.release(allocation_id).free_if_empty(allocation_id)
    return replace(state, slots=slots)
