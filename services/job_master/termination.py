"""The end of a job: finished, failed, cancelled or suspended.

Before a job fails, is cancelled or suspended, its tasks are cancelled, and it ends when each has confirmed that. Then
its slots are freed, and the TaskExecutors, the Dispatcher and the ResourceManager are informed.

When all events are sent, and the job's channels are deleted, the JobMaster is quiescent: it keeps a summary, from which
it answers late requests. A JobMaster that fails keeps the summary at once, with the cleanup of the job (cleanup.py).
"""

from __future__ import annotations

from typing import Final

from immutables import Map
from msgspec.structs import replace

from ...schemas.states import JOB_ENDS
from ...schemas.types import ExecutionState, JobStatus
from ..core.outbox import Outbox, OwedEvent, remove_owed, with_outbox
from . import cleanup, execution_states, executions, job_status, scheduling
from .checkpoints import subsumption
from .checkpoints.state import Checkpoints, Discard
from .checkpoints.stop_phase import StopPhase
from .owed_events import (
    JobMasterEvent,
    OwedCancelTask,
    OwedCheckpointFailed,
    OwedCheckpointSucceeded,
    OwedDisconnectJobManager,
    OwedJobReachedTerminalState,
    OwedRegisterJobManager,
    OwedRescaleFailed,
    OwedSlotsAccepted,
    OwedUnregisterJobManager,
    TerminatedJobEvent,
)
from .state import (
    ChannelsState,
    ConnectionState,
    RegistrationState,
    StartedJob,
    StatusChange,
    TerminatedJob,
)

_FINAL: Final = (
    OwedCheckpointSucceeded,
    OwedCheckpointFailed,
    OwedRescaleFailed,
    OwedDisconnectJobManager,
    OwedJobReachedTerminalState,
    OwedUnregisterJobManager,
)
"""Events that other roles wait for after the end of a job."""
_SHOWN = 100
"""The length of the job's name: the text is sent for each slot."""


def fail_job(state: StartedJob, reason: str, cause: int) -> StartedJob:
    """Requires that the job fails, unless it ends already."""
    if state.status not in job_status.ACTIVE or state.requested is not None:
        return state
    return replace(state, requested=StatusChange(JobStatus.FAILING, reason, cause))


def cancel_job(state: StartedJob, cause: int) -> StartedJob:
    """Requires that the job is cancelled, also a suspended one. A job that is already ending continues to end."""
    requested = state.requested
    if state.status not in job_status.ACTIVE and state.status is not JobStatus.SUSPENDED:
        return state
    if requested is not None and requested.status not in (JobStatus.SUSPENDED, JobStatus.CREATED):
        return state
    return replace(state, requested=StatusChange(JobStatus.CANCELLING, None, cause))


def suspend_job(state: StartedJob, reason: str, cause: int) -> StartedJob:
    """Requires that the job is suspended: it keeps its progress, and may be resumed or cancelled. A job that is already
    ending continues to end."""
    requested = state.requested
    if requested is None:
        if state.status not in job_status.ACTIVE or state.checkpoints.stop is StopPhase.SAVED:
            return state
    elif requested.status is not JobStatus.CREATED:
        return state
    return replace(state, requested=StatusChange(JobStatus.SUSPENDED, reason, cause))


def abandon_job(state: StartedJob, reason: str, cause: int) -> StartedJob | TerminatedJob:
    """Requires that the job ends at once, without waiting for its tasks, because the JobMaster cannot decide.

    Tasks are forgotten, and checkpoints in progress are discarded; TaskExecutors cancel the tasks when they are asked
    to release the job. If that cannot be sent either, a second call keeps only the job's end and its cleanup.
    """
    if state.status in JOB_ENDS:
        # TaskExecutors free the job's slots, and cancel its tasks, when they read that it has ended.
        why = f"the JobMaster of job {state.job_id} failed"
        answered = _reject_requests(state, why)
        # The Dispatcher may not know the result yet.
        result = replace(_summary(state), accumulators=state.accumulators, outbox=answered.outbox)
        return keep_final_events(result)
    before = state.checkpoints
    checkpoints = Checkpoints(
        counter=before.counter,
        completed=before.completed,
        savepoints=before.savepoints,
        keep_on_cancellation=before.keep_on_cancellation,
        latest=before.latest,
        discarding=before.discarding.update(
            {
                number: Discard(number, each.options.directory, completed=False, cause=cause)
                for number, each in before.pending.items()
            }
        ),
    )
    executions_left = {
        attempt: replace(execution, state=ExecutionState.FAILED, cause=cause)
        for attempt, execution in state.executions.items()
        if execution.state in execution_states.DEPLOYED
    }
    state = replace(
        _reject_requests(state, reason),
        checkpoints=checkpoints,
        executions=state.executions.update(executions_left),
        counts=replace(state.counts, unfinished=0, running=0),
        is_waiting_for_slots=False,
        requested=StatusChange(*status_after_failure(state.status, reason), cause),
    )
    return with_outbox(state, _without(state.outbox, OwedCancelTask))


def status_after_failure(status: JobStatus, reason: str) -> tuple[JobStatus, str | None]:
    """Returns the end of a job whose JobMaster fails, and the reason."""
    return (JobStatus.CANCELED, None) if status is JobStatus.CANCELLING else (JobStatus.FAILED, reason)


def can_resume(state: StartedJob) -> bool:
    """Whether the job is suspended and the Dispatcher knows it."""
    is_suspended = state.has_ended and state.status is JobStatus.SUSPENDED and state.requested is None
    return is_suspended and state.outbox.get(OwedJobReachedTerminalState) is None


def resume_job(state: StartedJob, cause: int) -> StartedJob:
    """Restarts a job that was suspended: unfinished tasks continue in new slots, with the next attempt numbers."""
    state = replace(
        state,
        registration=RegistrationState.REGISTERING,
        # While it was suspended, a failure to create them could not be reported; existing ones are not changed.
        channels=ChannelsState.CREATING,
        start_offset=cause,
        checkpoints=replace(state.checkpoints, failures=Map()),
        outbox=state.outbox.remove(OwedUnregisterJobManager).owe(OwedRegisterJobManager(cause)),
    )
    state = scheduling.unscheduled(state)
    for vertex, attempt in sorted(state.current_attempts.items()):
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
            current_attempts=state.current_attempts.set(vertex, new.execution_attempt_id),
        )
    state = replace(state, counts=replace(state.counts, scheduled=0))
    return scheduling.schedule(state, cause)


def disconnect_reason(state: StartedJob | TerminatedJob) -> str:
    """Returns the reason with which the JobMaster releases slots and TaskExecutors."""
    name = state.name if isinstance(state, TerminatedJob) else state.graph.name
    return f"Stopping JobMaster for job {name[:_SHOWN]}({state.job_id})."


def compact_terminated(state: StartedJob) -> StartedJob | TerminatedJob:
    """Reduces a job that is over, and has nothing left to send or to instruct, to its summary; any other is
    unchanged."""
    return state if state.status not in JOB_ENDS or _has_outgoing(state) else _summary(state)


def _summary(state: StartedJob) -> TerminatedJob:
    """Returns the summary of a job that has ended."""
    return TerminatedJob(
        job_id=state.job_id,
        status=state.status,
        reason=state.reason,
        name=state.graph.name,
        tasks=Map(state.tasks),
        required_slots=state.required_slots,
        retained_checkpoints=(*state.checkpoints.savepoints, *state.checkpoints.retained),
        root_cause=state.root_cause,
        generation=state.generation,
        is_forgotten=state.is_forgotten,
        cleanup=cleanup.cleanup_of(state),
    )


def keep_final_events(state: TerminatedJob) -> TerminatedJob:
    """Drops events that no role needs after the end of a job: one of them may be the event that cannot be sent."""
    final = (event for event in state.outbox if isinstance(event, _FINAL))
    return replace(state, outbox=Outbox[TerminatedJobEvent]().owe_all(final))


def _without(outbox: Outbox[JobMasterEvent], *kinds: type[OwedEvent]) -> Outbox[JobMasterEvent]:
    return outbox.remove_all(event for event in outbox if isinstance(event, kinds))


def _reject_requests(state: StartedJob, reason: str) -> StartedJob:
    """Owes CheckpointFailed to all clients that wait for a checkpoint, and RescaleFailed to those that wait for another
    parallelism."""
    checkpoints = state.checkpoints
    triggered = (each for pending in checkpoints.pending.values() for each in pending.requests)
    failed = [
        OwedCheckpointFailed(each.offset, each.requester, reason, each.tenant)
        for each in (*checkpoints.requests, *triggered)
    ]
    current = state.rescaling.current
    unscaled = [
        OwedRescaleFailed(each.offset, each.requester, reason, each.tenant)
        for each in (*state.rescaling.requests, *(() if current is None else (current.request,)))
    ]
    state = replace(
        state,
        checkpoints=replace(checkpoints, requests=()),
        rescaling=replace(state.rescaling, requests=(), current=None),
    )
    return with_outbox(state, state.outbox.owe_all([*failed, *unscaled]))


def _has_outgoing(state: StartedJob) -> bool:
    return bool(
        state.outbox
        or state.checkpoints.requests
        or state.rescaling.requests
        or state.rescaling.current is not None
        or state.channels is not ChannelsState.DELETED
        or state.checkpoints.has_outgoing
    )


def begin_termination(state: StartedJob, cause: int) -> StartedJob:
    """Cancels the tasks: the job fails, is cancelled or suspended."""
    why, suspends = f"job {state.job_id} is {state.status.value}", state.status is JobStatus.SUSPENDED
    state = replace(
        cancel_tasks(state, cause),
        checkpoints=state.checkpoints.begin_termination(why, cause, suspends=suspends),
        is_waiting_for_slots=False,
        pending_failure=None,
    )
    return remove_owed(state, OwedJobReachedTerminalState)


def cancel_tasks(state: StartedJob, cause: int) -> StartedJob:
    """Cancels all submitted tasks, and submits no other."""
    current = (state.executions[attempt] for attempt in state.current_attempts.values())
    owed = [
        OwedCancelTask(cause, each.execution_attempt_id, each.resource_id or "")
        for each in current
        if each.state in execution_states.DEPLOYED and each.state is not ExecutionState.CANCELING
    ]
    return replace(state, ready=Outbox(), outbox=state.outbox.owe_all(owed))


def terminate(state: StartedJob, cause: int, *, retains_checkpoints: bool) -> StartedJob:
    """Ends the job: it is finished, failed or cancelled."""
    state = _cancel_undeployed(state, cause)
    checkpoints = replace(subsumption.on_job_end(state, cause), are_retained=retains_checkpoints)
    return _release(replace(state, checkpoints=checkpoints), cause)


def release_suspended(state: StartedJob, cause: int) -> StartedJob:
    """Releases the slots of a suspended job when it has no task any more."""
    is_held = state.status is JobStatus.SUSPENDED and state.registration is not RegistrationState.CLOSED
    return _release(state, cause) if is_held and not state.counts.unfinished else state


def _release(state: StartedJob, cause: int) -> StartedJob:
    words = disconnect_reason(state)
    pool, returns = state.slots.give_back_all(words, cause)
    owed: list[JobMasterEvent] = [
        *returns,
        *(OwedDisconnectJobManager(cause, resource_id, words) for resource_id in state.connections),
        OwedJobReachedTerminalState(cause),
    ]
    was_sent = state.outbox.get(OwedRegisterJobManager) is None
    if was_sent and state.registration is not RegistrationState.CLOSED:
        owed.append(OwedUnregisterJobManager(cause))
    return replace(
        state,
        cause=cause,
        slots=pool,
        sharing=type(state.sharing)(),
        ready=Outbox(),
        pending_failure=None,
        connections=Map(dict.fromkeys(state.connections, ConnectionState.DISCONNECTING)),
        registration=RegistrationState.CLOSED,
        outbox=_without(state.outbox, OwedRegisterJobManager, OwedSlotsAccepted).owe_all(owed),
    )


def _cancel_undeployed(state: StartedJob, cause: int) -> StartedJob:
    waiting = {
        attempt: replace(execution, state=ExecutionState.CANCELED, cause=cause)
        for attempt, execution in state.executions.items()
        if execution.state in (ExecutionState.CREATED, ExecutionState.SCHEDULED)
    }
    counts = replace(state.counts, scheduled=0)
    return replace(state, executions=state.executions.update(waiting), counts=counts)
