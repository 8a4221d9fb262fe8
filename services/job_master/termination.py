"""The end of a job: finished, failed, cancelled or suspended.

Before a job fails, is cancelled or suspended, its tasks are cancelled, and it ends when each has confirmed that. It
also announces its new status first: by then earlier decisions of the JobMaster are in the log, so that no task is
submitted and no slot requested behind the end. Then its slots are freed, and the TaskExecutors, the Dispatcher and the
ResourceManager are informed.

A job that is stopped with a savepoint has finished when the savepoint is complete and no task is left. A task that
acknowledged it has committed and published everything before it, and does nothing behind it: if it is lost before its
own end, no other attempt is needed. Flink's sinks may have open transactions then, so it restarts the job
(StopWithSavepointTerminationHandler); here a savepoint leaves none open.

When all events are sent, and the job's channels are deleted, the JobMaster is quiescent: it keeps a summary, from which
it answers late requests. A JobMaster that fails keeps the summary at once, with the cleanup of the job (cleanup.py).
"""

from __future__ import annotations

from typing import Final

from immutables import Map
from msgspec.structs import replace

from ...pipelines.graph.accumulators import bounded
from ...schemas.states import JOB_ENDS
from ...schemas.types import ExecutionState, JobStatus
from . import cleanup, execution_states, executions, job_status, scheduling
from .checkpoints import subsumption
from .checkpoints.pending_checkpoint import PendingCheckpoint
from .checkpoints.state import Answer, Checkpoints, Discard
from .state import Handshake, JobMasterState, StatusNotification, Submissions, TerminatedJob

# Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md): these are asked for all the time.
_SAID: Final = Handshake.SAID
_OWED: Final = Handshake.OWED
_SHOWN = 100
"""Characters of the job's name: the words are said for each slot."""


def with_status(state: JobMasterState, status: JobStatus, cause: int) -> JobMasterState:
    """The job with another status, which clients are informed of. Raises ValueError for an illegal transition."""
    announcement = StatusNotification(status, cause)
    return replace(
        state,
        status=job_status.check_transition(state.status, status),
        cause=cause,
        status_notifications=(*state.status_notifications, announcement),
    )


def fail_job(state: JobMasterState, reason: str, cause: int) -> JobMasterState:
    """The job fails."""
    if state.status not in job_status.ACTIVE:
        return finish_if_done(state, cause)
    return _begin_termination(replace(state, reason=reason), JobStatus.FAILING, cause)


def cancel_job(state: JobMasterState, cause: int) -> JobMasterState:
    """Cancels the job, also a suspended one. A job that is already ending continues to end."""
    if state.status in job_status.ACTIVE or state.status is JobStatus.SUSPENDED:
        return _begin_termination(replace(state, reason=None), JobStatus.CANCELLING, cause)
    return state


def suspend_job(state: JobMasterState, reason: str, cause: int) -> JobMasterState:
    """Suspends the job: it keeps its progress, and may be resumed or cancelled. A job that is already ending continues
    to end."""
    if state.status not in job_status.ACTIVE or state.checkpoints.stopping:
        return state
    return _begin_termination(replace(state, reason=reason), JobStatus.SUSPENDED, cause)


def finish_stopped_job(state: JobMasterState, savepoint: PendingCheckpoint, cause: int) -> JobMasterState:
    """The savepoint that the job ends with is complete: tasks that were lost meanwhile do not restart.

    The others end when they are told to; with the last of them the job has finished.
    """
    counted = {
        vertex: bounded({**state.accumulators.get(vertex, {}), **each.state.accumulators})
        for vertex, each in savepoint.acknowledged.items()
        if each.state.accumulators
    }
    submissions = Submissions(cancellations=state.submissions.cancellations)
    state = replace(state, submissions=submissions, accumulators=state.accumulators.update(counted))
    for attempt in sorted(state.current.values()):
        execution = state.executions[attempt]
        if execution.state is ExecutionState.SCHEDULED:
            state = executions.transition(state, execution, ExecutionState.CANCELED, cause)
    pool, why = state.slots, f"job {state.job_id} is stopped with a savepoint"
    for allocation_id in sorted(pool.requests):
        pool = pool.give_back(allocation_id, why, cause)
    return finish_if_done(replace(state, slots=pool), cause)


def abandon_job(state: JobMasterState, reason: str, cause: int) -> JobMasterState:
    """The JobMaster can't decide: the job ends at once, without waiting for its tasks.

    Tasks are forgotten, and checkpoints in progress are discarded; TaskExecutors cancel the tasks when they are told to
    release the job. If that can't be sent either, a second call keeps only the job's end and its cleanup.
    """
    if not state.known or is_quiescent(state):
        return state
    if state.status in JOB_ENDS:
        return _keep_final_events(state, cause)
    if state.status is JobStatus.SUSPENDED:
        state = with_status(state, JobStatus.CREATED, cause)
    if state.status in job_status.ACTIVE:
        state = with_status(replace(state, reason=reason), JobStatus.FAILING, cause)
    before = state.checkpoints
    requests = [*before.requests, *(each for pending in before.pending.values() for each in pending.requests)]
    checkpoints = Checkpoints(
        counter=before.counter,
        completed=before.completed,
        savepoints=before.savepoints,
        keep_on_cancellation=before.keep_on_cancellation,
        latest=before.latest,
        answers=before.answers,
        discarding=before.discarding.update(
            {
                number: Discard(number, each.options.directory, completed=False, cause=cause)
                for number, each in before.pending.items()
            }
        ),
    ).with_answer(requests, Answer("", reason=reason))
    executions_left = {
        attempt: replace(execution, state=ExecutionState.FAILED, cause=cause)
        for attempt, execution in state.executions.items()
        if execution.state in execution_states.DEPLOYED
    }
    state = replace(
        state,
        checkpoints=checkpoints,
        executions=state.executions.update(executions_left),
        counts=replace(state.counts, unfinished=0, running=0),
        submissions=Submissions(),
        waiting_for_all_slots=False,
    )
    return replace(_terminate(state, job_status.END_OF[state.status], cause), submissions=Submissions())


def can_resume(state: JobMasterState) -> bool:
    """Whether the job is suspended and the Dispatcher knows it."""
    return state.status is JobStatus.SUSPENDED and state.terminal_notification is _SAID


def resume_job(state: JobMasterState, cause: int) -> JobMasterState:
    """Restarts a suspended job: unfinished tasks continue in new slots, with the next attempt numbers."""
    state = replace(
        with_status(state, JobStatus.CREATED, cause),
        reason=None,
        registration=_OWED,
        # While it was suspended nobody could be told that they can't be created; what exists already is not touched.
        channels=_OWED,
        started=cause,
        terminal_notification=None,
        rm_disconnect=None,
    )
    state = scheduling.unscheduled(state)
    for vertex, attempt in sorted(state.current.items()):
        last = state.executions[attempt]
        number, prior = last.attempt_number, last.prior
        if last.state in (ExecutionState.CANCELED, ExecutionState.FAILED):
            number, prior = number + 1, attempt
            state = executions.forget_previous(state, last)
        elif last.state is not ExecutionState.SCHEDULED:
            continue
        new = executions.new_attempt(state.job_id, vertex, number, cause, prior)
        state = replace(
            state,
            executions=state.executions.set(new.execution_attempt_id, new),
            current=state.current.set(vertex, new.execution_attempt_id),
        )
    state = replace(state, counts=replace(state.counts, scheduled=0))
    return scheduling.schedule(state, cause)


def finish_if_done(state: JobMasterState, cause: int) -> JobMasterState:
    """Ends the job if its last task has ended."""
    if state.status in job_status.ACTIVE:
        checkpoints = state.checkpoints
        if checkpoints.restoring is not None or checkpoints.stop_is_pending:
            # Of a savepoint that the job ends with: all tasks may have ended; the job has when it is complete.
            return state
        left = state.counts.unfinished if checkpoints.stopping else _count_unfinished(state)
        if left:
            return state
        if state.status is JobStatus.CREATED:
            state = with_status(state, JobStatus.RUNNING, cause)
        return _terminate(state, JobStatus.FINISHED, cause)
    if state.terminal_notification is not None or state.counts.unfinished or state.status_notifications:
        return state
    end = job_status.END_OF.get(state.status)
    return state if end is None else _terminate(state, end, cause)


def finish_suspended_stop(state: JobMasterState, cause: int) -> JobMasterState:
    """Finishes a job that was suspended while it stopped, if the savepoint it was to end with is complete."""
    state = with_status(with_status(state, JobStatus.CREATED, cause), JobStatus.RUNNING, cause)
    return _terminate(replace(state, reason=None), JobStatus.FINISHED, cause)


def disconnect_reason(state: JobMasterState) -> str:
    """The reason that the JobMaster gives when it releases slots and TaskExecutors."""
    name = state.graph.name if state.graph else state.terminated.name if state.terminated else ""
    return f"Stopping JobMaster for job {name[:_SHOWN]}({state.job_id})."


def is_quiescent(state: JobMasterState) -> bool:
    """Whether the job has ended, and its JobMaster has nothing left to send or to instruct."""
    return state.terminal_notification is _SAID and state.status in JOB_ENDS and not _has_outgoing(state)


def compact_terminated(state: JobMasterState) -> JobMasterState:
    """Reduces a quiescent state to its summary; any other state is unchanged."""
    if state.terminal_notification is not _SAID or not is_quiescent(state):
        return state
    return _summary(state)


def _summary(state: JobMasterState) -> JobMasterState:
    """What is kept of a job that has ended."""
    name = state.graph.name if state.graph else ""
    kept = (*state.checkpoints.savepoints, *cleanup.retained_of(state))
    ended = state.terminated or TerminatedJob(
        name,
        Map(state.tasks()),
        state.required_slots,
        kept,
        state.root_cause,
        state.generation,
        cleanup.cleanup_of(state),
    )
    return JobMasterState(
        job_id=state.job_id,
        status=state.status,
        reason=state.reason,
        cause=state.cause,
        terminal_notification=state.terminal_notification,
        terminated=ended,
    )


def _keep_final_events(state: JobMasterState, cause: int) -> JobMasterState:
    """The summary of an ended job, with the report of its end if that was not sent yet."""
    # TaskExecutors free the job's slots, and cancel its tasks, when they hear that.
    parting = {
        resource_id: replace(
            each, registration=Handshake.DONE, disconnect=_OWED, reason=disconnect_reason(state), cause=cause
        )
        for resource_id, each in state.connections.items()
        if each.disconnect is not _SAID
    }
    before = state.checkpoints
    unanswered = [
        *before.requests,
        *(each for pending in before.pending.values() for each in pending.requests),
    ]
    why = f"the JobMaster of job {state.job_id} failed"
    return replace(
        _summary(state),
        cause=cause,
        checkpoints=Checkpoints(answers=before.answers).with_answer(unanswered, Answer("", reason=why)),
        terminal_notification=state.terminal_notification or _OWED,
        rm_disconnect=state.rm_disconnect if state.terminated is not None else state.rm_disconnect or _OWED,
        connections=Map(parting),
        connections_owing=Map(dict.fromkeys(parting, cause)),
    )


def _count_unfinished(state: JobMasterState) -> int:
    return state.topology.subtasks - state.counts.finished


def _has_outgoing(state: JobMasterState) -> bool:
    return bool(
        state.registration is not None
        or state.rm_disconnect is _OWED
        or state.deletion is _OWED
        or state.status_notifications
        or state.connections_owing
        or state.answers
        or state.slots.returning
        or state.submissions.cancellations
        or state.checkpoints.has_outgoing
        or (state.terminated is not None and state.terminated.cleanup)
    )


def _begin_termination(state: JobMasterState, status: JobStatus, cause: int) -> JobMasterState:
    cancellations = {
        attempt: cause
        for attempt in state.current.values()
        if state.executions[attempt].state in execution_states.DEPLOYED
        and state.executions[attempt].state is not ExecutionState.CANCELING
    }
    state = replace(
        with_status(state, status, cause),
        submissions=Submissions(cancellations=state.submissions.cancellations.update(cancellations)),
        checkpoints=state.checkpoints.begin_termination(
            f"job {state.job_id} is {status.value}", cause, suspends=status is JobStatus.SUSPENDED
        ),
        waiting_for_all_slots=False,
        terminal_notification=None,
    )
    return finish_if_done(state, cause)


def _terminate(state: JobMasterState, end: JobStatus, cause: int) -> JobMasterState:
    words = disconnect_reason(state)
    if end is not JobStatus.SUSPENDED:
        state = _cancel_undeployed(with_status(state, end, cause), cause)
        state = replace(state, checkpoints=subsumption.on_job_end(state, cause))
    connections = {
        resource_id: replace(connection, disconnect=_OWED, reason=words, cause=cause)
        for resource_id, connection in state.connections.items()
    }
    was_registered = state.registration in (_SAID, Handshake.DONE)
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
        terminal_notification=_OWED,
        rm_disconnect=_OWED if was_registered else state.rm_disconnect,
    )


def _cancel_undeployed(state: JobMasterState, cause: int) -> JobMasterState:
    waiting = {
        attempt: replace(execution, state=ExecutionState.CANCELED, cause=cause)
        for attempt, execution in state.executions.items()
        if execution.state in (ExecutionState.CREATED, ExecutionState.SCHEDULED)
    }
    counts = replace(state.counts, scheduled=0)
    return replace(state, executions=state.executions.update(waiting), counts=counts)
