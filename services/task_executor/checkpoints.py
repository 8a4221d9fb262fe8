"""Checkpoints in the tasks of a TaskExecutor: triggered, confirmed and aborted as the JobMasters request.

A triggered task answers with AcknowledgeCheckpoint or DeclineCheckpoint, or it ends. The TaskExecutor declines for a
task that does not run. A restarted process does not know the checkpoints of its predecessor: the JobMaster aborts them
when it reads that the tasks initialize again. A task that has acknowledged a savepoint that stops it is not restarted:
it would continue after the savepoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from immutables import Map
from msgspec.structs import replace

from ...schemas import job_master, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import ExecutionState
from ..core.outbox import remove_owed
from ..core.role import Instruction, Step
from .instructions import AbortTasks, ConfirmTasks, TriggerTasks
from .owed_events import OwedDeclineCheckpoint
from .slot_release import cancel_task
from .state import CheckpointEnd, CheckpointTrigger, TaskExecutorState

_MOST_ENDS = 8
"""The number of checkpoint ends of a job that are kept: the shell may miss this many between two checks."""


def on_trigger_checkpoint(
    state: TaskExecutorState, record: Record, body: task_executor.TriggerCheckpoint
) -> TaskExecutorState:
    runs, outbox = [], state.outbox
    for attempt in body.execution_attempt_ids:
        task = state.tasks.get(attempt)
        if task is not None and task.state is ExecutionState.RUNNING:
            runs.append(attempt)
            continue
        why = "it is unknown here, or has ended" if task is None else f"it is {task.state.value}"
        reason = f"{why}, on TaskExecutor {state.resource_id}"
        outbox = outbox.owe(
            OwedDeclineCheckpoint(record.offset, body.checkpoint_id, attempt, body.job_id, reason)
        )
    triggers = state.triggers
    if runs:
        trigger = CheckpointTrigger(tuple(runs), frozenset(runs), body.timestamp, body.options, record.offset)
        triggers = triggers.set((body.job_id, body.checkpoint_id), trigger)
    return replace(state, triggers=triggers, outbox=outbox)


def on_confirm_checkpoint(
    state: TaskExecutorState, record: Record, body: task_executor.ConfirmCheckpoint
) -> TaskExecutorState:
    tasks = state.tasks
    for attempt in body.execution_attempt_ids if body.restore is not None else ():
        task = tasks.get(attempt)
        if task is not None:
            tasks = tasks.set(attempt, replace(task, restore=body.restore))
    return _end_checkpoint(replace(state, tasks=tasks), record, body, completed=True)


def on_abort_checkpoint(
    state: TaskExecutorState, record: Record, body: task_executor.AbortCheckpoint
) -> TaskExecutorState:
    return _end_checkpoint(state, record, body, completed=False)


def _end_checkpoint(
    state: TaskExecutorState,
    record: Record,
    body: task_executor.ConfirmCheckpoint | task_executor.AbortCheckpoint,
    *,
    completed: bool,
) -> TaskExecutorState:
    triggers, key = state.triggers, (body.job_id, body.checkpoint_id)
    if key in triggers:
        state = replace(state, triggers=triggers.delete(key))
    attempts = tuple(attempt_id for attempt_id in body.execution_attempt_ids if attempt_id in state.tasks)
    if not attempts:
        return state
    tasks = state.tasks
    for attempt in attempts:
        newest = max(tasks[attempt].checkpoints_over, body.checkpoint_id)
        task = replace(tasks[attempt], checkpoints_over=newest)
        if not completed and task.stopped_by_savepoint == body.checkpoint_id:
            task = replace(task, stopped_by_savepoint=None)
        tasks = tasks.set(attempt, task)
    state = replace(state, tasks=tasks)
    end = CheckpointEnd(body.checkpoint_id, attempts, completed, record.offset)
    before = state.checkpoint_ends.get(body.job_id, ())
    ends = state.checkpoint_ends.set(body.job_id, (*before, end)[-_MOST_ENDS:])
    return replace(state, checkpoint_ends=ends)


def on_acknowledge_checkpoint(
    state: TaskExecutorState, _record: Record, body: job_master.AcknowledgeCheckpoint
) -> TaskExecutorState:
    number, tasks = body.checkpoint_id, state.tasks
    for part in body.acknowledgements:
        task = tasks.get(part.execution_attempt_id)
        if task is not None and part.subtask_state.stops and number > task.checkpoints_over:
            tasks = tasks.set(part.execution_attempt_id, replace(task, stopped_by_savepoint=number))
    if tasks is not state.tasks:
        state = replace(state, tasks=tasks)
    attempts = (part.execution_attempt_id for part in body.acknowledgements)
    return _remove_unanswered(state, (body.job_id, number), attempts)


def on_decline_checkpoint(
    state: TaskExecutorState, _record: Record, body: job_master.DeclineCheckpoint
) -> TaskExecutorState:
    state = remove_owed(state, OwedDeclineCheckpoint, body.checkpoint_id, body.execution_attempt_id)
    return _remove_unanswered(state, (body.job_id, body.checkpoint_id), (body.execution_attempt_id,))


def _remove_unanswered(
    state: TaskExecutorState, key: tuple[str, int], attempts: Iterable[str]
) -> TaskExecutorState:
    trigger = state.triggers.get(key)
    left = None if trigger is None else trigger.unanswered.difference(attempts)
    if trigger is None or left == trigger.unanswered:
        return state
    triggers = state.triggers
    triggers = triggers.set(key, replace(trigger, unanswered=left)) if left else triggers.delete(key)
    return replace(state, triggers=triggers)


def forget_task(state: TaskExecutorState, job_id: str, attempt: str) -> TaskExecutorState:
    """Removes a task from all checkpoints."""
    for key in state.triggers:
        if key[0] == job_id:
            state = _remove_unanswered(state, key, (attempt,))
    return state


def forget_job(state: TaskExecutorState, job_id: str) -> TaskExecutorState:
    """Removes all checkpoints of a job."""
    if job_id not in state.checkpoint_ends:
        return state
    return replace(state, checkpoint_ends=state.checkpoint_ends.delete(job_id))


def forget_all(state: TaskExecutorState, cause: int) -> TaskExecutorState:
    """Resets all checkpoints for a new process: its tasks take part in no earlier checkpoint, and tasks that were to
    stop have ended."""
    for attempt, task in sorted(state.tasks.items()):
        if task.stopped_by_savepoint is not None:
            state = cancel_task(state, attempt, cause)
    return replace(state, triggers=Map(), checkpoint_ends=Map())


def instructions(state: TaskExecutorState) -> list[Instruction]:
    """Returns TriggerTasks, ConfirmTasks and AbortTasks, in the order of their causes."""
    found: list[tuple[int, Instruction]] = []
    for (job_id, checkpoint_id), trigger in state.triggers.items():
        instruction = TriggerTasks(
            job_id, checkpoint_id, trigger.attempts, trigger.timestamp, trigger.options, trigger.cause
        )
        found.append((trigger.cause, instruction))
    for job_id, ends in state.checkpoint_ends.items():
        for end in ends:
            kind = ConfirmTasks if end.completed else AbortTasks
            found.append((end.cause, kind(job_id, end.checkpoint_id, end.attempts, end.cause)))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.TriggerCheckpoint: on_trigger_checkpoint,
    task_executor.ConfirmCheckpoint: on_confirm_checkpoint,
    task_executor.AbortCheckpoint: on_abort_checkpoint,
    job_master.AcknowledgeCheckpoint: on_acknowledge_checkpoint,
    job_master.DeclineCheckpoint: on_decline_checkpoint,
}
