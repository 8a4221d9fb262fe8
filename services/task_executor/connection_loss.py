"""Lost connections of a TaskExecutor: a silent master, and the TaskExecutor's own loss.

Tasks never stop because a master is silent: only the log decides. They stop when the log says that this TaskExecutor is
lost: others have taken over its tasks, and it registers again.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas import everyone, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.outbox import owe
from ..core.owed_events import OwedFailSlot
from ..core.role import JOB_MASTER, RESOURCE_MANAGER, Step, instance_of, kind_of
from .job_connections import reconnect
from .registration import register_again
from .slot_release import reset_all, revoke_slot
from .state import TaskExecutorState
from .task_slot_table import TaskSlotState


def on_task_executor_lost(
    state: TaskExecutorState, record: Record, body: everyone.TaskExecutorLost
) -> TaskExecutorState:
    if body.resource_id != state.resource_id or state.left:
        return state
    # It applies to any registration: all readers drop their state of this TaskExecutor at this offset of the log.
    return register_again(reset_all(state, record.offset), record.offset)


def on_heartbeat_timed_out(
    state: TaskExecutorState, record: Record, body: task_executor.HeartbeatTimedOut
) -> TaskExecutorState:
    # A master that has not answered yet is not asked again: its successor finds the event in the log.
    if body.peer == RESOURCE_MANAGER:
        registration = state.registration
        known = registration is not None and registration.instance_id is not None
        return register_again(state, record.offset) if known else state
    connection = state.jobs.get(instance_of(body.peer)) if kind_of(body.peer) == JOB_MASTER else None
    if connection is None or not connection.answered:
        return state
    return reconnect(state, connection, record.offset)


def on_allocated_slots_contradicted(
    state: TaskExecutorState, record: Record, body: task_executor.AllocatedSlotsContradicted
) -> TaskExecutorState:
    for allocation_id in body.surplus:
        slot = state.slots.by_allocation(allocation_id)
        if slot is not None and slot.job_id == body.job_id and slot.state is TaskSlotState.ACTIVE:
            reason = f"job {body.job_id} does not hold it"
            state = revoke_slot(state, allocation_id, reason, record.offset)
    for allocation_id in body.missing:
        slot = state.slots.by_allocation(allocation_id)
        if slot is None or slot.job_id != body.job_id or not slot.held:
            reason = f"TaskExecutor {state.resource_id} does not hold it"
            state = owe(state, OwedFailSlot(record.offset, allocation_id, body.job_id, reason))
    return state


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    everyone.TaskExecutorLost: on_task_executor_lost,
    task_executor.HeartbeatTimedOut: on_heartbeat_timed_out,
    task_executor.AllocatedSlotsContradicted: on_allocated_slots_contradicted,
}
