"""The consequences of the phases of a stop with a savepoint (stop_phase.py has their table).

The job has finished when the savepoint is complete and no task is left. A task that acknowledged it has committed and
published everything before it, and does nothing after it: if it is lost before its own end, no other attempt is needed.
Flink's sinks may have open transactions then, so it restarts the job (StopWithSavepointTerminationHandler); here a
savepoint leaves none open.
"""

from __future__ import annotations

from msgspec.structs import replace

from ....pipelines.graph.accumulators import bounded
from ....schemas.event import Record
from ....schemas.types import CheckpointFailureReason, ExecutionState, JobStatus
from ...core.outbox import Outbox
from .. import executions, job_status, restore, slot_moves, termination
from ..state import StartedJob
from .pending_checkpoint import PendingCheckpoint
from .stop_phase import StopPhase


def on_savepoint_completed(
    state: StartedJob, before: StopPhase, savepoint: PendingCheckpoint, cause: int
) -> StartedJob:
    """Handles a complete savepoint; `before` is the phase until now.

    Tasks that were lost meanwhile are not retried. The others end when they are informed; with the last of them the job
    has finished.
    """
    if state.status is JobStatus.SUSPENDED and before is not StopPhase.RESTARTED:
        # When it is resumed, it has finished.
        return _count_committed(state, savepoint)
    if state.status not in job_status.ACTIVE:
        return state
    if before is StopPhase.RESTARTED:
        # The task did not know of the stop, and may have processed records after the savepoint.
        return termination.cancel_job(state, cause)
    state = replace(_count_committed(state, savepoint), cause=cause, ready=Outbox(), pending_failure=None)
    for attempt in sorted(state.current_attempts.values()):
        execution = state.executions[attempt]
        if execution.state is ExecutionState.SCHEDULED:
            state = executions.transition(state, execution, ExecutionState.CANCELED, cause)
    why = f"job {state.job_id} is stopped with a savepoint"
    for allocation_id in sorted(state.slots.requests):
        state = slot_moves.give_back(state, allocation_id, why, cause)
    return state


def _count_committed(state: StartedJob, savepoint: PendingCheckpoint) -> StartedJob:
    """Applies the counts of the subtasks that have committed everything with their part of the savepoint."""
    counted = {
        vertex: bounded({**state.accumulators.get(vertex, {}), **each.subtask_state.accumulators})
        for vertex, each in savepoint.acknowledged.items()
        if each.subtask_state.accumulators
    }
    return replace(state, accumulators=state.accumulators.update(counted))


def on_savepoint_aborted(
    state: StartedJob,
    before: StopPhase,
    savepoint: PendingCheckpoint,
    failure: CheckpointFailureReason,
    why: str,
    record: Record,
) -> StartedJob:
    """Handles a failed savepoint: the job continues; `before` is the phase until now.

    Tasks that ended after its barrier must run again, from a checkpoint. So must all tasks if a task was lost that may
    have emitted the final watermark: its replacement cannot know that.
    """
    what = "rescaling" if savepoint.is_cut else "stopping with a savepoint"
    reason = f"{what} failed: {why}"
    if state.status is JobStatus.SUSPENDED and savepoint.options.drains and savepoint.has_begun:
        return restore.start_restore_at_resumption(state, reason, record.offset)
    if state.status not in job_status.ACTIVE:
        return state
    by_task = failure is CheckpointFailureReason.TASK_FAILURE or before is StopPhase.RESTARTED
    are_all_there = state.counts.running + state.counts.finished == state.topology.subtasks
    drained = savepoint.options.drains and (by_task or not are_all_there)
    has_ended = drained or any(
        state.executions[state.current_attempts[vertex]].state is ExecutionState.FINISHED
        for vertex in savepoint.acknowledged
    )
    if not has_ended or restore.is_under_way(state):
        return replace(state, cause=record.offset)
    return restore.start_rollback(state, reason, record.offset, record.header.time)


def on_task_restarted(state: StartedJob, cause: int) -> StartedJob:
    """A task continues in a new process of its TaskExecutor, although the job ends with a savepoint.

    A TaskExecutor that has read the acknowledgement does not do that; if one does, its output contradicts the
    savepoint.
    """
    return termination.cancel_job(state, cause) if state.checkpoints.stop is StopPhase.SAVED else state
