"""The jobs that the cluster has forgotten: what a list of all jobs shows, and where the log has the rest.

A job is forgotten some time after its end (JobsForgotten). Then no state has it. All that was known of it is in the
moment before that event. The last 100,000 forgotten jobs are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

import msgspec

from ...schemas.types import JobStatus
from ..core.flink_ids import to_flink_job_id
from ..core.role import DISPATCHER, JOB_MASTER, address
from ..dispatcher.state import DispatcherState
from ..job_master.state import StartedJob, TerminatedJob

MAX_JOBS = 100_000


class ForgottenJob(msgspec.Struct, frozen=True):
    """A job as it was when the cluster forgot it. Times in microseconds since the epoch."""

    name: str
    status: JobStatus
    last_offset: int
    """The offset up to which the states have the job."""
    submitted: int | None = None
    ended: int | None = None
    tasks: Mapping[str, int] = {}
    """ExecutionState -> number of Executions."""
    tenant: str = ""


class ForgottenJobs:
    """The forgotten jobs by their ids, oldest first."""

    def __init__(self, known: Mapping[str, ForgottenJob] | None = None) -> None:
        self._jobs: dict[str, ForgottenJob] = dict(known or {})
        self._by_flink_id = {to_flink_job_id(job_id): job_id for job_id in self._jobs}
        """Flink's JobID -> job id."""

    def all(self) -> Mapping[str, ForgottenJob]:
        """Returns job id -> job, as a view."""
        return MappingProxyType(self._jobs)

    def get(self, wanted: str) -> ForgottenJob | None:
        """Returns the job with this id, tailrace's or Flink's; None if none is known (any more)."""
        return self._jobs.get(wanted) or self._jobs.get(self._by_flink_id.get(wanted, ""))

    def add(self, jobs: Mapping[str, ForgottenJob]) -> None:
        """Adds jobs; the oldest ones are dropped."""
        for job_id, job in jobs.items():
            self._jobs[job_id] = job
            self._by_flink_id[to_flink_job_id(job_id)] = job_id
        for oldest in list(islice(self._jobs, max(0, len(self._jobs) - MAX_JOBS))):
            del self._jobs[oldest]
            self._by_flink_id.pop(to_flink_job_id(oldest), None)


def describe_jobs(
    job_ids: Iterable[str],
    states: Mapping[str, Any],
    last_offset: int,
    submitted: Mapping[str, int],
    ended: Mapping[str, int],
) -> dict[str, ForgottenJob]:
    """Returns the jobs as they are in the states after the event at `last_offset`; without those that are not there."""
    dispatcher = states.get(DISPATCHER)
    found: dict[str, ForgottenJob] = {}
    for job_id in job_ids:
        job = dispatcher.jobs.get(job_id) if isinstance(dispatcher, DispatcherState) else None
        if job is not None:
            state = states.get(address(JOB_MASTER, job_id))
            master = state if isinstance(state, StartedJob | TerminatedJob) else None
            found[job_id] = ForgottenJob(
                name=job.name,
                status=job.status if master is None else master.status,
                last_offset=last_offset,
                submitted=submitted.get(job_id),
                ended=ended.get(job_id),
                tasks={}
                if master is None
                else {each.value: count for each, count in sorted(master.tasks.items())},
                tenant=job.tenant,
            )
    return found
