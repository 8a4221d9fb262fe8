"""A job's checkpoints from trigger to completion or abort (Flink's CheckpointCoordinator).

CheckpointTriggered, which the JobMaster sends to itself, fixes the subtasks that must acknowledge. Each acknowledges
once. The last acknowledgement causes the metadata to be written, which completes the checkpoint. A decline, the loss of
an awaited subtask, or a timeout aborts it before that. Acknowledgements of unknown checkpoints, of Executions that are
not awaited, or repeated ones change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map
from msgspec.structs import replace

from ....schemas import client, job_master
from ....schemas.body import Body
from ....schemas.event import Record
from ....schemas.types import CheckpointFailureReason, ExecutionState, JobStatus
from ...core.immutable_maps import delete_key
from ...core.role import JOB_MASTER, Instruction, OutgoingEvent, Step, Time, address, instance_of
from .. import executions, job_status, restore, task_executor_connections, termination
from ..instructions import DiscardCheckpoint, FindCheckpoint, RemoveCheckpoints, WriteMetadata
from ..state import JobMasterState
from ..topology import VertexKey
from . import notifications, subsumption, trigger
from .pending_checkpoint import PendingCheckpoint
from .state import Answer, Discard, NotificationKind

_SHOWN = 3
_COUNTED = frozenset(
    {
        CheckpointFailureReason.CHECKPOINT_DECLINED,
        CheckpointFailureReason.CHECKPOINT_EXPIRED,
        CheckpointFailureReason.CHECKPOINT_STORAGE,
        CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
    }
)
"""Failures of checkpoints that a job tolerates only so many of; the others have their cause elsewhere."""


def _awaiting(
    state: JobMasterState, record: Record, checkpoint_id: int, attempt: str
) -> PendingCheckpoint | None:
    """The checkpoint, if it awaits the Execution and the sender is the TaskExecutor that runs it, in time."""
    pending = state.checkpoints.pending.get(checkpoint_id)
    execution = state.executions.get(attempt)
    if pending is None or execution is None or attempt not in pending.awaited:
        return None
    own = instance_of(record.header.sender) == execution.resource_id
    return pending if own and not task_executor_connections.is_stale(state, record) else None


def on_acknowledge_checkpoint(
    state: JobMasterState, record: Record, body: job_master.AcknowledgeCheckpoint
) -> JobMasterState:
    attempt = body.execution_attempt_id
    pending = _awaiting(state, record, body.checkpoint_id, attempt)
    if pending is None:
        return state
    done = pending.acknowledge(attempt, body.subtask_state, body.metrics)
    return replace(state, checkpoints=state.checkpoints.put(done))


def on_decline_checkpoint(
    state: JobMasterState, record: Record, body: job_master.DeclineCheckpoint
) -> JobMasterState:
    pending = _awaiting(state, record, body.checkpoint_id, body.execution_attempt_id)
    if pending is None:
        return state
    execution = state.executions[body.execution_attempt_id]
    why = f"{executions.execution_name(state, execution)} on {execution.resource_id} declined: {body.reason}"
    failed = pending.with_failure(CheckpointFailureReason.CHECKPOINT_DECLINED, why, record.offset)
    return replace(state, checkpoints=state.checkpoints.put(failed))


def on_checkpoint_completed(
    state: JobMasterState, record: Record, body: job_master.CheckpointCompleted
) -> JobMasterState:
    checkpoint, cause = body.checkpoint, record.offset
    pending = state.checkpoints.pending.get(checkpoint.checkpoint_id)
    if pending is None or not pending.is_acknowledged:
        return state
    checkpoints = replace(
        state.checkpoints,
        pending=state.checkpoints.pending.delete(pending.checkpoint_id),
        notifications=notifications.withdraw_notifications(
            state.checkpoints.notifications, pending.checkpoint_id
        ),
        last_ended=record.header.time,
        stopping=state.checkpoints.stopping or pending.options.stops,
    ).with_answer(pending.requests, Answer("", checkpoint))
    if not pending.is_savepoint:
        retained = state.options.checkpointing.retained
        checkpoints = replace(
            subsumption.add_completed(checkpoints, checkpoint, retained, cause), failures=0, force_full=False
        ).with_subsumed(checkpoint.checkpoint_id, cause)
        restore = checkpoints.latest
    else:
        checkpoints, restore = checkpoints.with_savepoint(checkpoint), None
    state = replace(state, checkpoints=checkpoints)
    told = set(notifications.participants(pending))
    if restore is not None:
        # Whoever has been put in the place of one that had acknowledged begins with it from now on, too.
        told.update(state.current.values())
    state = notifications.notifications_for(
        state, pending.checkpoint_id, NotificationKind.CONFIRM, sorted(told), cause, restore
    )
    if not pending.options.stops or not _is_active(state):
        return state
    if pending.attempt_restarted:
        # It knows nothing of its stop, and may have gone on behind the savepoint.
        return termination.cancel_job(state, cause)
    return termination.finish_stopped_job(state, pending, cause)


def on_checkpoint_aborted(
    state: JobMasterState, record: Record, body: job_master.CheckpointAborted
) -> JobMasterState:
    checkpoints, cause = state.checkpoints, record.offset
    pending = checkpoints.pending.get(body.checkpoint_id)
    if pending is None:
        return state
    answer = Answer("", reason=f"{body.failure.value}: {body.reason}")
    discard = Discard(pending.checkpoint_id, pending.options.directory, completed=False, cause=cause)
    counts = body.failure in _COUNTED and not pending.is_savepoint
    checkpoints = replace(
        checkpoints,
        pending=checkpoints.pending.delete(pending.checkpoint_id),
        notifications=notifications.withdraw_notifications(checkpoints.notifications, pending.checkpoint_id),
        discarding=checkpoints.discarding.set(pending.checkpoint_id, discard),
        last_ended=record.header.time,
        failures=checkpoints.failures + counts,
        force_full=checkpoints.force_full
        or body.failure is CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
        last_failure=f"checkpoint {pending.checkpoint_id}: {body.failure.value}: {body.reason}",
    ).with_answer(pending.requests, answer)
    state = replace(state, checkpoints=checkpoints)
    state = notifications.notifications_for(
        state, pending.checkpoint_id, NotificationKind.ABORT, notifications.participants(pending), cause
    )
    tolerable = state.options.checkpointing.tolerable_failures
    if counts and tolerable is not None and checkpoints.failures > tolerable and _is_active(state):
        why = f"{checkpoints.failures} checkpoints failed one after another, {tolerable} are tolerable; the last: "
        return termination.fail_job(state, f"{why}{answer.reason}", cause)
    if pending.options.stops and _is_active(state):
        by_task = body.failure is CheckpointFailureReason.TASK_FAILURE or pending.attempt_restarted
        drained = pending.options.drains and (by_task or not _all_are_there(state))
        return _continues(state, pending, answer.reason, record, drained=drained)
    if pending.options.drains and state.status is JobStatus.SUSPENDED and pending.has_begun:
        return restore.start_restore_at_resumption(state, _not_stopped(answer.reason), cause)
    return restore.without_candidates(state, cause)


def _is_active(state: JobMasterState) -> bool:
    return state.status in job_status.ACTIVE


def _continues(
    state: JobMasterState, pending: PendingCheckpoint, why: str, record: Record, *, drained: bool
) -> JobMasterState:
    """The savepoint that the job should end with has failed. Tasks that ended behind its barrier must run again.

    `drained`: a lost task may already have emitted the final watermark. Its replacement cannot know that, so the job
    must go back to a checkpoint.
    """
    ended = drained or any(
        state.executions[state.current[vertex]].state is ExecutionState.FINISHED
        for vertex in pending.acknowledged
    )
    if not ended or restore.is_under_way(state):
        return termination.finish_if_done(state, record.offset)
    return restore.start_rollback(state, _not_stopped(why), record.offset, record.header.time)


def _all_are_there(state: JobMasterState) -> bool:
    return state.counts.running + state.counts.finished == state.topology.subtasks


def _not_stopped(why: str) -> str:
    return f"stopping with a savepoint failed: {why}"


def on_checkpoint_discarded(
    state: JobMasterState, _record: Record, body: job_master.CheckpointDiscarded
) -> JobMasterState:
    checkpoints = state.checkpoints
    if state.terminated is not None:
        number = body.checkpoint_id
        left = state.terminated.without(
            lambda each: isinstance(each, DiscardCheckpoint) and each.checkpoint_id == number
        )
        return replace(state, terminated=left)
    if body.checkpoint_id not in checkpoints.discarding:
        return state
    discarding = checkpoints.discarding.delete(body.checkpoint_id)
    return replace(state, checkpoints=replace(checkpoints, discarding=discarding))


def on_checkpoints_removed(
    state: JobMasterState, _record: Record, _body: job_master.CheckpointsRemoved
) -> JobMasterState:
    if state.terminated is not None:
        return replace(
            state, terminated=state.terminated.without(lambda each: isinstance(each, RemoveCheckpoints))
        )
    if state.checkpoints.removal is None:
        return state
    kept = subsumption.retained_checkpoints(state.checkpoints, state.options.checkpointing, state.status)
    return replace(state, checkpoints=replace(state.checkpoints, removal=None, completed=kept))


def _answer_sent(
    state: JobMasterState, record: Record, _body: client.CheckpointSucceeded | client.CheckpointFailed
) -> JobMasterState:
    checkpoints, request = state.checkpoints, record.header.cause
    if request is None:
        return state
    if request in checkpoints.answers:
        return replace(
            state, checkpoints=replace(checkpoints, answers=delete_key(checkpoints.answers, request))
        )
    left = tuple(each for each in checkpoints.requests if each.offset != request)
    if len(left) == len(checkpoints.requests):
        return state
    return replace(state, checkpoints=replace(checkpoints, requests=left))


def follow_attempts(state: JobMasterState, record: Record) -> JobMasterState:
    """Records when all tasks run, or do not any more, and which checkpoints may then be discarded."""
    checkpoints, all_run = state.checkpoints, state.all_run
    if all_run is (checkpoints.since is None):
        checkpoints = replace(checkpoints, since=record.header.time if all_run else None)
    if checkpoints.subsumed:
        checkpoints = subsumption.release_checkpoints(checkpoints)
    return state if checkpoints is state.checkpoints else replace(state, checkpoints=checkpoints)


def outgoing_events(state: JobMasterState, now: Time) -> list[OutgoingEvent]:
    """The events to clients and TaskExecutors, and to itself for checkpoints that are triggered or aborted."""
    return [
        *request_answers(state),
        *_abort_checkpoints(state, now),
        *notifications.outgoing_events(state),
        *trigger.outgoing_events(state, now),
    ]


def request_answers(state: JobMasterState) -> list[OutgoingEvent]:
    """CheckpointSucceeded and CheckpointFailed, in the order of the requests."""
    owed = []
    for offset, answer in sorted(state.checkpoints.answers.items()):
        body: Body = (
            client.CheckpointFailed(job_id=state.job_id, reason=answer.reason)
            if answer.checkpoint is None
            else client.CheckpointSucceeded(job_id=state.job_id, checkpoint=answer.checkpoint)
        )
        owed.append(OutgoingEvent(answer.requester, body, offset))
    return owed


def _abort_checkpoints(state: JobMasterState, now: Time) -> list[OutgoingEvent]:
    """CheckpointAborted, in the order of the triggers."""
    owed = []
    for number, pending in sorted(state.checkpoints.pending.items()):
        if pending.failure is not None:
            kind, why, cause = pending.failure.kind, pending.failure.reason, pending.failure.cause
        elif pending.awaited and now >= pending.triggered + state.options.checkpointing.timeout:
            kind, why, cause = (
                CheckpointFailureReason.CHECKPOINT_EXPIRED,
                _timed_out(state, pending),
                pending.cause,
            )
        else:
            continue
        body = job_master.CheckpointAborted(
            job_id=state.job_id, checkpoint_id=number, failure=kind, reason=why
        )
        owed.append(OutgoingEvent(address(JOB_MASTER, state.job_id), body, cause))
    return owed


def _timed_out(state: JobMasterState, pending: PendingCheckpoint) -> str:
    late = sorted(
        (state.executions[each] for each in pending.awaited),
        key=lambda execution: executions.executions_in_order(state, execution),
    )
    names = ", ".join(
        f"{executions.execution_name(state, each)} on {each.resource_id}" for each in late[:_SHOWN]
    )
    more = f" and {len(late) - _SHOWN} more" if len(late) > _SHOWN else ""
    return f"not acknowledged within {state.options.checkpointing.timeout / 1e6:g} s by {names}{more}"


def deadline(state: JobMasterState) -> Time | None:
    """When a checkpoint is due or times out."""
    timeout = state.options.checkpointing.timeout
    times = [
        each.triggered + timeout
        for each in state.checkpoints.pending.values()
        if each.awaited and each.failure is None
    ]
    due = trigger.deadline(state)
    return min(times if due is None else [*times, due], default=None)


def instructions(state: JobMasterState) -> list[Instruction]:
    """The storage instructions, in the order of their causes."""
    checkpoints, graph, job_id = state.checkpoints, state.graph, state.job_id
    if graph is None or not (checkpoints.has_outgoing or checkpoints.restoring is not None):
        return []
    found: list[Instruction] = [
        WriteMetadata(job_id, graph, pending, pending.cause, _count_failure(state, pending))
        for _, pending in sorted(checkpoints.pending.items())
        if pending.is_acknowledged
    ]
    kept = subsumption.retained_directories(checkpoints)
    for number, each in sorted(checkpoints.discarding.items()):
        found.append(DiscardCheckpoint(job_id, number, each.directory, each.completed, kept, each.cause))
    if restore.should_find_checkpoint(state):
        allow, cause = state.allow_non_restored_state, restore.restore_cause(state)
        found.append(FindCheckpoint(job_id, graph, restore.candidates(state), allow, cause))
    if checkpoints.removal is not None and not checkpoints.pending and not checkpoints.discarding:
        keep = subsumption.retained_checkpoints(checkpoints, state.options.checkpointing, state.status)
        directory = trigger.job_directory(state)
        found.append(RemoveCheckpoints(job_id, directory, keep, checkpoints.removal))
    return found


def _count_failure(state: JobMasterState, pending: PendingCheckpoint) -> Map[VertexKey, Mapping[str, float]]:
    known = state.accumulators
    return Map({vertex: known[vertex] for vertex in pending.finished if vertex in known})


on_checkpoint_succeeded = on_checkpoint_failed = _answer_sent

STEPS: Mapping[type[Body], Step[JobMasterState]] = {
    **notifications.STEPS,
    **trigger.STEPS,
    job_master.AcknowledgeCheckpoint: on_acknowledge_checkpoint,
    job_master.DeclineCheckpoint: on_decline_checkpoint,
    job_master.CheckpointCompleted: on_checkpoint_completed,
    job_master.CheckpointAborted: on_checkpoint_aborted,
    job_master.CheckpointDiscarded: on_checkpoint_discarded,
    job_master.CheckpointsRemoved: on_checkpoints_removed,
    job_master.CheckpointRestored: restore.on_checkpoint_restored,
    job_master.RestoreFailed: restore.on_restore_failed,
    client.CheckpointSucceeded: on_checkpoint_succeeded,
    client.CheckpointFailed: on_checkpoint_failed,
}
