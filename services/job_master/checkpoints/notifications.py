"""Notifications to TaskExecutors: a checkpoint was triggered, completed, or aborted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from immutables import Map
from msgspec.structs import replace

from ....schemas import task_executor
from ....schemas.body import Body
from ....schemas.event import Record
from ....schemas.types import RestoredCheckpoint
from ...core.role import TASK_EXECUTOR, OutgoingEvent, Step, address, instance_of
from .. import execution_states
from ..state import JobMasterState
from .pending_checkpoint import PendingCheckpoint
from .state import NoticeKey, Notification, NotificationKind


def notifications_for(
    state: JobMasterState,
    checkpoint_id: int,
    kind: NotificationKind,
    attempts: Iterable[str],
    cause: int,
    restore: RestoredCheckpoint | None = None,
) -> JobMasterState:
    """Notifications about those of the Executions that still run, one for each TaskExecutor."""
    by_resource: dict[str, list[str]] = {}
    for attempt in attempts:
        execution = state.executions.get(attempt)
        if execution is not None and execution.state in execution_states.DEPLOYED:
            by_resource.setdefault(execution.resource_id or "", []).append(attempt)
    found = {
        (checkpoint_id, kind, resource_id): Notification(tuple(sorted(each)), cause, restore)
        for resource_id, each in by_resource.items()
    }
    if not found:
        return state
    notices = state.checkpoints.notifications.update(found)
    return replace(state, checkpoints=replace(state.checkpoints, notifications=notices))


def participants(pending: PendingCheckpoint) -> list[str]:
    """All Executions that take or took part in a checkpoint."""
    done = [each.execution_attempt_id for each in pending.acknowledged.values()]
    return sorted([*pending.awaited, *done])


def started_attempts(
    state: JobMasterState, attempt: str, resource_id: str, restore: RestoredCheckpoint | None, cause: int
) -> JobMasterState:
    """An Execution was submitted. If a checkpoint was completed meanwhile, its TaskExecutor must know it: if the task
    restarts there, the checkpoint it was submitted with may be gone."""
    latest = state.checkpoints.latest
    if latest is None or latest == restore or latest.generation != state.generation:
        return state
    key = (latest.checkpoint_id, NotificationKind.CONFIRM, resource_id)
    notice = state.checkpoints.notifications.get(key) or Notification((), cause, latest)
    told = replace(notice, attempts=tuple(sorted({*notice.attempts, attempt})))
    notices = state.checkpoints.notifications.set(key, told)
    return replace(state, checkpoints=replace(state.checkpoints, notifications=notices))


def withdraw_notifications(
    notices: Map[NoticeKey, Notification], checkpoint_id: int
) -> Map[NoticeKey, Notification]:
    """Withdraws the trigger of a checkpoint that is over."""
    left = notices
    for key in notices:
        if key[0] == checkpoint_id and key[1] is NotificationKind.TRIGGER:
            left = left.delete(key)
    return left


def outgoing_events(state: JobMasterState) -> list[OutgoingEvent]:
    """TriggerCheckpoint, ConfirmCheckpoint and AbortCheckpoint, in the order of their causes."""
    owed = []
    for key in sorted(
        state.checkpoints.notifications, key=lambda key: (state.checkpoints.notifications[key].cause, key)
    ):
        checkpoint_id, kind, resource_id = key
        notice = state.checkpoints.notifications[key]
        body: Body
        match kind:
            case NotificationKind.TRIGGER:
                pending = state.checkpoints.pending[checkpoint_id]
                body = task_executor.TriggerCheckpoint(
                    job_id=state.job_id,
                    checkpoint_id=checkpoint_id,
                    execution_attempt_ids=notice.attempts,
                    timestamp=pending.triggered,
                    options=pending.options,
                )
            case NotificationKind.CONFIRM:
                body = task_executor.ConfirmCheckpoint(
                    job_id=state.job_id,
                    checkpoint_id=checkpoint_id,
                    execution_attempt_ids=notice.attempts,
                    restore=notice.restore,
                )
            case NotificationKind.ABORT:
                body = task_executor.AbortCheckpoint(
                    job_id=state.job_id,
                    checkpoint_id=checkpoint_id,
                    execution_attempt_ids=notice.attempts,
                )
        owed.append(OutgoingEvent(address(TASK_EXECUTOR, resource_id), body, notice.cause))
    return owed


def _notification_sent(kind: NotificationKind) -> Step[JobMasterState]:
    def step(
        state: JobMasterState,
        record: Record,
        body: task_executor.TriggerCheckpoint
        | task_executor.ConfirmCheckpoint
        | task_executor.AbortCheckpoint,
    ) -> JobMasterState:
        key = (body.checkpoint_id, kind, instance_of(record.header.recipient))
        notice = state.checkpoints.notifications.get(key)
        if notice is None:
            return state
        left = tuple(each for each in notice.attempts if each not in body.execution_attempt_ids)
        notices = state.checkpoints.notifications
        notices = notices.set(key, replace(notice, attempts=left)) if left else notices.delete(key)
        return replace(state, checkpoints=replace(state.checkpoints, notifications=notices))

    return step


on_trigger_checkpoint = _notification_sent(NotificationKind.TRIGGER)
on_confirm_checkpoint = _notification_sent(NotificationKind.CONFIRM)
on_abort_checkpoint = _notification_sent(NotificationKind.ABORT)

STEPS: Mapping[type[Body], Step[JobMasterState]] = {
    task_executor.TriggerCheckpoint: on_trigger_checkpoint,
    task_executor.ConfirmCheckpoint: on_confirm_checkpoint,
    task_executor.AbortCheckpoint: on_abort_checkpoint,
}
