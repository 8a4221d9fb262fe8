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
from ....schemas.types import CheckpointFailureReason
from ...core.role import JOB_MASTER, Instruction, OutgoingEvent, Step, Time, address, instance_of
from .. import executions, owed_events, restore, task_executor_connections
from ..instructions import DiscardCheckpoint, FindCheckpoint, RemoveCheckpoints, WriteMetadata
from ..owed_events import (
    OwedAbortCheckpoint,
    OwedCheckpointFailed,
    OwedCheckpointSucceeded,
    OwedConfirmCheckpoint,
)
from ..rescale import cut as rescale
from ..state import StartedJob
from ..topology import VertexKey
from . import notifications, stop_with_savepoint, subsumption, trigger
from .directory import job_directory
from .pending_checkpoint import PendingCheckpoint
from .state import Discard
from .stop_phase import StopEvent, StopPhase

_SHOWN = 3


def _awaiting(
    state: StartedJob, record: Record, checkpoint_id: int, attempt: str
) -> PendingCheckpoint | None:
    """Returns the checkpoint, if it awaits the Execution and the sender is the TaskExecutor that runs it, in time."""
    pending = state.checkpoints.pending.get(checkpoint_id)
    execution = state.executions.get(attempt)
    if pending is None or execution is None or attempt not in pending.awaited:
        return None
    own = instance_of(record.header.sender) == execution.resource_id
    return pending if own and not task_executor_connections.is_stale(state, record) else None


def on_acknowledge_checkpoint(
    state: StartedJob, record: Record, body: job_master.AcknowledgeCheckpoint
) -> StartedJob:
    number = body.checkpoint_id
    parts = {
        part.execution_attempt_id: part
        for part in body.acknowledgements
        if _awaiting(state, record, number, part.execution_attempt_id) is not None
    }
    if not parts:
        return state
    done = state.checkpoints.pending[number].acknowledge(parts.values())
    return replace(state, checkpoints=state.checkpoints.put(done))


def on_decline_checkpoint(
    state: StartedJob, record: Record, body: job_master.DeclineCheckpoint
) -> StartedJob:
    pending = _awaiting(state, record, body.checkpoint_id, body.execution_attempt_id)
    if pending is None:
        return state
    execution = state.executions[body.execution_attempt_id]
    why = f"{executions.execution_name(state, execution)} on {execution.resource_id} declined: {body.reason}"
    failed = pending.with_failure(CheckpointFailureReason.CHECKPOINT_DECLINED, why, record.offset)
    return replace(state, checkpoints=state.checkpoints.put(failed))


def on_checkpoint_completed(
    state: StartedJob, record: Record, body: job_master.CheckpointCompleted
) -> StartedJob:
    checkpoint, cause = body.checkpoint, record.offset
    pending = state.checkpoints.pending.get(checkpoint.checkpoint_id)
    if pending is None or not pending.is_acknowledged:
        return state
    phase = state.checkpoints.stop
    useless = _why_useless(state, pending) if pending.is_cut else None
    if useless is not None:
        return _abort(state, record, pending, *useless, is_written=True)
    event = StopEvent.CUT if pending.is_cut else StopEvent.COMPLETED
    checkpoints = state.checkpoints.without(pending, event, record.header.time)
    answers = [
        OwedCheckpointSucceeded(each.offset, each.requester, checkpoint, each.tenant)
        for each in pending.requests
    ]
    if not pending.is_savepoint:
        checkpoints = replace(
            subsumption.add_completed(checkpoints, checkpoint, pending.retained, cause),
            failures=Map(),
            force_full=False,
        ).with_subsumed(checkpoint.checkpoint_id, cause)
        restore = checkpoints.latest
    else:
        checkpoints, restore = checkpoints.with_savepoint(checkpoint, pending.requests), None
    state = replace(state, checkpoints=checkpoints, outbox=state.outbox.owe_all(answers))
    if pending.is_cut:
        # Nobody is told: the tasks end.
        return rescale.on_cut_completed(state, pending, record)
    told = set(notifications.participants(pending))
    if restore is not None:
        # An Execution that replaces one that had acknowledged also starts from it now.
        told.update(state.current_attempts.values())
    number = pending.checkpoint_id
    state = notifications.notify(
        state,
        told,
        lambda resource_id, attempts: OwedConfirmCheckpoint(cause, number, resource_id, attempts, restore),
    )
    if not pending.options.stops:
        return state
    return stop_with_savepoint.on_savepoint_completed(state, phase, pending, cause)


def _why_useless(state: StartedJob, cut: PendingCheckpoint) -> tuple[CheckpointFailureReason, str] | None:
    """Returns why the job does not go on from a complete cut; its tasks then continue."""
    if state.checkpoints.stop is StopPhase.RESTARTED:
        # It may have processed records after its part.
        why = "a task has restarted behind its part of the checkpoint"
        return CheckpointFailureReason.TASK_FAILURE, why
    if not state.rescaling.is_taking(cut.checkpoint_id):
        return CheckpointFailureReason.CHECKPOINT_EXPIRED, "the rescale that it was for is over"
    return None


def on_checkpoint_aborted(
    state: StartedJob, record: Record, body: job_master.CheckpointAborted
) -> StartedJob:
    pending = state.checkpoints.pending.get(body.checkpoint_id)
    if pending is None:
        return state
    return _abort(state, record, pending, body.failure, body.reason)


def _abort(
    state: StartedJob,
    record: Record,
    pending: PendingCheckpoint,
    failure: CheckpointFailureReason,
    reason: str,
    *,
    is_written: bool = False,
) -> StartedJob:
    checkpoints, cause, number = state.checkpoints, record.offset, pending.checkpoint_id
    why = f"{failure.value}: {reason}"
    answers = [
        OwedCheckpointFailed(each.offset, each.requester, why, each.tenant) for each in pending.requests
    ]
    discard = Discard(number, pending.options.directory, completed=is_written, cause=cause)
    failures = checkpoints.failures
    if not (pending.is_savepoint or pending.is_cut):
        failures = failures.set(failure, failures.get(failure, 0) + 1)
    phase = checkpoints.stop
    checkpoints = replace(
        checkpoints.without(pending, StopEvent.ABORTED, record.header.time),
        discarding=checkpoints.discarding.set(number, discard),
        failures=failures,
        force_full=checkpoints.force_full or failure is CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
        last_failure=f"checkpoint {number}: {why}",
    )
    state = replace(state, checkpoints=checkpoints, outbox=state.outbox.owe_all(answers))
    state = notifications.notify(
        state,
        notifications.participants(pending),
        lambda resource_id, attempts: OwedAbortCheckpoint(cause, number, resource_id, attempts),
    )
    if pending.is_cut:
        state = rescale.on_cut_aborted(state, pending, why)
    if pending.options.stops:
        return stop_with_savepoint.on_savepoint_aborted(state, phase, pending, failure, why, record)
    return state


def on_checkpoint_discarded(
    state: StartedJob, _record: Record, body: job_master.CheckpointDiscarded
) -> StartedJob:
    checkpoints = state.checkpoints
    if body.checkpoint_id not in checkpoints.discarding:
        return state
    discarding = checkpoints.discarding.delete(body.checkpoint_id)
    return replace(state, checkpoints=replace(checkpoints, discarding=discarding))


def on_checkpoints_removed(
    state: StartedJob, _record: Record, _body: job_master.CheckpointsRemoved
) -> StartedJob:
    checkpoints = state.checkpoints
    if checkpoints.removal is None:
        return state
    return replace(state, checkpoints=replace(checkpoints, removal=None, completed=checkpoints.retained))


def on_checkpoint_failed(state: StartedJob, record: Record, body: client.CheckpointFailed) -> StartedJob:
    state = owed_events.on_checkpoint_failed(state, record, body)
    checkpoints = state.checkpoints
    left = tuple(each for each in checkpoints.requests if each.offset != record.header.cause)
    if len(left) == len(checkpoints.requests):
        return state
    # The request has waited for too long.
    return replace(state, checkpoints=replace(checkpoints, requests=left))


def follow_attempts(state: StartedJob, record: Record) -> StartedJob:
    """Records whether all tasks run, and which checkpoints may then be discarded."""
    checkpoints, all_run = state.checkpoints, state.is_fully_running
    if all_run is (checkpoints.since is None):
        checkpoints = replace(checkpoints, since=record.header.time if all_run else None)
    if checkpoints.subsumed:
        checkpoints = subsumption.release_checkpoints(checkpoints)
    return state if checkpoints is state.checkpoints else replace(state, checkpoints=checkpoints)


def outgoing_events(state: StartedJob, now: Time) -> list[OutgoingEvent]:
    """Returns the events to itself for checkpoints that are triggered or aborted, and to clients that wait for too
    long."""
    return [
        *_abort_checkpoints(state, now),
        *trigger.outgoing_events(state, now),
    ]


def _abort_checkpoints(state: StartedJob, now: Time) -> list[OutgoingEvent]:
    """Returns CheckpointAborted, in the order of the triggers."""
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


def _timed_out(state: StartedJob, pending: PendingCheckpoint) -> str:
    late = sorted(
        (state.executions[each] for each in pending.awaited),
        key=lambda execution: executions.executions_in_order(state, execution),
    )
    names = ", ".join(
        f"{executions.execution_name(state, each)} on {each.resource_id}" for each in late[:_SHOWN]
    )
    more = f" and {len(late) - _SHOWN} more" if len(late) > _SHOWN else ""
    return f"not acknowledged within {state.options.checkpointing.timeout / 1e6:g} s by {names}{more}"


def deadline(state: StartedJob) -> Time | None:
    """Returns the time at which a checkpoint is due or times out."""
    timeout = state.options.checkpointing.timeout
    times = [
        each.triggered + timeout
        for each in state.checkpoints.pending.values()
        if each.awaited and each.failure is None
    ]
    due = trigger.deadline(state)
    return min(times if due is None else [*times, due], default=None)


def instructions(state: StartedJob) -> list[Instruction]:
    """Returns the storage instructions, in the order of their causes."""
    checkpoints, graph, job_id = state.checkpoints, state.graph, state.job_id
    if not (checkpoints.has_outgoing or checkpoints.restoring is not None):
        return []
    found: list[Instruction] = [
        WriteMetadata(job_id, graph, pending, pending.cause, _count_failure(state, pending), state.tenant)
        for _, pending in sorted(checkpoints.pending.items())
        if pending.is_acknowledged
    ]
    kept = subsumption.retained_directories(checkpoints)
    for number, each in sorted(checkpoints.discarding.items()):
        found.append(DiscardCheckpoint(job_id, number, each.directory, each.completed, kept, each.cause))
    if restore.should_find_checkpoint(state):
        allow, cause = state.allow_non_restored_state, restore.restore_cause(state)
        target = restore.graph_of(state)
        found.append(FindCheckpoint(job_id, target, restore.candidates(state), allow, cause, state.tenant))
    if checkpoints.removal is not None and not checkpoints.pending and not checkpoints.discarding:
        directory = job_directory(state)
        found.append(RemoveCheckpoints(job_id, directory, checkpoints.retained, checkpoints.removal))
    return found


def _count_failure(state: StartedJob, pending: PendingCheckpoint) -> Map[VertexKey, Mapping[str, float]]:
    known = state.accumulators
    return Map({vertex: known[vertex] for vertex in pending.finished if vertex in known})


STEPS: Mapping[type[Body], Step[StartedJob]] = {
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
    client.CheckpointFailed: on_checkpoint_failed,
}
