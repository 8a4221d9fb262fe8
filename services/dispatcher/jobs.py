"""The jobs of a cluster from submission to end: the events that the Dispatcher handles and sends for them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from msgspec.structs import replace

from ...infra.config.option_types import LOCATION
from ...pipelines.graph import job_options, limits, python_files
from ...pipelines.graph.validation import validate
from ...schemas import client, dispatcher, job_master
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.ids import is_id
from ...schemas.states import JOB_ENDS
from ...schemas.types import EntryPoint, JobStatus
from ..blobs import job_blobs
from ..configuration.role_options import job_configuration
from ..core.immutable_maps import delete_key
from ..core.role import JOB_MASTER, IllegalEvent, OutgoingEvent, Step, address
from . import checkpoints
from .state import (
    CANCELLED_BEFORE_BUILT,
    TRANSITIONS,
    DispatcherState,
    Job,
    Phase,
    Rejection,
    RejectionKind,
    rejection_reason,
)

PARALLEL_BUILDS = 2
"""Programs that are built at the same time."""
MAX_INSTRUCTED_BUILDS = 8
"""Programs that the shell knows of at a time; the others wait in the state, and cost nothing."""
MAX_WAITING_BUILDS = 10_000
"""Programs that wait to be built; further ones are rejected."""
_REASONS = 5
_SHOWN = 1_000
"""Characters of the reason for which the cluster ends."""


def _job(state: DispatcherState, record: Record, job_id: str, phase: Phase) -> Job:
    job = state.jobs.get(job_id)
    if job is None or job.phase is not phase:
        now = "unknown" if job is None else job.phase.value
        raise IllegalEvent(record, now, f"job {job_id} is not in phase {phase.value}")
    return job


def on_submit_job(state: DispatcherState, record: Record, body: dispatcher.SubmitJob) -> DispatcherState:
    requester = record.header.sender
    if (fault := _find_request_error(state, body)) is not None:
        refusal = Rejection(requester, body.job_id, fault)
        return replace(state, refusals=state.refusals.set(record.offset, refusal))
    fault = _find_job_error(state, body)
    job = Job(
        job_id=body.job_id,
        requester=requester,
        phase=Phase.BUILDING if body.job_graph is None else Phase.ADMITTED,
        cause=record.offset,
        name=body.job_graph.name if body.job_graph else "",
        graph=body.job_graph,
        entry_point=body.entry_point,
        parallelism=body.parallelism,
        savepoint_path=None if body.savepoint_path is None else LOCATION.read(body.savepoint_path),
        allow_non_restored_state=body.allow_non_restored_state,
    )
    if fault is None:
        return state.put(job)
    refusal = Rejection(requester, body.job_id, fault, job=job)
    return replace(state, refusals=state.refusals.set(record.offset, refusal))


def _find_request_error(state: DispatcherState, body: dispatcher.SubmitJob) -> str | None:
    """An error that every release rejects."""
    if not is_id(body.job_id):
        return f"job id {body.job_id[:80]!r} is not 1 to 64 letters, digits, '-' or '_': choose another"
    if body.job_id in state.jobs:
        return f"job {body.job_id} {_describe_outcome(state.jobs[body.job_id])}: choose another job id"
    if (body.job_graph is None) == (body.entry_point is None):
        return "exactly one of job_graph and entry_point must be given"
    if body.savepoint_path is not None:
        return checkpoints.find_location_error(body.savepoint_path, what="the savepoint")
    return None


def _find_job_error(state: DispatcherState, body: dispatcher.SubmitJob) -> str | None:
    if state.ending is not None:
        return f"the cluster is shutting down ({state.ending.reason[:_SHOWN]}): submit again when it has been started"
    if body.parallelism is not None and body.parallelism < 1:
        return f"parallelism {body.parallelism} is impossible: give 1 or more"
    if body.job_graph is None and len(state.building) >= MAX_WAITING_BUILDS:
        return f"{MAX_WAITING_BUILDS:,} programs wait to be built already: submit again later"
    what = body.job_graph or body.entry_point
    if what is not None and (of_blobs := job_blobs.find_fault(what, body.job_id)) is not None:
        return of_blobs
    if body.job_graph is not None:
        return _join_some(validate(body.job_graph)) or None
    return None if body.entry_point is None else _find_program_error(body.entry_point)


_ENDED = {JobStatus.FINISHED: "finished", JobStatus.FAILED: "failed", JobStatus.CANCELED: "was cancelled"}


def _describe_outcome(job: Job) -> str:
    """A hint for a repeated job id: an ended job is never run again, and its end is in the log."""
    if job.phase in (Phase.TERMINATED, Phase.ENDED):
        return f"{_ENDED[job.status]} at offset {job.cause}"
    return f"was submitted before and is {job.status.value}"


def _find_program_error(entry_point: EntryPoint) -> str | None:
    if faults := job_options.faults(entry_point.configuration):
        return f"configuration: {'; '.join(faults)}"
    faults = [
        *limits.entry_point_errors(entry_point),
        *python_files.validation_errors(entry_point.python_files),
    ]
    return _join_some(faults) or None


def _join_some(reasons: list[str]) -> str:
    """The first few reasons: a graph may have more errors than an answer can hold."""
    left = len(reasons) - _REASONS
    return "; ".join(reasons[:_REASONS]) + (f"; and {left} more" if left > 0 else "")


def on_job_graph_built(
    state: DispatcherState, record: Record, body: dispatcher.JobGraphBuilt
) -> DispatcherState:
    state = _admit_built_job(state, record, body.job_id)
    job, graph = _job(state, record, body.job_id, Phase.BUILDING), body.job_graph
    fault = job_blobs.find_fault(graph, body.job_id) or _join_some(validate(graph))
    admitted = job.transition(
        Phase.ADMITTED, cause=record.offset, name=graph.name, graph=graph, withdrawn=False
    )
    if fault:
        return _reject(state, record, job, fault, admitted)
    return state.put(replace(admitted, cancellers=()))


def on_job_graph_failed(
    state: DispatcherState, record: Record, body: dispatcher.JobGraphFailed
) -> DispatcherState:
    state = _admit_built_job(state, record, body.job_id)
    return _reject(state, record, _job(state, record, body.job_id, Phase.BUILDING), body.reason)


def _reject(
    state: DispatcherState, record: Record, job: Job, reason: str, accepted: Job | None = None
) -> DispatcherState:
    """Rejects a job; its id stays free. `accepted`: the job to restore if a leader accepts it nevertheless."""
    refusal = Rejection(job.requester, job.job_id, reason, job=accepted)
    state = replace(state, refusals=state.refusals.set(record.offset, refusal))
    return _forget_job(state, job, rejection_reason(job.job_id, reason))


def _forget_job(state: DispatcherState, job: Job, why: str) -> DispatcherState:
    """Removes a job, and answers clients that asked to cancel it while it was built."""
    refusals = state.refusals
    for offset, canceller in job.cancellers:
        refusals = refusals.set(offset, Rejection(canceller, job.job_id, why, RejectionKind.CANCELLATION))
    return replace(state.without(job.job_id), refusals=refusals)


def _restore_job(state: DispatcherState, record: Record, job_id: str) -> DispatcherState:
    """Restores a job that this release would reject, if the log shows that a leader accepted it."""
    cause = record.header.cause
    refusal = None if cause is None else state.refusals.get(cause)
    if cause is None or refusal is None or refusal.job is None or refusal.job_id != job_id:
        return state
    if job_id in state.jobs:
        return state
    job, refusals = refusal.job, state.refusals.delete(cause)
    for offset, _ in job.cancellers:
        refusals = delete_key(refusals, offset)
    restored = job if job.phase is Phase.BUILDING else replace(job, cancellers=())
    return replace(state, refusals=refusals).put(restored)


def _admit_built_job(state: DispatcherState, record: Record, job_id: str) -> DispatcherState:
    """As `_restore_job`; also drops the pending rejection of a job that was cancelled while it waited."""
    state = _restore_job(state, record, job_id)
    job = state.jobs.get(job_id)
    if job is None or not job.withdrawn:
        return state
    return replace(state, refusals=delete_key(state.refusals, job.cause))


def on_job_rejected(state: DispatcherState, record: Record, body: client.JobRejected) -> DispatcherState:
    """A leader rejected the job: it is removed, whatever this release would decide."""
    state = _rejection_sent(state, record, body)
    job = state.jobs.get(body.job_id)
    if job is None or job.cause != record.header.cause or job.phase not in (Phase.BUILDING, Phase.ADMITTED):
        return state
    return _forget_job(state, job, rejection_reason(job.job_id, body.reason))


def _rejection_sent(
    state: DispatcherState,
    record: Record,
    _body: client.JobRejected | client.CancelJobRejected | client.CheckpointFailed,
) -> DispatcherState:
    cause = record.header.cause
    if cause is None or cause not in state.refusals:
        return state
    return replace(state, refusals=state.refusals.delete(cause))


def on_job_accepted(state: DispatcherState, record: Record, body: client.JobAccepted) -> DispatcherState:
    state = _restore_job(state, record, body.job_id)
    return state.put(_job(state, record, body.job_id, Phase.ADMITTED).transition(Phase.ACCEPTED))


def on_start_job(state: DispatcherState, record: Record, body: job_master.StartJob) -> DispatcherState:
    job = _job(state, record, body.job_id, Phase.ACCEPTED)
    started = job.transition(
        _next_phase(job),
        cause=record.offset,
        graph=None,
        entry_point=None,
        status=JobStatus.RUNNING,
        savepoint_path=body.savepoint_path,
    )
    return state.put(started)


def _next_phase(job: Job) -> Phase:
    """The phase after the JobMaster has received the job, or its resumption."""
    if job.cancel:
        return Phase.CANCEL_REQUESTED
    return Phase.SUSPEND_REQUESTED if job.suspend else Phase.RUNNING


def on_cancel_job(state: DispatcherState, record: Record, body: dispatcher.CancelJob) -> DispatcherState:
    job_id = body.job_id
    job = state.jobs.get(job_id)
    if job is None or job.phase in (Phase.TERMINATED, Phase.ENDED):
        state = _cancel_if_accepted(state, record, job_id)
        what = "is unknown" if job is None else f"has ended already: {job.status.value}"
        refusal = Rejection(
            record.header.sender, job_id, f"job {job_id[:80]} {what}", RejectionKind.CANCELLATION
        )
        return replace(state, refusals=state.refusals.set(record.offset, refusal))
    if not job.cancel and body.keep_checkpoints:
        job = replace(job, keep_checkpoints=True)
    if job.phase is Phase.BUILDING:
        cancellers = (*job.cancellers, (record.offset, record.header.sender))
        return _withdraw(state, replace(job, cancellers=cancellers, cancel=True))
    return request_cancel(state, job, record.offset)


def _cancel_if_accepted(state: DispatcherState, record: Record, job_id: str) -> DispatcherState:
    for offset, refusal in state.refusals.items():
        if refusal.job is not None and refusal.job_id == job_id:
            cancellers = (*refusal.job.cancellers, (record.offset, record.header.sender))
            job = replace(refusal.job, cancel=True, cancellers=cancellers)
            return replace(state, refusals=state.refusals.set(offset, replace(refusal, job=job)))
    return state


def _withdraw(state: DispatcherState, job: Job) -> DispatcherState:
    """Cancels a job before its graph is built. A program that still waits is not built; one in progress is cancelled
    when it is built."""
    if job.withdrawn or job.job_id in islice(state.building, MAX_INSTRUCTED_BUILDS):
        return state.put(job)
    refusal = Rejection(job.requester, job.job_id, CANCELLED_BEFORE_BUILT)
    state = replace(state, refusals=state.refusals.set(job.cause, refusal))
    return state.put(replace(job, withdrawn=True))


def request_cancel(state: DispatcherState, job: Job, cause: int) -> DispatcherState:
    """Requests the cancellation of a job, at once or when its JobMaster has it."""
    if job.cancel:
        return state
    if job.phase in (Phase.RUNNING, Phase.SUSPEND_REQUESTED, Phase.SUSPENDED):
        return state.put(job.transition(Phase.CANCEL_REQUESTED, cancel=True, cause=cause))
    job = replace(job, cancel=True)
    return _withdraw(state, job) if job.phase is Phase.BUILDING else state.put(job)


def request_suspend(state: DispatcherState, job: Job, cause: int) -> DispatcherState:
    """Requests the suspension of a job: at once, or when its JobMaster has it. A request to cancel stays."""
    if job.cancel or job.suspend:
        return state
    if job.phase is Phase.RUNNING:
        return state.put(job.transition(Phase.SUSPEND_REQUESTED, suspend=True, cause=cause))
    return state.put(replace(job, suspend=True))


def request_resume(state: DispatcherState, job: Job, cause: int) -> DispatcherState:
    """Requests the resumption of a suspended job."""
    return state.put(job.transition(Phase.RESUME_REQUESTED, cause=cause))


def _command_sent(phase: Phase) -> Step[DispatcherState]:
    """The step of a command that a phase requires: the JobMaster has been informed."""

    def step(
        state: DispatcherState,
        record: Record,
        body: job_master.CancelJob | job_master.SuspendJob | job_master.ResumeJob,
    ) -> DispatcherState:
        job = state.jobs.get(body.job_id)
        if job is None or job.phase is not phase:
            # The job ended, or is to be cancelled instead, since that was decided.
            return state
        if phase is Phase.RESUME_REQUESTED:
            resumed = job.transition(
                _next_phase(job), cause=record.offset, status=JobStatus.RUNNING, reason=None
            )
            return state.put(resumed)
        return state.put(job.transition(Phase.RUNNING))

    return step


def on_job_reached_terminal_state(
    state: DispatcherState, record: Record, body: dispatcher.JobReachedTerminalState
) -> DispatcherState:
    job, status = state.jobs.get(body.job_id), body.status
    if job is None or not (status in JOB_ENDS or status is JobStatus.SUSPENDED):
        raise IllegalEvent(record, "any", f"job {body.job_id} can't reach {status.value}")
    if status is JobStatus.SUSPENDED and job.cancel:
        # The JobMaster had not heard of the cancellation yet: it will say how that ends.
        return state
    to = Phase.SUSPENDED if status is JobStatus.SUSPENDED else Phase.TERMINATED
    if to not in TRANSITIONS[job.phase]:
        raise IllegalEvent(record, job.phase.value, f"job {body.job_id} can't reach {status.value}")
    reached = job.transition(
        to,
        cause=record.offset,
        status=status,
        reason=body.reason,
        accumulators=body.accumulators,
        suspend=False,
    )
    return checkpoints.forget_triggers(state.put(reached), reached)


def on_job_finished(state: DispatcherState, record: Record, body: client.JobFinished) -> DispatcherState:
    job = _job(state, record, body.job_id, Phase.TERMINATED)
    return state.put(job.transition(Phase.ENDED, ended_at=record.header.time))


def rejection_events(state: DispatcherState) -> list[tuple[tuple[int, str], OutgoingEvent]]:
    """JobRejected, CancelJobRejected and CheckpointFailed, each with its sort key."""
    owed = []
    for offset, refusal in state.refusals.items():
        answer = _ANSWERS[refusal.of]
        body = answer(job_id=refusal.job_id, reason=refusal.reason)
        owed.append(((offset, ""), OutgoingEvent(refusal.recipient, body, offset)))
    return owed


_ANSWERS: Mapping[
    RejectionKind, type[client.JobRejected] | type[client.CancelJobRejected] | type[client.CheckpointFailed]
] = {
    RejectionKind.SUBMISSION: client.JobRejected,
    RejectionKind.CANCELLATION: client.CancelJobRejected,
    RejectionKind.CHECKPOINT: client.CheckpointFailed,
}


def outgoing_events(state: DispatcherState, job: Job) -> list[OutgoingEvent]:
    """The events that the job's phase requires."""
    job_master_address = address(JOB_MASTER, job.job_id)
    match job.phase:
        case Phase.ADMITTED | Phase.ACCEPTED:
            accepted = OutgoingEvent(
                job.requester, client.JobAccepted(job_id=job.job_id, name=job.name), job.cause
            )
            start = OutgoingEvent(job_master_address, _start_job(state, job), job.cause)
            return [accepted, start] if job.phase is Phase.ADMITTED else [start]
        case Phase.CANCEL_REQUESTED:
            cancel = job_master.CancelJob(job_id=job.job_id, keep_checkpoints=job.keep_checkpoints)
            return [OutgoingEvent(job_master_address, cancel, job.cause)]
        case Phase.SUSPEND_REQUESTED:
            reason = "the cluster is shutting down" + (f": {state.ending.reason}" if state.ending else "")
            suspend = job_master.SuspendJob(job_id=job.job_id, reason=reason)
            return [OutgoingEvent(job_master_address, suspend, job.cause)]
        case Phase.RESUME_REQUESTED:
            return [OutgoingEvent(job_master_address, job_master.ResumeJob(job_id=job.job_id), job.cause)]
        case Phase.TERMINATED:
            body = client.JobFinished(
                job_id=job.job_id, status=job.status, reason=job.reason, accumulators=job.accumulators
            )
            return [OutgoingEvent(job.requester, body, job.cause)]
        case Phase.BUILDING | Phase.RUNNING | Phase.SUSPENDED | Phase.ENDED:
            return []


def _start_job(state: DispatcherState, job: Job) -> job_master.StartJob:
    if job.graph is None:
        raise AssertionError(f"job {job.job_id} is {job.phase} without a graph")
    configuration = job_configuration(state.configuration or {}, job.graph.configuration)
    return job_master.StartJob(
        job_id=job.job_id,
        job_graph=job.graph,
        configuration=configuration,
        savepoint_path=job.savepoint_path or job_options.STATE_RECOVERY_PATH.of(configuration),
        allow_non_restored_state=job.allow_non_restored_state
        or job_options.IGNORE_UNCLAIMED_STATE.of(configuration),
    )


on_cancel_job_rejected = on_checkpoint_failed = _rejection_sent
on_job_master_cancel_job = _command_sent(Phase.CANCEL_REQUESTED)
on_suspend_job = _command_sent(Phase.SUSPEND_REQUESTED)
on_resume_job = _command_sent(Phase.RESUME_REQUESTED)

STEPS: Mapping[type[Body], Step[DispatcherState]] = {
    dispatcher.SubmitJob: on_submit_job,
    dispatcher.CancelJob: on_cancel_job,
    dispatcher.JobGraphBuilt: on_job_graph_built,
    dispatcher.JobGraphFailed: on_job_graph_failed,
    dispatcher.JobReachedTerminalState: on_job_reached_terminal_state,
    client.JobAccepted: on_job_accepted,
    client.JobRejected: on_job_rejected,
    client.CancelJobRejected: on_cancel_job_rejected,
    client.CheckpointFailed: on_checkpoint_failed,
    client.JobFinished: on_job_finished,
    job_master.StartJob: on_start_job,
    job_master.CancelJob: on_job_master_cancel_job,
    job_master.SuspendJob: on_suspend_job,
    job_master.ResumeJob: on_resume_job,
}
