"""Notifications to TaskExecutors: a checkpoint was triggered, completed, or aborted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from ....schemas import task_executor
from ....schemas.body import Body
from ....schemas.event import Record
from ....schemas.types import RestoredCheckpoint
from ...core.outbox import Outbox
from ...core.role import Step, instance_of
from .. import execution_states
from ..owed_events import (
    CheckpointNotification,
    OwedAbortCheckpoint,
    OwedConfirmCheckpoint,
    OwedTriggerCheckpoint,
)
from ..state import StartedJob
from .pending_checkpoint import PendingCheckpoint


def notify(
    state: StartedJob,
    attempts: Iterable[str],
    notification: Callable[[str, tuple[str, ...]], CheckpointNotification],
) -> StartedJob:
    """Owes a notification to the TaskExecutors of those of the Executions that still run. `notification`: (ResourceID,
    Executions there) -> the event."""
    by_resource: dict[str, list[str]] = {}
    for attempt in sorted(attempts):
        execution = state.executions.get(attempt)
        if execution is not None and execution.state in execution_states.DEPLOYED:
            by_resource.setdefault(execution.resource_id or "", []).append(attempt)
    owed = (notification(resource_id, tuple(found)) for resource_id, found in by_resource.items())
    return _with(state, state.checkpoints.notifications.owe_all(owed))


def _with(state: StartedJob, notifications: Outbox[CheckpointNotification]) -> StartedJob:
    return replace(state, checkpoints=replace(state.checkpoints, notifications=notifications))


def participants(pending: PendingCheckpoint) -> list[str]:
    """Returns all Executions that take or took part in a checkpoint."""
    return [*pending.awaited, *(done.execution_attempt_id for done in pending.acknowledged.values())]


def started_attempts(
    state: StartedJob, attempt: str, resource_id: str, restore: RestoredCheckpoint | None, cause: int
) -> StartedJob:
    """An Execution was submitted. If a checkpoint was completed meanwhile, its TaskExecutor must know it: if the task
    restarts there, the checkpoint it was submitted with may be gone."""
    latest = state.checkpoints.latest
    if latest is None or latest == restore or latest.generation != state.generation:
        return state
    owed = state.checkpoints.notifications.get(OwedConfirmCheckpoint, latest.checkpoint_id, resource_id)
    owed = owed or OwedConfirmCheckpoint(cause, latest.checkpoint_id, resource_id, (), latest)
    attempts = tuple(sorted({*owed.execution_attempt_ids, attempt}))
    owed = replace(owed, execution_attempt_ids=attempts)
    return _with(state, state.checkpoints.notifications.owe(owed))


def _step_of_sent(kind: type[CheckpointNotification]) -> Step[StartedJob]:
    """Returns the step of a notification that was sent. Executions that were added since stay owed."""

    def step(
        state: StartedJob,
        record: Record,
        body: task_executor.TriggerCheckpoint
        | task_executor.ConfirmCheckpoint
        | task_executor.AbortCheckpoint,
    ) -> StartedJob:
        notifications = state.checkpoints.notifications
        owed = notifications.get(kind, body.checkpoint_id, instance_of(record.header.recipient))
        if owed is None:
            return state
        left = tuple(each for each in owed.execution_attempt_ids if each not in body.execution_attempt_ids)
        if left:
            return _with(state, notifications.owe(replace(owed, execution_attempt_ids=left)))
        return _with(state, notifications.remove_all([owed]))

    return step


on_trigger_checkpoint = _step_of_sent(OwedTriggerCheckpoint)
on_confirm_checkpoint = _step_of_sent(OwedConfirmCheckpoint)
on_abort_checkpoint = _step_of_sent(OwedAbortCheckpoint)

STEPS: Mapping[type[Body], Step[StartedJob]] = {
    task_executor.TriggerCheckpoint: on_trigger_checkpoint,
    task_executor.ConfirmCheckpoint: on_confirm_checkpoint,
    task_executor.AbortCheckpoint: on_abort_checkpoint,
}
