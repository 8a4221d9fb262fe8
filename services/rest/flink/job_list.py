"""The lists of jobs: those that the cluster has, and all that the log has."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....schemas.states import JOB_ENDS
from ...history import cluster_view
from ...history.cluster_view import JobView
from ...history.forgotten_jobs import ForgottenJob
from ..endpoint import Parameters
from ..moment import Moment
from . import ids
from .times import EXECUTION_STATES, duration, to_ms


class JobIdWithStatus(msgspec.Struct, frozen=True):
    """A job in /jobs."""

    id: str
    status: str


class JobIds(msgspec.Struct, frozen=True):
    """Flink's JobIdsWithStatusOverview."""

    jobs: Sequence[JobIdWithStatus]


class TaskCounts(msgspec.Struct, frozen=True):
    """The number of current attempts in each state."""

    running: int
    canceling: int
    canceled: int
    total: int
    created: int
    scheduled: int
    deploying: int
    reconciling: int
    finished: int
    initializing: int
    failed: int


class JobDetails(msgspec.Struct, frozen=True, rename="kebab"):
    """A job in /jobs/overview: Flink's JobDetails."""

    jid: str
    name: str
    job_type: str = msgspec.field(name="jobType")
    scheduler_type: str = msgspec.field(name="schedulerType")
    start_time: int
    end_time: int
    duration: int
    state: str
    last_modification: int
    tasks: TaskCounts
    pending_operators: int


class JobsOverview(msgspec.Struct, frozen=True):
    """Flink's MultipleJobsDetails."""

    jobs: Sequence[JobDetails]


def jobs(moment: Moment, _: Parameters) -> JobIds:
    """GET /jobs"""
    return JobIds(
        [
            JobIdWithStatus(ids.to_job_id(job_id), status.value)
            for job_id, status in cluster_view.statuses(moment.fold.replica).items()
        ]
    )


def overview(moment: Moment, _: Parameters) -> JobsOverview:
    """GET /jobs/overview"""
    return JobsOverview([details_of(moment, view) for view in cluster_view.jobs(moment.fold)])


def all_jobs(moment: Moment, _: Parameters) -> JobIds:
    """GET /jobs: all jobs that the log has, also forgotten ones"""
    return JobIds([JobIdWithStatus(each.jid, each.state) for each in all_jobs_overview(moment, {}).jobs])


def all_jobs_overview(moment: Moment, _: Parameters) -> JobsOverview:
    """GET /jobs/overview: all jobs that the log has, also those that the cluster has forgotten"""
    forgotten = [_forgotten_details(job_id, job) for job_id, job in moment.fold.forgotten.all().items()]
    return JobsOverview([*forgotten, *overview(moment, {}).jobs])


def details_of(moment: Moment, view: JobView) -> JobDetails:
    """Returns the summary of a job."""
    start, end = job_extent(view)
    counts = {name.lower(): view.tasks.get(name, 0) for name in EXECUTION_STATES}
    statuses = moment.fold.executions.statuses(view.job_id)
    return JobDetails(
        jid=ids.to_job_id(view.job_id),
        name=view.name,
        job_type="STREAMING",
        scheduler_type="Default",
        start_time=start,
        end_time=end,
        duration=duration(start, end, moment.now),
        state=view.status.value,
        last_modification=max(start, end, *(time // 1000 for time in statuses.values()), 0),
        tasks=TaskCounts(total=sum(view.tasks.values()), **counts),
        pending_operators=0,
    )


def job_extent(view: JobView) -> tuple[int, int]:
    """Returns the times of the submission and of the end, in milliseconds since the epoch; -1: it has not happened."""
    return to_ms(view.submitted), to_ms(view.ended) if view.status in JOB_ENDS else -1


def _forgotten_details(job_id: str, job: ForgottenJob) -> JobDetails:
    start, end = to_ms(job.submitted), to_ms(job.ended)
    counts = {name.lower(): job.tasks.get(name, 0) for name in EXECUTION_STATES}
    return JobDetails(
        jid=ids.to_job_id(job_id),
        name=job.name,
        job_type="STREAMING",
        scheduler_type="Default",
        start_time=start,
        end_time=end,
        duration=duration(start, end, end),
        state=job.status.value,
        last_modification=max(start, end, 0),
        tasks=TaskCounts(total=sum(job.tasks.values()), **counts),
        pending_operators=0,
    )
