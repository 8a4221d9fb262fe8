"""Rollback to a checkpoint: all tasks end, then all restart, in the next generation of the job.

A failed task normally continues from its last commit. If that is gone (a topic, or part of one), continuing would lose
or repeat records, so the whole job rolls back; messages and commits of earlier generations are ignored from then on.
The job is RESTARTING until the last task has ended and an intact checkpoint is found. It keeps its slots. A job that is
rescaled restarts in the same way (rescale/).

A job that is submitted with a savepoint waits for it in the same way before its first tasks, and starts generation 0.
"""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from ...pipelines.graph.accumulators import bounded
from ...schemas import job_master
from ...schemas.event import Record
from ...schemas.types import (
    CheckpointFailureReason,
    CompletedCheckpoint,
    ExecutionState,
    JobGraph,
    JobStatus,
    RestoredCheckpoint,
)
from ..core.role import Time
from . import executions, scheduling, termination
from .checkpoints import subsumption
from .checkpoints.state import Restoring
from .rescale.graph_change import change_graph
from .rescale.state import RescalePhase
from .state import ChannelsState, StartedJob
from .topology import VertexKey


def is_under_way(state: StartedJob) -> bool:
    """Whether the job is rolling back to a checkpoint: tasks that end then have not failed."""
    return state.checkpoints.restoring is not None


def start_rollback(state: StartedJob, why: str, cause: int, due: Time) -> StartedJob:
    """Ends all tasks and restarts them from a checkpoint, not before `due`. Without a checkpoint the job fails."""
    checkpoints = state.checkpoints.without_pending(
        CheckpointFailureReason.TASK_FAILURE, "the job goes back to an earlier checkpoint", cause
    )
    return replace(
        termination.cancel_tasks(state, cause),
        checkpoints=replace(checkpoints, restoring=Restoring(cause, due, why)),
    )


def start_restore_at_resumption(state: StartedJob, why: str, cause: int) -> StartedJob:
    """Starts all tasks of a suspended job from a checkpoint when it is resumed."""
    if is_under_way(state):
        return state
    return replace(state, checkpoints=replace(state.checkpoints, restoring=Restoring(cause, 0, why)))


def find_failure(state: StartedJob) -> str | None:
    """Returns why the job fails, if it should roll back and has no checkpoint, nor one that may still be completed."""
    checkpoints = state.checkpoints
    if checkpoints.restoring is None or candidates(state):
        return None
    if any(each.is_acknowledged and not each.is_savepoint for each in checkpoints.pending.values()):
        return None
    gone = checkpoints.restoring.why
    return f"{gone}; the job can't go on without it, and has no completed checkpoint to go back to"


def candidates(state: StartedJob) -> tuple[RestoredCheckpoint, ...]:
    """Returns the checkpoints that tasks may start from, newest first."""
    restoring = state.checkpoints.restoring
    if restoring is None:
        return ()
    if restoring.initial:
        path = state.savepoint_path or ""
        return (RestoredCheckpoint(checkpoint_id=0, uri=path, generation=-1),)
    return state.checkpoints.candidates()


def should_find_checkpoint(state: StartedJob) -> bool:
    """Whether to look for a checkpoint now: no task of the old generation runs any more."""
    checkpoints, restoring = state.checkpoints, state.checkpoints.restoring
    if restoring is None or state.counts.unfinished or checkpoints.pending:
        return False
    waits = JobStatus.CREATED if restoring.initial else JobStatus.RESTARTING
    return state.status is waits and bool(candidates(state))


def graph_of(state: StartedJob) -> JobGraph:
    """Returns the graph that the job continues with."""
    current = state.rescaling.current
    is_rescaled = current is not None and current.phase is RescalePhase.RESTARTING
    return current.graph if current is not None and is_rescaled else state.graph


def restore_cause(state: StartedJob) -> int:
    """Returns the offset that caused the search; answers to an earlier search are ignored."""
    restoring = state.checkpoints.restoring
    return state.start_offset if restoring is None else max(restoring.cause, state.start_offset)


def on_checkpoint_restored(
    state: StartedJob, record: Record, body: job_master.CheckpointRestored
) -> StartedJob:
    """Starts the tasks from the intact checkpoint that was found."""
    restoring, cause = state.checkpoints.restoring, record.offset
    if restoring is None or not _is_answer(state, record):
        return state
    checkpoint = body.checkpoint
    is_rescaled = state.rescaling.is_in(RescalePhase.RESTARTING)
    again: list[VertexKey] = []
    if is_rescaled:
        state, again = change_graph(state, record)
    checkpoints = state.checkpoints
    checkpoints = replace(
        checkpoints,
        latest=checkpoint,
        origin=checkpoint if restoring.initial else checkpoints.origin,
        finished=_finished(state, body),
        restoring=None,
        passed_over=Map(body.passed_over),
        last_triggered=None,
        last_ended=None,
        failures=Map(),
    )
    checkpoints = subsumption.subsume(checkpoints, _is_unreadable(checkpoints.completed, checkpoint), cause)
    state = replace(state, checkpoints=checkpoints)
    if restoring.initial:
        if body.accumulators and checkpoints.finished:
            # The counts of subtasks that finished in another job are one sum; it is stored as in the next checkpoint.
            counted = bounded(body.accumulators)
            state = replace(state, accumulators=state.accumulators.set(min(checkpoints.finished), counted))
        return scheduling.resume_after_restore(state, [], cause, restoring.due)
    # A missing topic may be the reason of a rollback: existing topics are not changed.
    state = replace(
        state, generation=state.generation + 1, channels=ChannelsState.CREATING, start_offset=cause
    )
    state, finished_again = _rerun_finished(state, cause)
    again += finished_again
    return scheduling.resume_after_restore(state, again, cause, restoring.due)


def on_restore_failed(state: StartedJob, record: Record, body: job_master.RestoreFailed) -> StartedJob:
    """Handles a search without a result: storage has answered for each candidate."""
    restoring = state.checkpoints.restoring
    if restoring is None or not _is_answer(state, record):
        return state
    why = f"{restoring.why}; {body.reason}" if restoring.why else body.reason
    return termination.fail_job(state, why, record.offset)


def _is_answer(state: StartedJob, record: Record) -> bool:
    return should_find_checkpoint(state) and record.header.cause == restore_cause(state)


def _finished(state: StartedJob, body: job_master.CheckpointRestored) -> Map[VertexKey, None]:
    known = state.topology.vertices
    return Map(
        {
            (vertex_id, index): None
            for vertex_id, subtasks in body.finished.items()
            if vertex_id in known
            for index in subtasks
            if 0 <= index < known[vertex_id].parallelism
        }
    )


def _is_unreadable(
    completed: tuple[CompletedCheckpoint, ...], found: RestoredCheckpoint | None
) -> tuple[CompletedCheckpoint, ...]:
    """Returns the candidates newer than the one that was found: they could not be read."""
    return tuple(
        each
        for each in completed
        if found is None or found.generation < 0 or each.checkpoint_id > found.checkpoint_id
    )


def _rerun_finished(state: StartedJob, cause: int) -> tuple[StartedJob, list[VertexKey]]:
    """Restarts subtasks that had finished after the checkpoint, with the accumulators of the checkpoint."""
    again = []
    for vertex, attempt in sorted(state.current_attempts.items()):
        last = state.executions[attempt]
        if last.state is not ExecutionState.FINISHED:
            continue
        new = executions.new_attempt(state.job_id, vertex, last.attempt_number + 1, cause, prior=None)
        state = executions.forget_previous(state, last)
        state = replace(
            state,
            executions=state.executions.delete(attempt).set(new.execution_attempt_id, new),
            current_attempts=state.current_attempts.set(vertex, new.execution_attempt_id),
        )
        again.append(vertex)
    counted = {
        vertex: counts
        for vertex, counts in state.accumulators.items()
        if vertex in state.checkpoints.finished
    }
    state = replace(state, counts=replace(state.counts, finished=0), accumulators=Map(counted))
    return state, [each for each in again if each[0] in state.scheduled_vertices]
