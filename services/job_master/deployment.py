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
from ...schemas.types import ExecutionState, TaskDeploymentDescriptor
from ..core.outbox import remove_owed
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
from . import execution_states, executions, failover, offset_resets, scheduling, slot_moves
from .checkpoints import notifications, stop_with_savepoint
from .checkpoints.stop_phase import UNDECIDED
from .job_status import ACTIVE
from .owed_events import OwedCancelTask, OwedSubmitTask
from .state import ChannelsState, Execution, StartedJob
from .topology import SlotKey

# Cached members: Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md), and these are
# needed often.
_SCHEDULED: Final = ExecutionState.SCHEDULED
_DEPLOYING: Final = ExecutionState.DEPLOYING
_INITIALIZING: Final = ExecutionState.INITIALIZING
_RUNNING: Final = ExecutionState.RUNNING
_FINISHED: Final = ExecutionState.FINISHED
_FAILED: Final = ExecutionState.FAILED
_CANCELING: Final = ExecutionState.CANCELING

MAX_SUBTASKS_PER_DEPLOYMENT: Final = 1_000
"""The limit of one SubmitTask: about 80 bytes each."""


def on_submit_task(state: StartedJob, record: Record, body: task_executor.SubmitTask) -> StartedJob:
    for subtask in body.subtasks:
        state = _on_submitted(state, record, body, subtask)
    return state


def _on_submitted(
    state: StartedJob,
    record: Record,
    body: task_executor.SubmitTask,
    subtask: TaskDeploymentDescriptor,
) -> StartedJob:
    execution = state.executions.get(subtask.execution_attempt_id)
    if execution is None:
        return state
    resource_id, cause = instance_of(record.header.recipient), record.offset
    state = replace(state, ready=state.ready.remove(OwedSubmitTask, execution.execution_attempt_id))
    if execution.state is not _SCHEDULED:
        return state
    tree = state.sharing.trees.get(state.topology.slot_of(execution.vertex))
    if tree is None or not tree.resolved or tree.allocation_id != subtask.allocation_id:
        # The slot was lost before the event was in the log: nobody runs this attempt.
        there = replace(execution, allocation_id=subtask.allocation_id, resource_id=resource_id)
        state = executions.transition(state, there, ExecutionState.FAILED, cause)
        return _cancel_misplaced(state, there, cause)
    there = replace(
        execution,
        allocation_id=subtask.allocation_id,
        resource_id=resource_id,
        since=record.header.time,
        state=execution_states.check_transition(execution.state, _DEPLOYING),
        cause=cause,
    )
    counts = replace(
        state.counts, scheduled=state.counts.scheduled - 1, unfinished=state.counts.unfinished + 1
    )
    state = replace(state, executions=state.executions.set(there.execution_attempt_id, there), counts=counts)
    if state.status not in ACTIVE or state.checkpoints.restoring is not None:
        # Since this decision, the job was cancelled or has failed, or rolls back to a checkpoint.
        return executions.request_cancel(state, there, cause)
    return notifications.started_attempts(state, there.execution_attempt_id, resource_id, body.restore, cause)


def _cancel_misplaced(state: StartedJob, execution: Execution, cause: int) -> StartedJob:
    if state.current_attempts.get(execution.vertex) != execution.execution_attempt_id:
        return state
    state = executions.retry_execution(state, execution.vertex, cause)
    slot = state.topology.slot_of(execution.vertex)
    tree = state.sharing.trees.get(slot)
    return scheduling.assign_slots(state, [slot], cause) if tree is not None and tree.resolved else state


def on_update_task_execution_state(
    state: StartedJob, record: Record, body: job_master.UpdateTaskExecutionState
) -> StartedJob:
    attempt, to, cause = body.execution_attempt_id, body.execution_state, record.offset
    execution = state.executions.get(attempt)
    if execution is None:
        raise IllegalEvent(record, state.status.value, f"there is no Execution {attempt}")
    before = execution.state
    if before is _CANCELING and to in execution_states.TOO_LATE:
        return state
    if before is _FAILED and state.options.has_slot_processes:
        return _on_late_report(state, execution, body)
    if to not in execution_states.REPORTED[before]:
        why = "has ended" if before in EXECUTION_ENDS else f"can't become {to.value}"
        raise IllegalEvent(record, before.value, f"Execution {attempt} {why}")
    decided_at = record.header.decided_at
    if before is _RUNNING and to is _INITIALIZING and decided_at is not None and decided_at < execution.cause:
        # A process that starts the task again has read that it ran: this is an earlier report, for a second time.
        raise IllegalEvent(record, before.value, f"Execution {attempt} has run since")
    state = _update_counts(executions.transition(state, execution, to, cause), execution, body)
    if to is _RUNNING:
        return (
            scheduling.on_first_output(state, execution.vertex_id, cause) if state.status in ACTIVE else state
        )
    if to is _FINISHED:
        return _finish_execution(state, execution, record)
    if to is _INITIALIZING:
        return stop_with_savepoint.on_task_restarted(state, cause) if before is _RUNNING else state
    match to:
        case ExecutionState.FAILED:
            why = body.failure or "no reason given"
            return failover.fail_tasks(state, [execution], why, record, progress_lost=body.progress_lost)
        case ExecutionState.CANCELED:
            # It was frozen after its part of a savepoint, and its TaskExecutor has restarted since: no failure.
            stood_still = state.checkpoints.is_frozen_by_stop(attempt)
            why = "cancelled, though it was to run"
            return failover.fail_tasks(state, [execution], why, record, counts=not stood_still)
        case _:
            return state


def _on_late_report(
    state: StartedJob, execution: Execution, body: job_master.UpdateTaskExecutionState
) -> StartedJob:
    """Handles a report about a task that has failed with another one of its process, whose report came first."""
    if body.execution_state in EXECUTION_ENDS:
        state = remove_owed(state, OwedCancelTask, execution.execution_attempt_id)
    current = state.executions[state.current_attempts[execution.vertex]]
    is_last_count = current is execution or current.state not in EXECUTION_ENDS
    # A rollback since then has reset the counts.
    is_of_generation = execution.cause >= state.start_offset
    return _update_counts(state, execution, body) if is_last_count and is_of_generation else state


def _update_counts(
    state: StartedJob, execution: Execution, body: job_master.UpdateTaskExecutionState
) -> StartedJob:
    """Applies the counts of an attempt to its ExecutionVertex: each attempt continues the counts of the previous
    one."""
    if not body.accumulators or body.execution_state not in EXECUTION_ENDS:
        return state
    before = state.accumulators.get(execution.vertex, {})
    counts = bounded({**before, **body.accumulators})
    return replace(state, accumulators=state.accumulators.set(execution.vertex, counts))


def _finish_execution(state: StartedJob, execution: Execution, record: Record) -> StartedJob:
    cause = record.offset
    finished = state.executions[execution.execution_attempt_id]
    finished = replace(finished, duration=record.header.time - finished.since)
    state = replace(state, executions=state.executions.set(finished.execution_attempt_id, finished))
    if state.status not in ACTIVE:
        return state
    slot = state.topology.slot_of(execution.vertex)
    tree = state.sharing.trees.get(slot)
    sharing = state.sharing.release(slot, execution.vertex_id)
    slots = state.slots
    if tree is not None and slot not in sharing.trees:
        others = [key for key, each in sharing.trees.items() if each.allocation_id == tree.allocation_id]
        if others and state.rescaling.is_adaptive:
            slots = slots.reassign(tree.allocation_id, min(others))
            return scheduling.on_task_finished(
                replace(state, sharing=sharing, slots=slots), execution.vertex_id, cause
            )
        state = slot_moves.cancel_move(state, tree.allocation_id, "its tasks have finished", cause)
        slots = state.slots.available(tree.allocation_id, record.header.time, cause)
    state = replace(state, sharing=sharing, slots=slots)
    return scheduling.on_task_finished(state, execution.vertex_id, cause)


def on_restart_tasks(state: StartedJob, record: Record, body: job_master.RestartTasks) -> StartedJob:
    if state.status not in ACTIVE:
        return state
    current = (state.executions[attempt] for attempt in state.current_attempts.values())
    chosen = [
        execution
        for execution in current
        if body.vertex_id in (None, execution.vertex_id)
        and body.subtask_index in (None, execution.subtask_index)
    ]
    return failover.restart_tasks(state, chosen, record)


def on_tasks_contradicted(
    state: StartedJob, record: Record, body: job_master.TasksContradicted
) -> StartedJob:
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
        # If it runs nevertheless, it must not run beside the next attempt.
        state = executions.request_cancel(state, execution, record.offset)
        missing.append(execution)
    return failover.fail_tasks(state, missing, body.reason, record)


def on_cancel_task(state: StartedJob, record: Record, body: task_executor.CancelTask) -> StartedJob:
    state = remove_owed(state, OwedCancelTask, body.execution_attempt_id)
    execution = state.executions.get(body.execution_attempt_id)
    if execution is None or ExecutionState.CANCELING not in execution_states.NEXT[execution.state]:
        return state
    return executions.transition(state, execution, ExecutionState.CANCELING, record.offset)


def submit_events(state: StartedJob, now: Time) -> list[OutgoingEvent]:
    """Returns SubmitTask for the due Executions with a slot; sources first.

    Executions of one vertex that one event made ready at one TaskExecutor are one deployment, or several if there are
    more than one event may contain. All unfinished tasks of a slot are submitted before any of them runs, so their
    number is the same in all these events, also if a successor appends some of them.
    """
    if not _may_submit(state):
        return []
    ready = [
        (
            owed.cause,
            executions.executions_in_order(state, state.executions[owed.execution_attempt_id]),
            owed.execution_attempt_id,
        )
        for _, owed in state.ready.due(now)
    ]
    together: dict[tuple[int, str, str], list[TaskDeploymentDescriptor]] = {}
    sizes: dict[SlotKey, int] = {}
    for cause, _, attempt in sorted(ready):
        execution = state.executions[attempt]
        allocation_id, resource_id = scheduling.slot_of(state, execution)
        slot = state.topology.slot_of(execution.vertex)
        if slot not in sizes:
            sizes[slot] = scheduling.process_size(state, slot)
        subtask = TaskDeploymentDescriptor(
            subtask_index=execution.subtask_index,
            attempt_number=execution.attempt_number,
            execution_attempt_id=attempt,
            allocation_id=allocation_id,
            finished=execution.vertex in state.checkpoints.finished,
            slot_tasks=sizes[slot],
        )
        together.setdefault((cause, execution.vertex_id, resource_id), []).append(subtask)
    return [
        OutgoingEvent(
            address(TASK_EXECUTOR, resource_id),
            _submit(state, vertex_id, resource_id, subtasks[first : first + MAX_SUBTASKS_PER_DEPLOYMENT]),
            cause,
        )
        for (cause, vertex_id, resource_id), subtasks in together.items()
        for first in range(0, len(subtasks), MAX_SUBTASKS_PER_DEPLOYMENT)
    ]


def _submit(
    state: StartedJob, vertex_id: str, resource_id: str, subtasks: list[TaskDeploymentDescriptor]
) -> task_executor.SubmitTask:
    return task_executor.SubmitTask(
        job_id=state.job_id,
        vertex_id=vertex_id,
        deployment_id=derive_id(state.job_id, "deployment", resource_id, subtasks[0].execution_attempt_id),
        subtasks=tuple(subtasks),
        generation=state.generation,
        restore=state.checkpoints.latest,
        checkpoints_over=state.checkpoints.counter,
        offset_resets=offset_resets.offset_resets_of(state, vertex_id),
    )


def deadline(state: StartedJob) -> Time | None:
    """Returns the time at which a task has to be submitted."""
    return state.ready.earliest if _may_submit(state) else None


def _may_submit(state: StartedJob) -> bool:
    failure = state.pending_failure
    if failure is not None and failure.progress_lost is not None:
        # All tasks roll back, or the job fails: another attempt would be cancelled at once.
        return False
    return state.channels is ChannelsState.CREATED and state.checkpoints.stop not in UNDECIDED


STEPS: Mapping[type[Body], Step[StartedJob]] = {
    job_master.UpdateTaskExecutionState: on_update_task_execution_state,
    job_master.TasksContradicted: on_tasks_contradicted,
    job_master.RestartTasks: on_restart_tasks,
    task_executor.SubmitTask: on_submit_task,
    task_executor.CancelTask: on_cancel_task,
}
