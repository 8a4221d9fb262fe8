"""Releases tasks and slots: a slot is free when its last task has ended."""

from __future__ import annotations

from msgspec.structs import replace

from ...schemas.types import ExecutionState
from . import deployment_batches
from .state import Failure, FreedSlot, TaskExecutorState, connect


def cancel_task(state: TaskExecutorState, execution_attempt_id: str, cause: int) -> TaskExecutorState:
    """Cancels a task. A task that has ended, or is ending, is unchanged."""
    task = state.tasks.get(execution_attempt_id)
    if task is None or task.state is ExecutionState.CANCELING:
        return state
    return replace(
        deployment_batches.remove_task(state, task),
        tasks=state.tasks.set(execution_attempt_id, replace(task, state=ExecutionState.CANCELING)),
        stopping=state.stopping.set(execution_attempt_id, cause),
    )


def release_slot(state: TaskExecutorState, allocation_id: str, cause: int) -> TaskExecutorState:
    """Releases a slot: its tasks are cancelled, and it is free when they have ended."""
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
    """Releases a slot that its JobMaster has not given back, and sends FailSlot to the JobMaster."""
    slot = state.slots.by_allocation(allocation_id)
    if slot is None or not slot.held:
        return state
    failure = Failure(slot.job_id or "", reason, cause)
    state = replace(state, failed_slots=state.failed_slots.set(allocation_id, failure))
    return release_slot(state, allocation_id, cause)


def free_if_empty(state: TaskExecutorState, allocation_id: str, cause: int) -> TaskExecutorState:
    """Frees a slot in RELEASING that has no task left."""
    slot = state.slots.by_allocation(allocation_id)
    slots = state.slots.free_if_empty(allocation_id)
    if slot is None or slots is state.slots:
        return state
    freed = state.freed.set(allocation_id, FreedSlot(slot.number, allocation_id, cause))
    state = replace(state, slots=slots, freed=freed)
    connection = state.jobs.get(slot.job_id or "")
    return state if connection is None else connect(state, replace(connection, cause=cause))


def reset_all(state: TaskExecutorState, cause: int) -> TaskExecutorState:
    """Ends all tasks and frees all slots: nobody relies on this TaskExecutor any more.

    Pending answers are dropped. Slots without tasks are free at once, and no notification is sent: the next
    registration reports all slots.
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
