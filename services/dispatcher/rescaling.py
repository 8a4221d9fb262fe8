"""Requests for another parallelism of a job: forwarded to its JobMaster, which answers the client, or rejected.

The JobMaster knows the job's graph and slots, and judges what is possible. The Dispatcher knows whether the job runs,
and the limit of its tenant: a job of a tenant with a limit of slots keeps to those that it was submitted with, because
they count in that limit until the job ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map

from ...schemas import client, dispatcher, job_master
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.role import JOB_MASTER, OutgoingEvent, Step, address
from .checkpoints import not_running
from .state import DispatcherState, ParallelismRequest, Phase, tenant_of
from .turn import Turn

MAX_VERTICES = 10_000
MAX_TEXT_LENGTH = 1_000
"""Characters of a reason, and of the name of a vertex."""


def on_dispatcher_rescale_job(
    state: DispatcherState, record: Record, body: dispatcher.RescaleJob
) -> DispatcherState:
    request = ParallelismRequest(
        requester=record.header.sender,
        job_id=body.job_id,
        parallelism=body.parallelism,
        bounds=Map(body.bounds),
        reason=body.reason,
        tenant=tenant_of(record.header),
    )
    return state.with_request(record.offset, request)


def judge_rescale_request(
    state: DispatcherState, offset: int, request: ParallelismRequest, turn: Turn
) -> bool:
    """Takes the verdict on a RescaleJob; returns False if the job changes in this turn."""
    job_id = request.job_id
    job = state.find_job_of(request.tenant, job_id)
    is_foreign = job is None and job_id in state.jobs
    if not is_foreign and (
        job_id in turn.changed_jobs or (job is not None and job.phase in (Phase.BUILT, Phase.ACCEPTED))
    ):
        return False
    error = f"job {job_id[:80]} is unknown: `tailrace list` shows those there are"
    if job is not None:
        why = not_running(job)
        error = "" if why is None else f"job {job_id} {why}"
    error = error or _find_size_error(request)
    if error or job is None:
        failed = client.RescaleFailed(job_id=job_id, reason=error)
        turn.add_verdict(offset, OutgoingEvent(request.requester, failed, offset, request.tenant))
        return True
    options = state.options.tenants.get(job.tenant) if job.tenant else None
    is_limited = options is not None and options.max_slots is not None
    rescale = job_master.RescaleJob(
        job_id=job_id,
        parallelism=request.parallelism,
        bounds=dict(request.bounds),
        reason=request.reason,
        max_slots=job.slots if is_limited else None,
        requester=request.requester,
        tenant=request.tenant,
    )
    turn.add_verdict(offset, OutgoingEvent(address(JOB_MASTER, job_id), rescale, offset))
    return True


def _find_size_error(request: ParallelismRequest) -> str:
    if len(request.bounds) > MAX_VERTICES:
        return f"the request names {len(request.bounds):,} vertices: no job has more than {MAX_VERTICES:,}"
    if len(request.reason) > MAX_TEXT_LENGTH or any(len(name) > MAX_TEXT_LENGTH for name in request.bounds):
        return (
            f"the reason, or the name of a vertex, has more than {MAX_TEXT_LENGTH:,} characters: shorten it"
        )
    return ""


def on_job_master_rescale_job(
    state: DispatcherState, record: Record, _body: job_master.RescaleJob
) -> DispatcherState:
    return state.without_request(record.header.cause)


def on_rescale_failed(state: DispatcherState, record: Record, _body: client.RescaleFailed) -> DispatcherState:
    return state.without_request(record.header.cause)


STEPS: Mapping[type[Body], Step[DispatcherState]] = {
    dispatcher.RescaleJob: on_dispatcher_rescale_job,
    job_master.RescaleJob: on_job_master_rescale_job,
    client.RescaleFailed: on_rescale_failed,
}
