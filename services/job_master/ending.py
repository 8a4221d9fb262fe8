"""How a job comes to its end: finished, failed, cancelled or suspended (document 000).

A job that is to end before it has finished winds down: its tasks are cancelled, and it ends when each of them has
confirmed that. It does not end before its new status is announced, either: what the JobMaster had decided before it
knew is in the log by then, so that no task is submitted and no slot requested behind the end's back. Then the slots are
freed one by one, and the TaskExecutors, the Dispatcher and the ResourceManager are told.

When all that has been said, and the job's channels are gone, the JobMaster is at rest: it keeps a summary, which
answers whoever comes late. What it owes to them is all that it has then.
"""

from __future__ import annotations

from typing import Final

from immutables import Map
from msgspec.structs import replace

from ...schemas.states import JOB_ENDS
from ...schemas.types import ExecutionState, JobStatus
from . import execution_states, executions, job_status, scheduling
from .checkpoints import retention
from .state import Announcement, Ended, JobMasterState, Progress, Submissions

# Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md): these are asked for all the time.
_SAID: Final = Progress.SAID
_OWED: Final = Progress.OWED


def with_status(state: JobMasterState, status: JobStatus, cause: int) -> JobMasterState:
    """The job is in another state, which clients are to be told. Raises ValueError where it can't be."""
    announcement = Announcement(status, cause)
    return replace(
        state,
        status=job_status.check(state.status, status),
        cause=cause,
        announcements=(*state.announcements, announcement),
    )


def failed(state: JobMasterState, reason: str, cause: int) -> JobMasterState:
    """The job fails."""
    if state.status not in job_status.ACTIVE:
        return settled(state, cause)
    return _wind_down(replace(state, reason=reason), JobStatus.FAILING, cause)


def cancelled(state: JobMasterState, cause: int) -> JobMasterState:
    """The job is cancelled, also one that is suspended; one that is ending already goes on with that."""
    if state.status in job_status.ACTIVE or state.status is JobStatus.SUSPENDED:
        return _wind_down(replace(state, reason=None), JobStatus.CANCELLING, cause)
    return state


def suspended(state: JobMasterState, reason: str, cause: int) -> JobMasterState:
    """The job pauses: its progress stays, and it may be resumed or cancelled; one that is ending goes on with that."""
    if state.status not in job_status.ACTIVE:
        return state
    return _wind_down(replace(state, reason=reason), JobStatus.SUSPENDED, cause)


def can_resume(state: JobMasterState) -> bool:
    """Whether the job is suspended, and the Dispatcher has been told."""
    return state.status is JobStatus.SUSPENDED and state.terminal is _SAID


def resumed(state: JobMasterState, cause: int) -> JobMasterState:
    """The job starts again: what had not finished goes on, attempts counted on, in new slots."""
    state = replace(
        with_status(state, JobStatus.CREATED, cause),
        reason=None,
        registration=_OWED,
        # While it was suspended nobody could be told that they can't be created; what exists already is not touched.
        channels=_OWED,
        started=cause,
        terminal=None,
        goodbye=None,
    )
    state = scheduling.unscheduled(state)
    for vertex, attempt in sorted(state.current.items()):
        last = state.executions[attempt]
        number, prior = last.attempt_number, last.prior
        if last.state in (ExecutionState.CANCELED, ExecutionState.FAILED):
            number, prior = number + 1, attempt
            state = executions.without_prior(state, last)
        elif last.state is not ExecutionState.SCHEDULED:
            continue
        new = executions.created(state.job_id, vertex, number, cause, prior)
        state = replace(
            state,
            executions=state.executions.set(new.execution_attempt_id, new),
            current=state.current.set(vertex, new.execution_attempt_id),
        )
    state = replace(state, counts=replace(state.counts, scheduled=0))
    return scheduling.schedule(state, cause)


def settled(state: JobMasterState, cause: int) -> JobMasterState:
    """Ends the job if its last task has ended."""
    if state.status in job_status.ACTIVE:
        checkpoints = state.checkpoints
        if state.counts.finished < state.topology.subtasks or checkpoints.restoring is not None:
            return state
        if checkpoints.stop_is_pending:
            # All tasks have ended behind the barrier; the job has when the savepoint is complete.
            return state
        if state.status is JobStatus.CREATED:
            state = with_status(state, JobStatus.RUNNING, cause)
        return _ended(state, JobStatus.FINISHED, cause)
    if state.terminal is not None or state.counts.unfinished or state.announcements:
        return state
    end = job_status.END_OF.get(state.status)
    return state if end is None else _ended(state, end, cause)


def parting_words(state: JobMasterState) -> str:
    """What a JobMaster says when it lets go of slots and TaskExecutors (document 000)."""
    name = state.graph.name if state.graph else state.ended.name if state.ended else ""
    return f"Stopping JobMaster for job {name}({state.job_id})."


def at_rest(state: JobMasterState) -> bool:
    """Whether the job has ended for good, and its JobMaster has nothing left to say or to demand."""
    return state.terminal is _SAID and state.status in JOB_ENDS and not _owes(state)


def let_go(state: JobMasterState) -> JobMasterState:
    """What is at rest keeps its summary; anything else is as it was."""
    if state.terminal is not _SAID or not at_rest(state):
        return state
    name = state.graph.name if state.graph else ""
    kept = (*state.checkpoints.savepoints, *state.checkpoints.completed)
    ended = state.ended or Ended(
        name, Map(state.tasks()), state.required_slots, kept, state.root_cause, state.generation
    )
    return JobMasterState(
        job_id=state.job_id,
        status=state.status,
        reason=state.reason,
        cause=state.cause,
        terminal=state.terminal,
        ended=ended,
    )


def _owes(state: JobMasterState) -> bool:
    return bool(
        state.registration is not None
        or state.goodbye is _OWED
        or state.deletion is _OWED
        or state.announcements
        or state.connections_owing
        or state.answers
        or state.slots.returning
        or state.submissions.cancellations
        or state.checkpoints.owes
    )


def _wind_down(state: JobMasterState, status: JobStatus, cause: int) -> JobMasterState:
    cancellations = {
        attempt: cause
        for attempt in state.current.values()
        if state.executions[attempt].state in execution_states.DEPLOYED
        and state.executions[attempt].state is not ExecutionState.CANCELING
    }
    state = replace(
        with_status(state, status, cause),
        submissions=Submissions(cancellations=state.submissions.cancellations.update(cancellations)),
        checkpoints=state.checkpoints.winds_down(
            f"job {state.job_id} is {status.value}", cause, suspends=status is JobStatus.SUSPENDED
        ),
        assembling=False,
        terminal=None,
    )
    return settled(state, cause)


def _ended(state: JobMasterState, end: JobStatus, cause: int) -> JobMasterState:
    words = parting_words(state)
    if end is not JobStatus.SUSPENDED:
        state = _never_to_run(with_status(state, end, cause), cause)
        state = replace(state, checkpoints=retention.job_ended(state, cause))
    connections = {
        resource_id: replace(connection, farewell=_OWED, reason=words, cause=cause)
        for resource_id, connection in state.connections.items()
    }
    was_registered = state.registration in (_SAID, Progress.DONE)
    return replace(
        state,
        cause=cause,
        slots=state.slots.give_back_all(words, cause),
        sharing=type(state.sharing)(),
        answers=Map(
            {offset: replace(each, accepted=()) for offset, each in state.answers.items() if each.rejected}
        ),
        submissions=Submissions(cancellations=state.submissions.cancellations),
        connections=state.connections.update(connections),
        connections_owing=state.connections_owing.update(dict.fromkeys(connections, cause)),
        registration=None,
        deletion=_OWED if state.channels and end in JOB_ENDS else None,
        terminal=_OWED,
        goodbye=_OWED if was_registered else state.goodbye,
    )


def _never_to_run(state: JobMasterState, cause: int) -> JobMasterState:
    waiting = {
        attempt: replace(execution, state=ExecutionState.CANCELED, cause=cause)
        for attempt, execution in state.executions.items()
        if execution.state in (ExecutionState.CREATED, ExecutionState.SCHEDULED)
    }
    counts = replace(state.counts, scheduled=0)
    return replace(state, executions=state.executions.update(waiting), counts=counts)
