"""The tasks of a TaskExecutor: submitted, acknowledged, followed to their end."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.states import EXECUTION_ENDS
from ..roles import (
    JOB_MASTER,
    IllegalEvent,
    Owed,
    Step,
    address,
)
from .release import cancel, vacate
from .state import (
    Task,
    TaskExecutorState,
)


def _task_submitted(
    state: TaskExecutorState, record: Record, body: task_executor.SubmitTask
) -> TaskExecutorState:
    if body.execution_attempt_id in state.tasks:
        return state
    slots = state.slots.add_task(body.allocation_id, body.execution_attempt_id)
    if slots is None:
        raise IllegalEvent(record, "slot not held", f"allocation {body.allocation_id} holds no slot here")
    task = Task(
        execution_attempt_id=body.execution_attempt_id,
        job_id=body.job_id,
        vertex_id=body.vertex_id,
        subtask_index=body.subtask_index,
        attempt_number=body.attempt_number,
        allocation_id=body.allocation_id,
        deployment_id=body.deployment_id,
        deployment_size=body.deployment_size,
        cause=record.offset,
    )
    return replace(
        state,
        slots=slots,
        tasks=state.tasks.set(task.execution_attempt_id, task),
        unacknowledged=state.unacknowledged.set(task.execution_attempt_id, record.offset),
    )


def _cancel_asked(
    state: TaskExecutorState, record: Record, body: task_executor.CancelTask
) -> TaskExecutorState:
    return cancel(state, body.execution_attempt_id, record.offset)


def _acknowledged(
    state: TaskExecutorState, _record: Record, body: job_master.TaskAcknowledged
) -> TaskExecutorState:
    if body.execution_attempt_id not in state.unacknowledged:
        return state
    return replace(state, unacknowledged=state.unacknowledged.delete(body.execution_attempt_id))


def _task_changed(
    state: TaskExecutorState, record: Record, body: job_master.UpdateTaskExecutionState
) -> TaskExecutorState:
    execution_attempt_id, to = body.execution_attempt_id, body.execution_state
    task = state.tasks.get(execution_attempt_id)
    if task is None:
        return state
    if task.state in EXECUTION_ENDS:
        raise IllegalEvent(record, task.state.value, f"Execution {execution_attempt_id} has ended")
    state = replace(state, tasks=state.tasks.set(execution_attempt_id, replace(task, state=to)))
    if to not in EXECUTION_ENDS:
        return state
    state = replace(state, slots=state.slots.remove_task(task.allocation_id, execution_attempt_id))
    return vacate(state, task.allocation_id, record.offset)


def unfinished(state: TaskExecutorState) -> bool:
    """Whether a task has not ended."""
    return any(task.state not in EXECUTION_ENDS for task in state.tasks.values())


def acknowledgements(state: TaskExecutorState) -> list[Owed]:
    """TaskAcknowledged, in the order of the submissions."""
    owed = []
    for attempt, cause in sorted(state.unacknowledged.items(), key=lambda pair: (pair[1], pair[0])):
        task = state.tasks.get(attempt)
        if task is not None:
            body = job_master.TaskAcknowledged(execution_attempt_id=attempt)
            owed.append(Owed(address(JOB_MASTER, task.job_id), body, cause))
    return owed


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.SubmitTask: _task_submitted,
    task_executor.CancelTask: _cancel_asked,
    job_master.TaskAcknowledged: _acknowledged,
    job_master.UpdateTaskExecutionState: _task_changed,
}
