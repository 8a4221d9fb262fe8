"""Applications, as Flink 2.3 names the runs of programs. Each job is an application with the job's id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus
from ...history import cluster_view
from ...history.cluster_view import JobView
from ..endpoint import Parameters
from ..moment import Moment
from . import ids
from .cluster import ConfigurationEntry, jobmanager_configuration
from .job_list import JobDetails, details_of
from .lookup import find_job
from .times import duration, to_ms

_STATUSES: Mapping[JobStatus, str] = {
    **{status: status.value for status in JOB_ENDS},
    JobStatus.FAILING: "FAILING",
    JobStatus.CANCELLING: "CANCELING",
}
"""Flink's ApplicationState of a job; of any other: RUNNING."""
_ALL_STATUSES = ("CREATED", "RUNNING", *_STATUSES.values())


class ApplicationDetails(msgspec.Struct, frozen=True, rename="kebab"):
    """Flink's ApplicationDetails. `jobs`: the number of its jobs in each status."""

    id: str
    name: str
    start_time: int
    end_time: int
    duration: int
    status: str
    jobs: Mapping[str, int]


class ApplicationsOverview(msgspec.Struct, frozen=True):
    """Flink's MultipleApplicationsDetails."""

    applications: Sequence[ApplicationDetails]


class ApplicationDetailsInfo(msgspec.Struct, frozen=True, rename="kebab"):
    """Flink's ApplicationDetailsInfo. `timestamps`: when it entered each status."""

    id: str
    name: str
    status: str
    start_time: int
    end_time: int
    duration: int
    timestamps: Mapping[str, int]
    jobs: Sequence[JobDetails]


class NoException(msgspec.Struct, frozen=True):
    """A failure of a program outside of its jobs. There is none: a program that fails has no job."""


class ApplicationExceptionHistory(msgspec.Struct, frozen=True):
    """The failures of a program outside of its jobs."""

    entries: Sequence[NoException]


class ApplicationExceptions(msgspec.Struct, frozen=True, rename="camel"):
    """Flink's ApplicationExceptionsInfoWithHistory."""

    exception_history: ApplicationExceptionHistory


def overview(moment: Moment, _: Parameters) -> ApplicationsOverview:
    """GET /applications/overview: an application for each job"""
    return ApplicationsOverview([_summary(moment, view) for view in cluster_view.jobs(moment.fold)])


def application(moment: Moment, parameters: Parameters) -> ApplicationDetailsInfo:
    """GET /applications/:applicationid"""
    _, view = find_job(moment, job_parameters(parameters))
    found = _summary(moment, view)
    entered: dict[str, int] = {"CREATED": max(0, found.start_time)}
    for status, time in moment.fold.executions.statuses(view.job_id).items():
        entered[_status(status)] = time // 1000
    return ApplicationDetailsInfo(
        id=found.id,
        name=found.name,
        status=found.status,
        start_time=found.start_time,
        end_time=found.end_time,
        duration=found.duration,
        timestamps=dict.fromkeys(_ALL_STATUSES, 0) | entered,
        jobs=[details_of(moment, view)],
    )


def exceptions(moment: Moment, parameters: Parameters) -> ApplicationExceptions:
    """GET /applications/:applicationid/exceptions: none, those of its job are at /jobs/:jobid/exceptions"""
    find_job(moment, job_parameters(parameters))
    return ApplicationExceptions(ApplicationExceptionHistory(()))


def configuration(moment: Moment, parameters: Parameters) -> list[ConfigurationEntry]:
    """GET /applications/:applicationid/jobmanager/config: the same as /jobmanager/config"""
    find_job(moment, job_parameters(parameters))
    return jobmanager_configuration(moment, parameters)


def job_parameters(parameters: Parameters) -> Parameters:
    """Returns the parameters that name the job of `applicationid`."""
    return {"jobid": parameters["applicationid"]}


def _summary(moment: Moment, view: JobView) -> ApplicationDetails:
    start = to_ms(view.submitted)
    end = to_ms(view.ended) if view.status in JOB_ENDS else -1
    return ApplicationDetails(
        id=ids.to_job_id(view.job_id),
        name=f"SingleJobApplication({view.name})",
        start_time=start,
        end_time=end,
        duration=duration(start, end, moment.now),
        status=_status(view.status),
        jobs={view.status.value: 1},
    )


def _status(status: JobStatus) -> str:
    return _STATUSES.get(status, "RUNNING")
