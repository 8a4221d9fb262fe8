"""Finds jobs in the log of a cluster, and cancels them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ....schemas.client import CancelJobRejected, JobStatusChanged
from ....schemas.event import Record
from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus
from ...client.rest_client import open_job_client
from ...configuration import Configuration
from ...dispatcher.state import CANCELLED_BEFORE_BUILT, rejection_reason
from ...history import HistoryProjection
from ...history.cluster_view import JobView, jobs
from ..args.event_filter import select_job
from ..exit_codes import CommandFailure, ExitCode
from ..readers.cluster_state import replay_log
from ..render.formatting import format_time
from ..render.output import print_progress

_CANCEL_TIMEOUT_S = 60.0


def read_jobs(configuration: Configuration) -> list[JobView]:
    """Returns all jobs from the log. Raises LogUnavailable."""
    return jobs(replay_log(configuration))


def read_job(configuration: Configuration, wanted: str) -> tuple[HistoryProjection, JobView]:
    """Returns the replayed log and the job with this id, name or id prefix. Raises like `find_job`, LogUnavailable."""
    fold = replay_log(configuration)
    return fold, find_job(jobs(fold), wanted, fold.ended)


def find_job(jobs: list[JobView], wanted: str, ended: Mapping[str, int] = MappingProxyType({})) -> JobView:
    """Returns the job with this id, name or id prefix. If several match, the only one of them that has not ended.

    `ended`: job id -> the time of its end, also of forgotten jobs. Raises CommandFailure if no job or several jobs
    match.
    """
    known = {job.job_id: job for job in jobs}
    if not any(job.name == wanted or job.job_id.startswith(wanted) for job in jobs):
        forgotten = sorted(job_id for job_id in ended if job_id.startswith(wanted))
        if forgotten:
            job_id = forgotten[0]
            raise CommandFailure(
                ExitCode.NOT_FOUND,
                f"job {job_id} ended at {format_time(ended[job_id])}, and the cluster has forgotten it: "
                f"`tailrace story {job_id}` and `tailrace log --job {job_id}` show its history",
            )
    found = select_job(
        wanted,
        known,
        (job.job_id for job in jobs if job.name == wanted),
        {job.job_id for job in jobs if job.status not in JOB_ENDS},
        "there is",
    )
    return known[found]


def check_not_ended(job: JobView, problem: str) -> None:
    """Raises CommandFailure for a job that has ended."""
    if job.status in JOB_ENDS:
        raise CommandFailure(ExitCode.JOB, f"job {job.job_id} is already {job.status.value}: {problem}")


def cancel(configuration: Configuration, wanted: str, *, detached: bool) -> int:
    """Cancels a job; returns the exit code. `detached`: does not wait for its end. Raises CommandFailure."""
    _, job = read_job(configuration, wanted)
    check_not_ended(job, "there is nothing to cancel")
    if detached:
        with open_job_client(configuration, "cancel", 10.0) as client:
            client.cancel(job.job_id)
        print_progress(f"job {job.job_id}: cancellation is requested")
        return ExitCode.OK
    status = cancel_and_wait(configuration, job.job_id)
    print_progress(f"job {job.job_id} is {status.value}")
    return ExitCode.OK if status is JobStatus.CANCELED else ExitCode.JOB


def cancel_and_wait(
    configuration: Configuration, job_id: str, *, keep_checkpoints: bool = False
) -> JobStatus:
    """Cancels a job and returns its final status. Raises CommandFailure if rejected or not ended in time."""

    def answer(record: Record) -> CancelJobRejected | JobStatusChanged | None:
        match record.body:
            case CancelJobRejected() as rejected if rejected.job_id == job_id:
                return rejected
            case JobStatusChanged(status=status) as ended if ended.job_id == job_id and status in JOB_ENDS:
                return ended
            case _:
                return None

    with open_job_client(configuration, "cancel", 10.0) as client, client.subscribe() as conversation:
        client.cancel(job_id, keep_checkpoints=keep_checkpoints)
        found = conversation.wait_for(answer, _CANCEL_TIMEOUT_S)
    if isinstance(found, CancelJobRejected | JobStatusChanged):
        return status_from_answer(found)
    raise CommandFailure(
        ExitCode.UNREACHABLE,
        f"job {job_id} did not end within {_CANCEL_TIMEOUT_S:g} s after the cancel request: see "
        f"`tailrace log --job {job_id}`, and check that a jobmanager runs",
    )


def status_from_answer(answer: CancelJobRejected | JobStatusChanged) -> JobStatus:
    """Returns the final status from the answer to a cancel request. Raises CommandFailure if it was rejected."""
    if isinstance(answer, JobStatusChanged):
        return answer.status
    if answer.reason != rejection_reason(answer.job_id, CANCELLED_BEFORE_BUILT):
        raise CommandFailure(ExitCode.JOB, answer.reason)
    # The program was not built yet, so no job existed. For the user the result is the same: the job is cancelled.
    print_progress(f"the program of job {answer.job_id} was not built yet, and will not be built")
    return JobStatus.CANCELED
