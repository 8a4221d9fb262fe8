"""The jobs of a cluster from submission to end: the events that the Dispatcher handles and sends for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ...infra.config.option_types import LOCATION
from ...pipelines.graph import job_options
from ...pipelines.graph.adaptive_bounds import adaptive_bounds
from ...pipelines.graph.execution_graph import required_slots
from ...schemas import client, dispatcher, job_master
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.states import JOB_ENDS
from ...schemas.types import JobGraph, JobStatus
from ..blobs import job_graph_blob
from ..configuration.options.resource_manager import RESOURCE_MANAGER_MODE, ResourceManagerMode
from ..configuration.role_options import job_configuration, with_configuration
from ..core.role import DISPATCHER, JOB_MASTER, IllegalEvent, OutgoingEvent, Step, address
from . import submission_validation
from .state import (
    AT_JOB_MASTER,
    CANCELLED_BEFORE_BUILT,
    TRANSITIONS,
    Cancellation,
    Command,
    DispatcherState,
    Job,
    JobControl,
    Phase,
    RefusedSubmission,
    Submission,
    rejection_reason,
    tenant_of,
)
from .submission_validation import savepoint_directory
from .turn import Turn

_BUILD_ENDED = frozenset({Phase.BUILT, Phase.BUILD_FAILED})


def _job(state: DispatcherState, record: Record, job_id: str, phase: Phase) -> Job:
    job = state.jobs.get(job_id)
    if job is None or job.phase is not phase:
        now = "unknown" if job is None else job.phase.value
        raise IllegalEvent(record, now, f"job {job_id} is not in phase {phase.value}")
    return job


# Submissions


def on_submit_job(state: DispatcherState, record: Record, body: dispatcher.SubmitJob) -> DispatcherState:
    submission = Submission(
        requester=record.header.sender,
        job_id=body.job_id,
        graph=body.job_graph,
        entry_point=body.entry_point,
        parallelism=body.parallelism,
        savepoint_path=body.savepoint_path,
        allow_non_restored_state=body.allow_non_restored_state,
        tenant=tenant_of(record.header),
    )
    return state.with_request(record.offset, submission)


def judge_submission(state: DispatcherState, offset: int, submission: Submission, turn: Turn) -> bool:
    """Takes the verdict on a SubmitJob; returns False if the verdict on an earlier one of its id comes in this turn."""
    job_id = submission.job_id
    known = state.jobs.get(job_id)
    if job_id in turn.changed_jobs or (known is not None and known.phase in _BUILD_ENDED):
        return False
    error = submission_validation.find_submission_error(state, offset, submission, turn.accepted)
    if error is not None:
        rejected = client.JobRejected(job_id=job_id, reason=error)
        turn.add_verdict(offset, OutgoingEvent(submission.requester, rejected, offset, submission.tenant))
        return True
    if (directory := savepoint_directory(submission.savepoint_path)) is not None:
        turn.used_savepoints.add(directory)
    if submission.graph is not None:
        turn.accepted.add(submission)
        _count_slots(submission.tenant, submission.submitter, submission.graph, turn)
        _accept(state, submission.to_job(offset, Phase.ACCEPTED), turn)
        return True
    turn.changed_jobs.add(job_id)
    turn.accepted.add(submission)
    turn.add_verdict(offset, OutgoingEvent(DISPATCHER, dispatcher.ProgramAccepted(job_id=job_id), offset))
    return True


def _count_slots(tenant: str, submitter: str, graph: JobGraph, turn: Turn) -> None:
    if tenant:
        turn.accepted.slots[submitter] += required_slots(graph)


def _accept(state: DispatcherState, job: Job, turn: Turn) -> None:
    accepted = client.JobAccepted(job_id=job.job_id, name=job.name)
    turn.add_verdict(job.cause, OutgoingEvent(job.requester, accepted, job.cause, job.tenant))
    _start(state, job, turn)


def _start(state: DispatcherState, job: Job, turn: Turn) -> None:
    turn.changed_jobs.add(job.job_id)
    start = OutgoingEvent(address(JOB_MASTER, job.job_id), _start_job(state, job), job.cause)
    turn.add_event(job.cause, job.job_id, start)


def _reject(job: Job, reason: str, turn: Turn) -> None:
    turn.changed_jobs.add(job.job_id)
    rejected = client.JobRejected(job_id=job.job_id, reason=reason)
    turn.add_verdict(job.cause, OutgoingEvent(job.requester, rejected, job.cause, job.tenant))


def _put_accepted(state: DispatcherState, record: Record, job_id: str, phase: Phase) -> DispatcherState:
    """The event accepts the submission that is its cause."""
    cause = record.header.cause
    submission = None if cause is None else state.requests.get(cause)
    if (
        cause is None
        or not isinstance(submission, Submission)
        or submission.job_id != job_id
        or job_id in state.jobs
    ):
        why = f"no submission of job {job_id} waits for a verdict at offset {cause}"
        raise IllegalEvent(record, None, why)
    job = _with_slots(submission.to_job(cause, phase))
    if phase is Phase.BUILDING and state.ending is not None and not state.ending.suspends:
        job = replace(job, owed_command=Command.CANCEL)
    return state.without_request(cause).put(job)


def _with_slots(job: Job) -> Job:
    return replace(job, slots=required_slots(job.graph)) if job.tenant and job.graph is not None else job


def on_program_accepted(
    state: DispatcherState, record: Record, body: dispatcher.ProgramAccepted
) -> DispatcherState:
    return _put_accepted(state, record, body.job_id, Phase.BUILDING)


def on_job_accepted(state: DispatcherState, record: Record, body: client.JobAccepted) -> DispatcherState:
    job = state.jobs.get(body.job_id)
    if job is not None and job.phase is Phase.BUILT and job.cause == record.header.cause:
        return state.put(_with_slots(job.transition(Phase.ACCEPTED, owed_command=None)))
    return _put_accepted(state, record, body.job_id, Phase.ACCEPTED)


def on_job_rejected(state: DispatcherState, record: Record, body: client.JobRejected) -> DispatcherState:
    cause = record.header.cause
    if cause is not None and isinstance(state.requests.get(cause), Submission | RefusedSubmission):
        return state.without_request(cause)
    job = state.jobs.get(body.job_id)
    if job is None or job.phase not in _BUILD_ENDED or job.cause != cause:
        return state
    return state.without(job.job_id)


def on_job_graph_built(
    state: DispatcherState, record: Record, body: dispatcher.JobGraphBuilt
) -> DispatcherState:
    if _is_other_build(state, record, body.job_id):
        return state
    job, graph = _job(state, record, body.job_id, Phase.BUILDING), body.job_graph
    return state.put(job.transition(Phase.BUILT, cause=record.offset, name=graph.name, graph=graph))


def on_job_graph_failed(
    state: DispatcherState, record: Record, body: dispatcher.JobGraphFailed
) -> DispatcherState:
    if _is_other_build(state, record, body.job_id):
        return state
    job = _job(state, record, body.job_id, Phase.BUILDING)
    return state.put(job.transition(Phase.BUILD_FAILED, cause=record.offset, reason=body.reason))


def _is_other_build(state: DispatcherState, record: Record, job_id: str) -> bool:
    """Whether the result belongs to a job that was cancelled while its program was being built."""
    job = state.jobs.get(job_id)
    return job is None or record.header.cause != job.submission


def on_start_job(state: DispatcherState, record: Record, body: job_master.StartJob) -> DispatcherState:
    return _enter(
        state,
        record,
        _job(state, record, body.job_id, Phase.ACCEPTED),
        Phase.RUNNING,
        graph=None,
        entry_point=None,
        savepoint_path=body.savepoint_path,
    )


# Cancellations


def on_cancel_job(state: DispatcherState, record: Record, body: dispatcher.CancelJob) -> DispatcherState:
    header = record.header
    request = Cancellation(header.sender, body.job_id, body.keep_checkpoints, tenant_of(header))
    return state.with_request(record.offset, request)


def judge_cancellation(state: DispatcherState, offset: int, request: Cancellation, turn: Turn) -> bool:
    """Takes the verdict on a CancelJob; returns False if the job is accepted, rejected or started in this turn."""
    job_id = request.job_id
    job = state.find_job_of(request.tenant, job_id)
    if job is None:
        if job_id not in state.jobs and job_id in turn.changed_jobs:
            return False
        _reject_cancellation(request, offset, f"job {job_id[:80]} is unknown", turn)
        return True
    match job.phase:
        case Phase.BUILDING:
            _stop_build(job, turn)
            return False
        case Phase.BUILT | Phase.ACCEPTED:
            return False
        case Phase.BUILD_FAILED:
            _reject_cancellation(request, offset, rejection_reason(job_id, job.reason or ""), turn)
        case Phase.TERMINATED | Phase.ENDED:
            _reject_cancellation(request, offset, f"job {job_id} has ended already: {job.status.value}", turn)
        case Phase.RUNNING | Phase.SUSPENDING | Phase.SUSPENDED | Phase.CANCELLING:
            turn.changed_jobs.add(job_id)
            cancel = job_master.CancelJob(job_id=job_id, keep_checkpoints=request.keep_checkpoints)
            turn.add_verdict(offset, OutgoingEvent(address(JOB_MASTER, job_id), cancel, offset))
    return True


def _stop_build(job: Job, turn: Turn) -> None:
    """Ends the build of a program; its submission and the requests to cancel it are answered after that."""
    if job.job_id not in turn.changed_jobs:
        turn.changed_jobs.add(job.job_id)
        failed = dispatcher.JobGraphFailed(job_id=job.job_id, reason=CANCELLED_BEFORE_BUILT)
        turn.add_verdict(job.submission, OutgoingEvent(DISPATCHER, failed, job.submission))


def _reject_cancellation(request: Cancellation, offset: int, reason: str, turn: Turn) -> None:
    rejected = client.CancelJobRejected(job_id=request.job_id, reason=reason)
    turn.add_verdict(offset, OutgoingEvent(request.requester, rejected, offset, request.tenant))


def on_cancel_job_rejected(
    state: DispatcherState, record: Record, _body: client.CancelJobRejected
) -> DispatcherState:
    return state.without_request(record.header.cause)


# Commands for JobMasters


def require(state: DispatcherState, job: Job, command: Command | None, cause: int) -> DispatcherState:
    """Requires a command for the JobMaster that has the job; None: requires none any more."""
    return state.put(replace(job, owed_command=command, cause=cause))


def _enter(state: DispatcherState, record: Record, job: Job, to: Phase, **changes: Any) -> DispatcherState:
    """The JobMaster has the job, or a command for it."""
    owed = job.owed_command
    if to is Phase.RUNNING:
        # A job that starts or resumes during a shutdown shares the fate of the others.
        owed = None if state.ending is None else state.ending.command
    elif to is Phase.CANCELLING or owed is Command.SUSPEND:
        owed = None
    return state.put(job.transition(to, cause=record.offset, owed_command=owed, **changes))


def on_job_master_cancel_job(
    state: DispatcherState, record: Record, body: job_master.CancelJob
) -> DispatcherState:
    state = state.without_request(record.header.cause)
    job = state.jobs.get(body.job_id)
    if job is None or job.phase not in AT_JOB_MASTER:
        # The job ended after that decision, or is being cancelled already.
        return state
    return _enter(state, record, job, Phase.CANCELLING)


def on_suspend_job(state: DispatcherState, record: Record, body: job_master.SuspendJob) -> DispatcherState:
    cause = record.header.cause
    is_paused = cause is not None and isinstance(state.requests.get(cause), JobControl)
    state = state.without_request(cause)
    job = state.jobs.get(body.job_id)
    if job is None or job.phase is not Phase.RUNNING:
        return state
    return _enter(state, record, job, Phase.SUSPENDING, is_paused=is_paused)


def on_resume_job(state: DispatcherState, record: Record, body: job_master.ResumeJob) -> DispatcherState:
    state = state.without_request(record.header.cause)
    job = state.jobs.get(body.job_id)
    if job is None or job.phase is not Phase.SUSPENDED:
        return state
    return _enter(state, record, job, Phase.RUNNING, reason=None, is_paused=False)


# The end


def on_job_reached_terminal_state(
    state: DispatcherState, record: Record, body: dispatcher.JobReachedTerminalState
) -> DispatcherState:
    job, status = state.jobs.get(body.job_id), body.status
    if job is None or not (status in JOB_ENDS or status is JobStatus.SUSPENDED):
        raise IllegalEvent(record, None, f"job {body.job_id} can't reach {status.value}")
    if status is JobStatus.SUSPENDED and job.phase is Phase.CANCELLING:
        # The JobMaster had not received the cancellation yet: it will report how the job ends.
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
        owed_command=Command.CANCEL if to is Phase.SUSPENDED and job.owed_command is Command.CANCEL else None,
    )
    return state.put(reached)


def on_job_finished(state: DispatcherState, record: Record, body: client.JobFinished) -> DispatcherState:
    job = _job(state, record, body.job_id, Phase.TERMINATED)
    return state.put(job.transition(Phase.ENDED, ended_at=record.header.time))


# Events that a job owes


def send_owed(state: DispatcherState, turn: Turn) -> None:
    """Adds the events that phases and owed commands of jobs require."""
    for job_id in state.owing:
        job = state.jobs[job_id]
        match job.phase:
            case Phase.BUILT:
                _judge_graph(state, job, turn)
            case Phase.BUILD_FAILED:
                _reject(job, job.reason or "", turn)
            case Phase.ACCEPTED:
                _start(state, job, turn)
            case Phase.TERMINATED:
                finished = client.JobFinished(
                    job_id=job_id, status=job.status, reason=job.reason, accumulators=job.accumulators
                )
                answer = OutgoingEvent(job.requester, finished, job.cause, job.tenant)
                turn.add_event(job.cause, job_id, answer)
            case _:
                # A client's cancellation of the same turn does the rest.
                if job_id not in turn.changed_jobs:
                    _send_command(state, job, turn)


def _judge_graph(state: DispatcherState, job: Job, turn: Turn) -> None:
    if job.graph is None:
        raise AssertionError(f"job {job.job_id} is {job.phase} without a graph")
    error = submission_validation.find_graph_error(
        job.graph, job.job_id
    ) or submission_validation.find_tenant_error(state, job.tenant, job.graph, turn.accepted)
    if error is None:
        _count_slots(job.tenant, job.submitter, job.graph, turn)
        _accept(state, job, turn)
    else:
        _reject(job, error, turn)


def _send_command(state: DispatcherState, job: Job, turn: Turn) -> None:
    if job.phase is Phase.BUILDING:
        _stop_build(job, turn)
        return
    body: Body
    match job.owed_command:
        case Command.CANCEL:
            body = job_master.CancelJob(job_id=job.job_id)
        case Command.SUSPEND:
            reason = "the cluster is shutting down" + (f": {state.ending.reason}" if state.ending else "")
            body = job_master.SuspendJob(job_id=job.job_id, reason=reason)
        case Command.RESUME:
            body = job_master.ResumeJob(job_id=job.job_id)
        case None:
            raise AssertionError(f"job {job.job_id} owes nothing")
    turn.add_event(job.cause, job.job_id, OutgoingEvent(address(JOB_MASTER, job.job_id), body, job.cause))


def _start_job(state: DispatcherState, job: Job) -> job_master.StartJob:
    if job.graph is None:
        raise AssertionError(f"job {job.job_id} is {job.phase} without a graph")
    configuration = job_configuration(state.configuration or {}, job.graph.configuration)
    blob = job_graph_blob.key_of(job.job_id, with_configuration(job.graph, configuration))
    given = None if job.savepoint_path is None else LOCATION.read(job.savepoint_path)
    return job_master.StartJob(
        job_id=job.job_id,
        job_graph=job.graph,
        job_graph_blob=None if blob is None else str(blob),
        configuration=configuration,
        savepoint_path=given or job_options.STATE_RECOVERY_PATH.of(configuration),
        allow_non_restored_state=job.allow_non_restored_state
        or job_options.IGNORE_UNCLAIMED_STATE.of(configuration),
        tenant=job.tenant,
        bounds=adaptive_bounds(job.graph, configuration, may_take_all=_may_take_all_slots(state, job.tenant)),
    )


def _may_take_all_slots(state: DispatcherState, tenant: str) -> bool:
    """Whether a job may take slots above the parallelism of its program (reactive mode)."""
    options = state.options.tenants.get(tenant)
    is_active = RESOURCE_MANAGER_MODE.of(state.configuration or {}) is ResourceManagerMode.ACTIVE
    return not is_active and (options is None or options.max_slots is None)


STEPS: Mapping[type[Body], Step[DispatcherState]] = {
    dispatcher.SubmitJob: on_submit_job,
    dispatcher.CancelJob: on_cancel_job,
    dispatcher.ProgramAccepted: on_program_accepted,
    dispatcher.JobGraphBuilt: on_job_graph_built,
    dispatcher.JobGraphFailed: on_job_graph_failed,
    dispatcher.JobReachedTerminalState: on_job_reached_terminal_state,
    client.JobAccepted: on_job_accepted,
    client.CancelJobRejected: on_cancel_job_rejected,
    job_master.StartJob: on_start_job,
    job_master.CancelJob: on_job_master_cancel_job,
    job_master.SuspendJob: on_suspend_job,
    job_master.ResumeJob: on_resume_job,
}
