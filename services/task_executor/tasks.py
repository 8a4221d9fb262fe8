"""The tasks of a TaskExecutor: submitted, acknowledged, and followed to their end.

Ended tasks are forgotten. For each subtask only its last attempt number is kept while the job is connected, so that a
repeated SubmitTask runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map
from msgspec.structs import replace

from ...schemas import job_master, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.states import EXECUTION_ENDS, EXECUTION_TRANSITIONS
from ...schemas.types import ExecutionState
from ..core.immutable_maps import delete_key
from ..core.role import JOB_MASTER, IllegalEvent, OutgoingEvent, Step, address
from . import checkpoints
from .instructions import RunTasks
from .resources import Task
from .slot_release import cancel_task, free_if_empty, withdraw_task
from .state import Failure, TaskExecutorState
from .task_failures import record_failure


def on_submit_task(
    state: TaskExecutorState, record: Record, body: task_executor.SubmitTask
) -> TaskExecutorState:
    connection = state.jobs.get(body.job_id)
    known = connection.attempts if connection is not None else _NO_ATTEMPTS
    slots, submitted, refused, attempts = state.slots, {}, state.refused, {}
    for subtask in body.subtasks:
        attempt, key = subtask.execution_attempt_id, (body.vertex_id, subtask.subtask_index)
        if attempt in state.tasks or subtask.attempt_number <= known.get(key, -1):
            # It was submitted before; it may have ended since.
            continue
        attempts[key] = subtask.attempt_number
        slot = slots.by_allocation(subtask.allocation_id)
        is_of_job = slot is not None and slot.job_id == body.job_id
        taken = slots.add_task(subtask.allocation_id, attempt) if is_of_job else None
        if taken is None:
            reason = (
                f"its slot is not held under allocation {subtask.allocation_id} on TaskExecutor {state.resource_id}"
                " (any more)"
            )
            refused = refused.set(attempt, Failure(body.job_id, reason, record.offset))
            continue
        slots = taken
        submitted[attempt] = Task(
            execution_attempt_id=attempt,
            job_id=body.job_id,
            vertex_id=body.vertex_id,
            subtask_index=subtask.subtask_index,
            attempt_number=subtask.attempt_number,
            allocation_id=subtask.allocation_id,
            deployment_id=body.deployment_id,
            cause=record.offset,
            generation=body.generation,
            restore=body.restore,
            finished=subtask.finished,
            checkpoints_over=body.checkpoints_over,
            slot_tasks=subtask.slot_tasks,
            offset_resets=body.offset_resets,
        )
    if not attempts:
        return state
    if connection is not None:
        connection = replace(connection, attempts=connection.attempts.update(attempts))
        if submitted:
            running = connection.deployments.set(body.deployment_id, frozenset(submitted))
            connection = replace(connection, deployments=running)
        state = replace(state, jobs=state.jobs.set(body.job_id, connection))
    return replace(
        state,
        slots=slots,
        tasks=state.tasks.update(submitted),
        unacknowledged=state.unacknowledged.update(dict.fromkeys(submitted, record.offset)),
        refused=refused,
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
            # The task had not received its cancellation yet.
            return state
        raise IllegalEvent(record, task.state.value, f"Execution {attempt} can't become {to.value}")
    if to is ExecutionState.CANCELING:
        return cancel_task(state, attempt, record.offset)
    if to not in EXECUTION_ENDS:
        return replace(state, tasks=state.tasks.set(attempt, replace(task, state=to)))
    if to is ExecutionState.FAILED:
        state = record_failure(state, task, record, body.failure)
    return _end_task(state, task, record.offset)


def _end_task(state: TaskExecutorState, task: Task, cause: int) -> TaskExecutorState:
    attempt = task.execution_attempt_id
    state = checkpoints.forget_task(withdraw_task(state, task), task.job_id, attempt)
    stopping, unacknowledged = state.stopping, state.unacknowledged
    state = replace(
        state,
        slots=state.slots.remove_task(task.allocation_id, attempt),
        tasks=state.tasks.delete(attempt),
        stopping=delete_key(stopping, attempt),
        unacknowledged=delete_key(unacknowledged, attempt),
    )
    return free_if_empty(state, task.allocation_id, cause)


def run_instructions(state: TaskExecutorState) -> list[RunTasks]:
    """Returns RunTasks for each deployment with tasks to run, in the order of the submissions."""
    found = []
    for connection in state.jobs.values():
        if connection.graph is None:
            continue
        for deployment_id, attempts in connection.deployments.items():
            task = state.tasks[next(iter(attempts))]
            run = RunTasks(
                deployment_id, task.job_id, connection.graph, task.vertex_id, attempts, state.tasks
            )
            found.append((task.cause, run))
    return [run for _, run in sorted(found, key=lambda pair: pair[0])]


def acknowledge_events(state: TaskExecutorState) -> list[OutgoingEvent]:
    """Returns TaskAcknowledged, in the order of the submissions."""
    return [
        OutgoingEvent(
            address(JOB_MASTER, state.tasks[attempt].job_id),
            job_master.TaskAcknowledged(execution_attempt_id=attempt),
            cause,
        )
        for attempt, cause in sorted(state.unacknowledged.items(), key=lambda pair: (pair[1], pair[0]))
    ]


def rejection_events(state: TaskExecutorState) -> list[OutgoingEvent]:
    """Returns UpdateTaskExecutionState(FAILED) for each submitted task that cannot run."""
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


_NO_ATTEMPTS: Map[tuple[str, int], int] = Map()

STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.SubmitTask: on_submit_task,
    task_executor.CancelTask: on_cancel_task,
    job_master.TaskAcknowledged: on_task_acknowledged,
    job_master.UpdateTaskExecutionState: on_update_task_execution_state,
}
