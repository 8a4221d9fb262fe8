"""The tasks of a TaskExecutor: submitted, acknowledged, followed to their end.

Ended tasks are forgotten. For each subtask only its last attempt number is kept while the job is connected, so that a
repeated SubmitTask runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.states import EXECUTION_ENDS, EXECUTION_TRANSITIONS
from ...schemas.types import ExecutionState
from ..core.immutable_maps import delete_key
from ..core.role import JOB_MASTER, IllegalEvent, OutgoingEvent, Step, address
from . import checkpoints, deployment_batches
from .slot_release import cancel_task, free_if_empty
from .state import (
    Failure,
    Task,
    TaskExecutorState,
)


def on_submit_task(
    state: TaskExecutorState, record: Record, body: task_executor.SubmitTask
) -> TaskExecutorState:
    attempt = body.execution_attempt_id
    connection = state.jobs.get(body.job_id)
    if attempt in state.tasks or (connection is not None and deployment_batches.is_known(connection, body)):
        return state
    fault = _find_error(state, body)
    state = deployment_batches.add_task(state, record, body, runnable=fault is None)
    slots = state.slots.add_task(body.allocation_id, attempt) if fault is None else None
    if slots is None:
        refusal = Failure(body.job_id, fault or "", record.offset)
        return replace(state, refused=state.refused.set(attempt, refusal))
    task = Task(
        execution_attempt_id=attempt,
        job_id=body.job_id,
        vertex_id=body.vertex_id,
        subtask_index=body.subtask_index,
        attempt_number=body.attempt_number,
        allocation_id=body.allocation_id,
        deployment_id=body.deployment_id,
        cause=record.offset,
        generation=body.generation,
        restore=body.restore,
        finished=body.finished,
        checkpoints_over=body.checkpoints_over,
    )
    return replace(
        state,
        slots=slots,
        tasks=state.tasks.set(attempt, task),
        unacknowledged=state.unacknowledged.set(attempt, record.offset),
    )


def _find_error(state: TaskExecutorState, body: task_executor.SubmitTask) -> str | None:
    """Why the task can't run here; None if it can."""
    slot = state.slots.by_allocation(body.allocation_id)
    if slot is not None and slot.job_id == body.job_id and slot.held:
        return None
    return (
        f"its slot is not held under allocation {body.allocation_id} on TaskExecutor {state.resource_id}"
        " (any more)"
    )


def on_cancel_task(
    state: TaskExecutorState, record: Record, body: task_executor.CancelTask
) -> TaskExecutorState:
    return cancel_task(state, body.execution_attempt_id, record.offset)


def on_task_acknowledged(
    state: TaskExecutorState, _record: Record, body: job_master.TaskAcknowledged
) -> TaskExecutorState:
    if body.execution_attempt_id not in state.unacknowledged:
        return state
    return replace(state, unacknowledged=state.unacknowledged.delete(body.execution_attempt_id))


def on_update_task_execution_state(
    state: TaskExecutorState, record: Record, body: job_master.UpdateTaskExecutionState
) -> TaskExecutorState:
    attempt, to = body.execution_attempt_id, body.execution_state
    task = state.tasks.get(attempt)
    if task is None:
        refused = state.refused
        return state if attempt not in refused else replace(state, refused=refused.delete(attempt))
    if to is task.state:
        return state
    if to not in EXECUTION_TRANSITIONS[task.state]:
        if task.state is ExecutionState.CANCELING:
            # The task had not heard of its cancellation yet.
            return state
        raise IllegalEvent(record, task.state.value, f"Execution {attempt} can't become {to.value}")
    if to is ExecutionState.CANCELING:
        return cancel_task(state, attempt, record.offset)
    if to not in EXECUTION_ENDS:
        return replace(state, tasks=state.tasks.set(attempt, replace(task, state=to)))
    return _end_task(state, task, record.offset)


def _end_task(state: TaskExecutorState, task: Task, cause: int) -> TaskExecutorState:
    attempt = task.execution_attempt_id
    state = checkpoints.forget_task(deployment_batches.remove_task(state, task), task.job_id, attempt)
    stopping, unacknowledged = state.stopping, state.unacknowledged
    state = replace(
        state,
        slots=state.slots.remove_task(task.allocation_id, attempt),
        tasks=state.tasks.delete(attempt),
        stopping=delete_key(stopping, attempt),
        unacknowledged=delete_key(unacknowledged, attempt),
    )
    return free_if_empty(state, task.allocation_id, cause)


def acknowledge_events(state: TaskExecutorState) -> list[OutgoingEvent]:
    """TaskAcknowledged, in the order of the submissions."""
    return [
        OutgoingEvent(
            address(JOB_MASTER, state.tasks[attempt].job_id),
            job_master.TaskAcknowledged(execution_attempt_id=attempt),
            cause,
        )
        for attempt, cause in sorted(state.unacknowledged.items(), key=lambda pair: (pair[1], pair[0]))
    ]


def rejection_events(state: TaskExecutorState) -> list[OutgoingEvent]:
    """UpdateTaskExecutionState(FAILED) for each submitted task that can't run."""
    return [
        OutgoingEvent(
            address(JOB_MASTER, refusal.job_id),
            job_master.UpdateTaskExecutionState(
                job_id=refusal.job_id,
                execution_attempt_id=attempt,
                execution_state=ExecutionState.FAILED,
                failure=refusal.reason,
            ),
            refusal.cause,
        )
        for attempt, refusal in sorted(state.refused.items(), key=lambda pair: (pair[1].cause, pair[0]))
    ]


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.SubmitTask: on_submit_task,
    task_executor.CancelTask: on_cancel_task,
    job_master.TaskAcknowledged: on_task_acknowledged,
    job_master.UpdateTaskExecutionState: on_update_task_execution_state,
}
