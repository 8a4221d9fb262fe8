"""Submits the Executions of a job into its slots, follows their states, and cancels them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ...pipelines.graph.accumulators import bounded
from ...schemas import job_master, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.states import EXECUTION_ENDS
from ...schemas.types import ExecutionState, JobStatus
from ..core.role import (
    TASK_EXECUTOR,
    IllegalEvent,
    OutgoingEvent,
    Step,
    Time,
    address,
    derive_id,
    instance_of,
)
from . import execution_states, executions, failover, scheduling, termination
from .checkpoints import notifications
from .job_status import ACTIVE
from .state import DeploymentKey, Execution, Handshake, JobMasterState

# Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md): these are asked for all the time.
_SCHEDULED: Final = ExecutionState.SCHEDULED
_DEPLOYING: Final = ExecutionState.DEPLOYING
_INITIALIZING: Final = ExecutionState.INITIALIZING
_RUNNING: Final = ExecutionState.RUNNING
_FINISHED: Final = ExecutionState.FINISHED
_CANCELING: Final = ExecutionState.CANCELING
_CREATED: Final = JobStatus.CREATED


def on_submit_task(state: JobMasterState, record: Record, body: task_executor.SubmitTask) -> JobMasterState:
    execution = state.executions.get(body.execution_attempt_id)
    if execution is None:
        return state
    resource_id, cause = instance_of(record.header.recipient), record.offset
    if execution.execution_attempt_id in state.submissions.ready:
        allocation_id, expected = scheduling.slot_of(state, execution)
        as_expected = allocation_id == body.allocation_id
        state = scheduling.unmark_ready(state, execution, expected, submitted=as_expected)
    if execution.state is not _SCHEDULED:
        return state
    tree = state.sharing.trees.get(state.topology.slot_of(execution.vertex))
    if tree is None or not tree.resolved or tree.allocation_id != body.allocation_id:
        # The slot was lost while this was on its way: nobody runs this attempt.
        there = replace(execution, allocation_id=body.allocation_id, resource_id=resource_id)
        state = executions.transition(state, there, ExecutionState.FAILED, cause)
        return _cancel_misplaced(state, there, cause)
    there = replace(
        execution,
        allocation_id=body.allocation_id,
        resource_id=resource_id,
        state=execution_states.check_transition(execution.state, _DEPLOYING),
        cause=cause,
    )
    counts = replace(
        state.counts, scheduled=state.counts.scheduled - 1, unfinished=state.counts.unfinished + 1
    )
    state = replace(state, executions=state.executions.set(there.execution_attempt_id, there), counts=counts)
    if state.status not in ACTIVE or state.checkpoints.restoring is not None:
        # The job was cancelled or failed, or is to go back to a checkpoint, since this was decided.
        return _request_cancel(state, there.execution_attempt_id, cause)
    state = notifications.started_attempts(
        state, there.execution_attempt_id, resource_id, body.restore, cause
    )
    if state.status is _CREATED and counts.scheduled == 0:
        return termination.with_status(state, JobStatus.RUNNING, cause)
    return state


def _cancel_misplaced(state: JobMasterState, execution: Execution, cause: int) -> JobMasterState:
    if state.current.get(execution.vertex) != execution.execution_attempt_id:
        return state
    state = executions.retry_execution(state, execution.vertex, cause)
    slot = state.topology.slot_of(execution.vertex)
    tree = state.sharing.trees.get(slot)
    return scheduling.assign_slots(state, [slot], cause) if tree is not None and tree.resolved else state


def on_update_task_execution_state(
    state: JobMasterState, record: Record, body: job_master.UpdateTaskExecutionState
) -> JobMasterState:
    attempt, to, cause = body.execution_attempt_id, body.execution_state, record.offset
    execution = state.executions.get(attempt)
    if execution is None:
        why = "the job has ended, and with it" if state.terminated is not None else "there is no"
        raise IllegalEvent(record, state.status.value, f"{why} Execution {attempt}")
    before = execution.state
    if before is _CANCELING and to in execution_states.TOO_LATE:
        return state
    if to not in execution_states.REPORTED[before]:
        why = "has ended" if before in EXECUTION_ENDS else f"can't become {to.value}"
        raise IllegalEvent(record, before.value, f"Execution {attempt} {why}")
    state = _update_counts(executions.transition(state, execution, to, cause), execution, body)
    if to is _RUNNING:
        return (
            scheduling.on_first_output(state, execution.vertex_id, cause) if state.status in ACTIVE else state
        )
    if to is _FINISHED:
        return _finish_execution(state, execution, record)
    if to is _INITIALIZING:
        return failover.on_restart(state, cause) if before is _RUNNING else state
    match to:
        case ExecutionState.FAILED:
            why = body.failure or "no reason given"
            return failover.fail_tasks(state, [execution], why, record, progress_lost=body.progress_lost)
        case ExecutionState.CANCELED:
            # It stood still behind its part of a savepoint, and its TaskExecutor has begun anew since: no failure.
            stood_still = state.checkpoints.is_frozen_by_stop(attempt)
            why = "cancelled, though it was to run"
            return failover.fail_tasks(state, [execution], why, record, counts=not stood_still)
        case _:
            return state


def _update_counts(
    state: JobMasterState, execution: Execution, body: job_master.UpdateTaskExecutionState
) -> JobMasterState:
    """What an attempt says that it has counted holds for its ExecutionVertex: it went on from the one before it."""
    if not body.accumulators or body.execution_state not in EXECUTION_ENDS:
        return state
    before = state.accumulators.get(execution.vertex, {})
    counts = bounded({**before, **body.accumulators})
    return replace(state, accumulators=state.accumulators.set(execution.vertex, counts))


def _finish_execution(state: JobMasterState, execution: Execution, record: Record) -> JobMasterState:
    cause = record.offset
    if state.status not in ACTIVE:
        return termination.finish_if_done(state, cause)
    slot = state.topology.slot_of(execution.vertex)
    tree = state.sharing.trees.get(slot)
    sharing, slots = state.sharing.release(slot, execution.vertex_id), state.slots
    if tree is not None and slot not in sharing.trees:
        free_at = record.header.time + state.options.slot_idle_timeout
        slots = slots.available(tree.allocation_id, free_at, cause)
    state = replace(state, sharing=sharing, slots=slots)
    return termination.finish_if_done(scheduling.on_first_output(state, execution.vertex_id, cause), cause)


def on_tasks_contradicted(
    state: JobMasterState, record: Record, body: job_master.TasksContradicted
) -> JobMasterState:
    missing = []
    for attempt in body.execution_attempt_ids:
        execution = state.executions.get(attempt)
        if (
            execution is None
            or execution.state not in execution_states.DEPLOYED
            or execution.resource_id != body.resource_id
        ):
            continue
        state = executions.transition(state, execution, ExecutionState.FAILED, record.offset)
        # Should it run after all, it must not go on beside the next attempt.
        state = _request_cancel(state, attempt, record.offset)
        missing.append(execution)
    return failover.fail_tasks(state, missing, body.reason, record)


def on_cancel_task(state: JobMasterState, record: Record, body: task_executor.CancelTask) -> JobMasterState:
    attempt, submissions = body.execution_attempt_id, state.submissions
    if attempt in submissions.cancellations:
        left = replace(submissions, cancellations=submissions.cancellations.delete(attempt))
        state = replace(state, submissions=left)
    execution = state.executions.get(attempt)
    if execution is None or ExecutionState.CANCELING not in execution_states.NEXT[execution.state]:
        return state
    return executions.transition(state, execution, ExecutionState.CANCELING, record.offset)


def _request_cancel(state: JobMasterState, attempt: str, cause: int) -> JobMasterState:
    submissions = state.submissions
    owed = replace(submissions, cancellations=submissions.cancellations.set(attempt, cause))
    return replace(state, submissions=owed)


def submit_events(state: JobMasterState, now: Time) -> list[OutgoingEvent]:
    """SubmitTask for every Execution whose slot is there and whose time has come; sources first."""
    if not _may_submit(state):
        return []
    ready = [
        (cause, executions.executions_in_order(state, state.executions[attempt]), attempt)
        for attempt, cause in state.submissions.ready.due(now)
    ]
    ids: dict[DeploymentKey, tuple[str, int]] = {}
    owed = []
    for cause, _, attempt in sorted(ready):
        execution = state.executions[attempt]
        allocation_id, resource_id = scheduling.slot_of(state, execution)
        key = (execution.vertex_id, resource_id, cause)
        if key not in ids:
            ids[key] = (
                derive_id(state.job_id, "deployment", *key),
                state.submissions.deployments[key].size,
            )
        deployment_id, size = ids[key]
        body = task_executor.SubmitTask(
            job_id=state.job_id,
            vertex_id=execution.vertex_id,
            subtask_index=execution.subtask_index,
            attempt_number=execution.attempt_number,
            execution_attempt_id=attempt,
            allocation_id=allocation_id,
            deployment_id=deployment_id,
            deployment_size=size,
            generation=state.generation,
            restore=state.checkpoints.latest,
            finished=execution.vertex in state.checkpoints.finished,
            checkpoints_over=state.checkpoints.counter,
        )
        owed.append(OutgoingEvent(address(TASK_EXECUTOR, resource_id), body, cause))
    return owed


def cancel_events(state: JobMasterState) -> list[OutgoingEvent]:
    """CancelTask for every Execution that is to end."""
    owed = []
    for attempt, cause in sorted(
        state.submissions.cancellations.items(), key=lambda pair: (pair[1], pair[0])
    ):
        resource_id = state.executions[attempt].resource_id or ""
        body = task_executor.CancelTask(job_id=state.job_id, execution_attempt_id=attempt)
        owed.append(OutgoingEvent(address(TASK_EXECUTOR, resource_id), body, cause))
    return owed


def deadline(state: JobMasterState) -> Time | None:
    """When a task is to be submitted."""
    return state.submissions.ready.earliest if _may_submit(state) else None


def _may_submit(state: JobMasterState) -> bool:
    return state.channels is Handshake.DONE and not state.checkpoints.stop_is_acknowledged


STEPS: Mapping[type[Body], Step[JobMasterState]] = {
    job_master.UpdateTaskExecutionState: on_update_task_execution_state,
    job_master.TasksContradicted: on_tasks_contradicted,
    task_executor.SubmitTask: on_submit_task,
    task_executor.CancelTask: on_cancel_task,
}
