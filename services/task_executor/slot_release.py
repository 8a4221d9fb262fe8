"""Releases tasks and slots: a slot is free when its last task has ended."""

from __future__ import annotations

from msgspec.structs import replace

from ...schemas.types import ExecutionState
from ..core.outbox import Outbox, owe
from ..core.owed_events import OwedFailSlot
from .owed_events import OwedDisconnectTaskManager, OwedNotifySlotAvailable, TaskExecutorEvent
from .resources import Task
from .state import TaskExecutorState, connect


def cancel_task(state: TaskExecutorState, execution_attempt_id: str, cause: int) -> TaskExecutorState:
    """Cancels a task. A task that has ended, or is ending, is unchanged."""
    task = state.tasks.get(execution_attempt_id)
    if task is None or task.state is ExecutionState.CANCELING:
        return state
    return replace(
        withdraw_task(state, task),
        tasks=state.tasks.set(execution_attempt_id, replace(task, state=ExecutionState.CANCELING)),
        stopping=state.stopping.set(execution_attempt_id, cause),
    )


def withdraw_task(state: TaskExecutorState, task: Task) -> TaskExecutorState:
    """Removes a task that has ended, or is about to end, from its deployment."""
    connection = state.jobs.get(task.job_id)
    running = None if connection is None else connection.deployments.get(task.deployment_id)
    if connection is None or running is None or task.execution_attempt_id not in running:
        return state
    left = running - {task.execution_attempt_id}
    deployments = connection.deployments
    deployments = (
        deployments.set(task.deployment_id, left) if left else deployments.delete(task.deployment_id)
    )
    return replace(state, jobs=state.jobs.set(task.job_id, replace(connection, deployments=deployments)))


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
    state = owe(state, OwedFailSlot(cause, allocation_id, slot.job_id or "", reason))
    return release_slot(state, allocation_id, cause)


def free_if_empty(state: TaskExecutorState, allocation_id: str, cause: int) -> TaskExecutorState:
    """Frees a slot in RELEASING that has no task left."""
    slot = state.slots.by_allocation(allocation_id)
    slots = state.slots.free_if_empty(allocation_id)
    if slot is None or slots is state.slots:
        return state
    state = owe(replace(state, slots=slots), OwedNotifySlotAvailable(cause, allocation_id, slot.number))
    connection = state.jobs.get(slot.job_id or "")
    return state if connection is None else connect(state, replace(connection, cause=cause))


def reset_all(state: TaskExecutorState, cause: int) -> TaskExecutorState:
    """Ends all tasks and frees all slots: no other role relies on this TaskExecutor any more.

    Pending answers are dropped, but a TaskExecutor that has to leave still disconnects. Slots without tasks are free at
    once, and no notification is sent: the next registration reports all slots.
    """
    left = [event for event in state.outbox if isinstance(event, OwedDisconnectTaskManager)]
    state = TaskExecutorState(
        resource_id=state.resource_id,
        registration=state.registration,
        slots=state.slots,
        slots_changed=state.slots_changed,
        task_failures=state.task_failures,
        tasks=state.tasks,
        leaving=state.leaving,
        left=state.left,
        stopping=state.stopping,
        outbox=Outbox[TaskExecutorEvent]().owe_all(left),
    )
    for attempt in sorted(state.tasks):
        state = cancel_task(state, attempt, cause)
    slots = state.slots
    for allocation_id in sorted(slots.allocated):
        slots = slots.release(allocation_id).free_if_empty(allocation_id)
    return replace(state, slots=slots)
