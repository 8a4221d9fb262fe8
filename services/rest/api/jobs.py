"""Jobs with what Flink's overview does not have: GET /api/v1/jobs and /api/v1/jobs/:jobid."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....schemas.states import JOB_ENDS
from ...core.role import JOB_MASTER, address
from ...history import cluster_view
from ...history.cluster_view import JobView
from ...job_master.state import StartedJob
from ...metrics.jobmanager import count_restarts
from ..endpoint import Endpoint, Parameters
from ..errors import NotFound
from ..flink import ids
from ..flink.endpoints import path_parameters
from ..flink.lookup import find_job
from ..flink.times import duration, to_ms
from ..moment import Moment


class JobSummary(msgspec.Struct, frozen=True):
    """A job. `id` is Flink's, `job_id` tailrace's.

    Times in milliseconds since the epoch, -1 for what has not happened; sizes in bytes. `tasks`: state -> the number of
    subtasks in it. `restarts`: the number of attempts after the first ones of its subtasks, since it was started or
    resumed; null for a job that has ended. `reason`: why it ended, or why tasks restart. `last_checkpoint`: when the
    last complete one ended.
    """

    id: str
    job_id: str
    name: str
    tenant: str
    status: str
    submitted: int
    ended: int
    duration: int
    tasks: dict[str, int]
    required_slots: int
    missing_slots: int
    restarts: int | None
    completed_checkpoints: int
    failed_checkpoints: int
    last_checkpoint: int
    last_checkpoint_size: int
    reason: str | None


class JobSummaries(msgspec.Struct, frozen=True):
    """/api/v1/jobs, in the order of submission. `now` is in milliseconds since the epoch."""

    now: int
    jobs: Sequence[JobSummary]


class JobProgress(msgspec.Struct, frozen=True):
    """/api/v1/jobs/:jobid. `waits_for`: what it waits for, one line each."""

    now: int
    job: JobSummary
    waits_for: Sequence[str]


def jobs(moment: Moment, _: Parameters) -> JobSummaries:
    """GET /jobs: all jobs with their restarts, checkpoints and missing slots"""
    return JobSummaries(moment.now, [_summary(moment, view) for view in cluster_view.jobs(moment.fold)])


def job(moment: Moment, parameters: Parameters) -> JobProgress:
    """GET /jobs/:jobid: a job, and what it waits for"""
    _, view = find_job(moment, parameters)
    waits = cluster_view.describe_waiting(moment.fold, view)
    return JobProgress(moment.now, _summary(moment, view), waits)


def _summary(moment: Moment, view: JobView) -> JobSummary:
    state = moment.fold.replica.states.get(address(JOB_MASTER, view.job_id))
    submitted = to_ms(view.submitted)
    ended = to_ms(view.ended) if view.status in JOB_ENDS else -1
    last = view.checkpoints.last
    return JobSummary(
        id=ids.to_job_id(view.job_id),
        job_id=view.job_id,
        name=view.name,
        tenant=view.tenant,
        status=view.status.value,
        submitted=submitted,
        ended=ended,
        duration=duration(submitted, ended, moment.now),
        tasks=view.tasks,
        required_slots=view.required_slots,
        missing_slots=view.missing_slots,
        restarts=count_restarts(state) if isinstance(state, StartedJob) else None,
        completed_checkpoints=view.checkpoints.completed,
        failed_checkpoints=view.checkpoints.failed,
        last_checkpoint=-1 if last is None else to_ms(last.ended),
        last_checkpoint_size=0 if last is None else last.size,
        reason=view.reason or (None if view.restarting is None else view.restarting.reason),
    )


_JOB = "/jobs/{jobid}"
READS = (
    Endpoint("GET", "/jobs", view=jobs),
    Endpoint("GET", _JOB, path_parameters(_JOB), view=job, errors=(NotFound,)),
)
