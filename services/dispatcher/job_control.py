"""Requests to pause, resume, restart or configure a job, to reset its offsets, and to quarantine TaskExecutors.

A paused job is suspended as in a shutdown that suspends jobs: its tasks end, its slots are freed, and its channels,
state and positions stay. But no start of the cluster resumes it: only a request does. Each task continues from its last
commit, so nothing has to be aligned before. The positions of its Kafka sources can be reset meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from immutables import Map
from msgspec.structs import replace

from ...pipelines.graph.limits import MAX_RESET_OFFSETS, MAX_TOPIC_LENGTH
from ...schemas import client, dispatcher, job_master, resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import PartitionOffset
from ..configuration.dynamic_options import find_change_error
from ..core.role import JOB_MASTER, RESOURCE_MANAGER, OutgoingEvent, Step, address
from .state import DispatcherState, Job, JobAction, JobControl, Phase, QuarantineRequest, tenant_of
from .turn import Turn


def _on_request(state: DispatcherState, record: Record, body: Body, action: JobAction) -> DispatcherState:
    header = record.header
    job_id: str = body.job_id  # type: ignore[attr-defined]
    request = JobControl(header.sender, job_id, action, tenant=tenant_of(header))
    match body:
        case dispatcher.RestartTasks():
            request = replace(request, vertex_id=body.vertex_id, subtask_index=body.subtask_index)
        case dispatcher.ConfigureJob():
            request = replace(request, configuration=Map(body.configuration), removed=body.removed)
        case dispatcher.ResetOffsets():
            request = replace(request, offsets=body.offsets)
        case _:
            pass
    return state.with_request(record.offset, request)


def on_pause_job(state: DispatcherState, record: Record, body: dispatcher.PauseJob) -> DispatcherState:
    return _on_request(state, record, body, JobAction.PAUSE)


def on_resume_job(state: DispatcherState, record: Record, body: dispatcher.ResumeJob) -> DispatcherState:
    return _on_request(state, record, body, JobAction.RESUME)


def on_dispatcher_restart_tasks(
    state: DispatcherState, record: Record, body: dispatcher.RestartTasks
) -> DispatcherState:
    return _on_request(state, record, body, JobAction.RESTART)


def on_configure_job(
    state: DispatcherState, record: Record, body: dispatcher.ConfigureJob
) -> DispatcherState:
    return _on_request(state, record, body, JobAction.CONFIGURE)


def on_dispatcher_reset_offsets(
    state: DispatcherState, record: Record, body: dispatcher.ResetOffsets
) -> DispatcherState:
    return _on_request(state, record, body, JobAction.RESET_OFFSETS)


def on_set_quarantine(
    state: DispatcherState, record: Record, body: dispatcher.SetQuarantine
) -> DispatcherState:
    request = QuarantineRequest(body.resource_id, body.host, body.mode, body.reason)
    return state.with_request(record.offset, request)


def judge(state: DispatcherState, offset: int, request: JobControl, turn: Turn) -> bool:
    """Takes the verdict on a request about a job; returns False if the job is accepted or started in this turn."""
    job_id = request.job_id
    job = state.find_job_of(request.tenant, job_id)
    if job is None:
        if job_id not in state.jobs and job_id in turn.changed_jobs:
            return False
        _reject(request, offset, f"job {job_id[:80]} is unknown", turn)
        return True
    if job.phase in (Phase.BUILT, Phase.ACCEPTED) or job_id in turn.changed_jobs:
        return False
    refusal = "the cluster is shutting down" if state.ending is not None else _find_refusal(job, request)
    if refusal is not None:
        _reject(request, offset, refusal, turn)
        return True
    turn.changed_jobs.add(job_id)
    body: Body
    match request.action:
        case JobAction.PAUSE:
            body = job_master.SuspendJob(job_id=job_id, reason=f"paused by {request.requester}")
        case JobAction.RESUME:
            body = job_master.ResumeJob(job_id=job_id)
        case JobAction.RESTART:
            body = job_master.RestartTasks(
                job_id=job_id, vertex_id=request.vertex_id, subtask_index=request.subtask_index
            )
        case JobAction.CONFIGURE:
            body = job_master.JobConfigurationChanged(
                job_id=job_id,
                configuration=dict(sorted(request.configuration.items())),
                removed=request.removed,
            )
        case JobAction.RESET_OFFSETS:
            body = job_master.ResetOffsets(job_id=job_id, offsets=request.offsets)
    turn.add_verdict(offset, OutgoingEvent(address(JOB_MASTER, job_id), body, offset))
    return True


def _find_refusal(job: Job, request: JobControl) -> str | None:
    action = request.action
    match job.phase:
        case Phase.RUNNING | Phase.SUSPENDING | Phase.SUSPENDED if action is JobAction.CONFIGURE:
            return find_change_error(request.configuration, request.removed)
        case Phase.RUNNING if action is JobAction.RESET_OFFSETS:
            return (
                f"job {job.job_id} runs, and only the offsets of a paused job can be reset: "
                f"`tailrace pause {job.job_id}` pauses it"
            )
        case Phase.RUNNING:
            return f"job {job.job_id} is not paused" if action is JobAction.RESUME else None
        case Phase.SUSPENDED if job.is_paused and action is JobAction.RESET_OFFSETS:
            return _find_offset_error(request.offsets)
        case Phase.SUSPENDED if job.is_paused:
            return None if action is JobAction.RESUME else f"job {job.job_id} is paused"
        case Phase.SUSPENDING if job.is_paused:
            return f"job {job.job_id} is being paused: its tasks have not ended yet"
        case Phase.SUSPENDING | Phase.SUSPENDED:
            return f"job {job.job_id} is suspended with the cluster, and resumes with its next start"
        case Phase.CANCELLING:
            return f"job {job.job_id} is being cancelled"
        case Phase.BUILDING | Phase.BUILD_FAILED:
            return f"job {job.job_id} does not run: its program is not built"
        case _:
            return f"job {job.job_id} has ended already: {job.status.value}"


def _find_offset_error(offsets: Sequence[PartitionOffset]) -> str | None:
    if not offsets:
        return "no offset is named"
    if len(offsets) > MAX_RESET_OFFSETS:
        return f"{len(offsets)} offsets are too many: name at most {MAX_RESET_OFFSETS}"
    if any(len(each.topic) > MAX_TOPIC_LENGTH for each in offsets):
        return f"the name of a topic has at most {MAX_TOPIC_LENGTH} characters"
    below = next((each for each in offsets if each.offset < 0 or each.partition < 0), None)
    if below is None:
        return None
    return f"{below.topic[:80]}:{below.partition} can't be read from offset {below.offset}: both must be 0 or more"


def _reject(request: JobControl, offset: int, reason: str, turn: Turn) -> None:
    rejected = client.JobRequestRejected(job_id=request.job_id, reason=reason)
    turn.add_verdict(offset, OutgoingEvent(request.requester, rejected, offset, request.tenant))


def judge_quarantine(offset: int, request: QuarantineRequest, turn: Turn) -> None:
    """Passes the request on: a TaskExecutor or host need not be there yet."""
    body = resource_manager.QuarantineChanged(
        resource_id=request.resource_id, host=request.host, mode=request.mode, reason=request.reason
    )
    turn.add_verdict(offset, OutgoingEvent(RESOURCE_MANAGER, body, offset))


def _on_verdict(state: DispatcherState, record: Record, _body: Body) -> DispatcherState:
    return state.without_request(record.header.cause)


on_job_request_rejected = on_job_master_restart_tasks = on_quarantine_changed = _on_verdict
on_job_configuration_changed = on_job_master_reset_offsets = _on_verdict

STEPS: Mapping[type[Body], Step[DispatcherState]] = {
    dispatcher.PauseJob: on_pause_job,
    dispatcher.ResumeJob: on_resume_job,
    dispatcher.RestartTasks: on_dispatcher_restart_tasks,
    dispatcher.ConfigureJob: on_configure_job,
    dispatcher.ResetOffsets: on_dispatcher_reset_offsets,
    dispatcher.SetQuarantine: on_set_quarantine,
    client.JobRequestRejected: on_job_request_rejected,
    job_master.RestartTasks: on_job_master_restart_tasks,
    job_master.JobConfigurationChanged: on_job_configuration_changed,
    job_master.ResetOffsets: on_job_master_reset_offsets,
    resource_manager.QuarantineChanged: on_quarantine_changed,
}
