"""The status of a job: `decide` finds the change that is due, and JobStatusChanged in the log is the change.

Other events only record what happened and what is requested. `due_change` derives the next status from that. Folding
JobStatusChanged sets the status and begins what follows from it. No other event sets it.

While a change is due, nothing else is decided, so no decision is behind the end of a job or behind its rollback. By the
time that JobStatusChanged is in the log, all earlier decisions are there, too. No other decision depends on the changes
in `_INDEPENDENT`: they need no turn of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ...schemas import client
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.states import JOB_ENDS
from ...schemas.types import JobStatus
from ..core.role import CLIENT, IllegalEvent, OutgoingEvent, Step
from . import restore, termination
from .checkpoints import failure_limit, subsumption
from .checkpoints.stop_phase import IN_PROGRESS, StopPhase
from .job_status import ACTIVE, END_OF, ENDING, check_transition
from .state import StartedJob, StatusChange

# Cached members: Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md), and these are
# needed often.
_INITIALIZING: Final = JobStatus.INITIALIZING
_CREATED: Final = JobStatus.CREATED
_RUNNING: Final = JobStatus.RUNNING
_RESTARTING: Final = JobStatus.RESTARTING
_SUSPENDED: Final = JobStatus.SUSPENDED
_FINISHED: Final = JobStatus.FINISHED

_INDEPENDENT: Final = frozenset({(_INITIALIZING, _CREATED), (_RESTARTING, _CREATED), (_CREATED, _RUNNING)})


def due_change(state: StartedJob) -> StatusChange | None:
    """Returns the next change of the status; None if none is due."""
    if state.requested is not None:
        return _requested_change(state, state.requested)
    status = state.status
    if status in END_OF:
        has_tasks = state.counts.unfinished
        return None if has_tasks else StatusChange(END_OF[status], state.reason, _last_cause(state))
    if status not in ACTIVE:
        return None
    if status is _INITIALIZING:
        return StatusChange(_CREATED, None, state.start_offset)
    failure = restore.find_failure(state) or failure_limit.find_failure(state)
    if failure is not None:
        return StatusChange(JobStatus.FAILING, failure, _last_cause(state))
    restoring = state.checkpoints.restoring
    if restoring is not None:
        if restoring.initial or status is _RESTARTING:
            return None
        return StatusChange(_RESTARTING, restoring.why, restoring.cause)
    if status is _RESTARTING:
        return StatusChange(_CREATED, None, state.start_offset)
    if _is_done(state):
        return StatusChange(_RUNNING if status is _CREATED else _FINISHED, None, _last_cause(state))
    is_deployed = not state.counts.scheduled or state.options.runs_in_stages
    if status is _CREATED and state.counts.unfinished and is_deployed:
        return StatusChange(_RUNNING, None, _last_cause(state))
    return None


def _requested_change(state: StartedJob, requested: StatusChange) -> StatusChange:
    if state.status is not _SUSPENDED or requested.status not in (_CREATED, _SUSPENDED):
        return requested
    # A job that was resumed and suspended again does both.
    is_saved = state.checkpoints.stop is StopPhase.SAVED
    return StatusChange(_FINISHED if is_saved else _CREATED, None, requested.cause)


def _is_done(state: StartedJob) -> bool:
    """Whether the job has nothing left to do."""
    counts, stop = state.counts, state.checkpoints.stop
    if stop in IN_PROGRESS:
        # All tasks of a job that ends with a savepoint may have ended; the job ends when the savepoint is complete.
        return False
    return not counts.unfinished if stop is StopPhase.SAVED else counts.finished == state.topology.subtasks


def _last_cause(state: StartedJob) -> int:
    """Returns the offset of the last change of the job or of a task."""
    current = (state.executions[attempt].cause for attempt in state.current_attempts.values())
    return max(state.cause, *current)


def change_event(state: StartedJob, change: StatusChange) -> OutgoingEvent:
    """Returns JobStatusChanged for a change."""
    return _event(state, change.status, change.reason, change.cause)


def failure_event(state: StartedJob, reason: str) -> OutgoingEvent:
    """Returns JobStatusChanged for the end of a job whose JobMaster fails."""
    return _event(state, *termination.status_after_failure(state.status, reason), None)


def _event(state: StartedJob, status: JobStatus, reason: str | None, cause: int | None) -> OutgoingEvent:
    checkpoints, options = state.checkpoints, state.options.checkpointing
    body = client.JobStatusChanged(
        job_id=state.job_id,
        old_status=state.status,
        status=status,
        reason=reason,
        retains_checkpoints=subsumption.are_retained(checkpoints, options, status),
    )
    return OutgoingEvent(CLIENT, body, cause, state.tenant)


def is_independent(state: StartedJob, change: StatusChange) -> bool:
    """Whether other events may be decided with the change."""
    return (state.status, change.status) in _INDEPENDENT


def on_job_status_changed(state: StartedJob, record: Record, body: client.JobStatusChanged) -> StartedJob:
    before, cause = state.status, record.offset
    if body.old_status is not before:
        raise IllegalEvent(record, before.value, f"the job is not {body.old_status.value}")
    status = check_transition(before, body.status)
    requested = state.requested
    is_kept = requested is not None and requested.status is not status and status in (*ACTIVE, _SUSPENDED)
    state = replace(
        state, status=status, reason=body.reason, cause=cause, requested=requested if is_kept else None
    )
    if status in ENDING:
        return termination.begin_termination(state, cause)
    if status in JOB_ENDS:
        return termination.terminate(state, cause, retains_checkpoints=body.retains_checkpoints)
    return termination.resume_job(state, cause) if before is _SUSPENDED else state


STEPS: Mapping[type[Body], Step[StartedJob]] = {client.JobStatusChanged: on_job_status_changed}
