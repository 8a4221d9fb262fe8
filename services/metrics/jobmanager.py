"""The samples of a jobmanager: pure functions of the states of its replica. Standbys have the same states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ...schemas.types import JobStatus
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Time, address
from ..dispatcher.state import DispatcherState
from ..job_master.state import StartedJob
from ..resource_manager.state import ResourceManagerState
from . import table
from .event_totals import EventTotals, JobTotals
from .samples import Sample

_SECOND: Final = 1e6
"""In microseconds."""


def sample_groups(states: Mapping[str, object], totals: EventTotals, now: Time) -> Iterator[Sequence[Sample]]:
    """Yields the samples of the cluster, then those of each job that has not ended, the oldest job first. Times are in
    microseconds."""
    jobs = live_jobs(states)
    yield [*cluster_samples(states, jobs), *_event_samples(totals)]
    for job in jobs:
        yield job_samples(job, totals.for_job(address(JOB_MASTER, job.job_id)), now)


def live_jobs(states: Mapping[str, object]) -> list[StartedJob]:
    """Returns the jobs that have tasks or will have some, in the order in which they started."""
    dispatcher = states.get(DISPATCHER)
    if not isinstance(dispatcher, DispatcherState):
        return []
    known = (states.get(address(JOB_MASTER, job_id)) for job_id in dispatcher.live)
    jobs = [state for state in known if isinstance(state, StartedJob) and not state.has_ended]
    return sorted(jobs, key=lambda job: (job.start_offset, job.job_id))


def cluster_samples(states: Mapping[str, object], jobs: Sequence[StartedJob]) -> list[Sample]:
    """Returns the samples of the ResourceManager and the Dispatcher."""
    state = states.get(RESOURCE_MANAGER)
    manager = state if isinstance(state, ResourceManagerState) else ResourceManagerState()
    slots, requests = manager.slot_manager.slots, manager.slot_manager.requests
    return [
        Sample(table.TASK_MANAGERS, (), len(manager.workers)),
        Sample(table.RUNNING_JOBS, (), sum(job.status is JobStatus.RUNNING for job in jobs)),
        Sample(table.SLOTS_TOTAL, (), slots.count),
        Sample(table.SLOTS_AVAILABLE, (), slots.free_count),
        Sample(table.OPEN_SLOT_REQUESTS, (), sum(len(job.open) for job in requests.jobs.values())),
    ]


def job_samples(job: StartedJob, totals: JobTotals, now: Time) -> list[Sample]:
    """Returns the samples of one job."""
    labels = job.job_id, job.graph.name
    checkpoints = job.checkpoints
    running_since = checkpoints.since if job.is_fully_running else None
    found = [
        Sample(table.JOB_UPTIME, labels, _seconds_since(running_since, now)),
        Sample(table.JOB_DOWNTIME, labels, _seconds_since(totals.down_since, now)),
        Sample(table.JOB_RESTARTS, labels, count_restarts(job)),
        Sample(table.CHECKPOINTS_COMPLETED, labels, totals.completed),
        Sample(table.CHECKPOINTS_FAILED, labels, totals.failed),
        Sample(table.CHECKPOINTS_IN_PROGRESS, labels, len(checkpoints.pending)),
    ]
    if totals.last_duration is not None:
        found.append(Sample(table.CHECKPOINT_DURATION, labels, totals.last_duration / _SECOND))
    if totals.last_completed is not None:
        found.append(Sample(table.CHECKPOINT_TIME, labels, totals.last_completed / _SECOND))
    if checkpoints.completed:
        last = checkpoints.completed[-1]
        found.append(Sample(table.CHECKPOINT_SIZE, labels, last.size))
        found.append(Sample(table.CHECKPOINT_ID, labels, last.checkpoint_id))
    return found


def count_restarts(job: StartedJob) -> int:
    """Returns the number of attempts of all subtasks after their first ones."""
    return sum(job.executions[attempt].attempt_number for attempt in job.current_attempts.values())


def _event_samples(totals: EventTotals) -> list[Sample]:
    return [Sample(table.EVENTS, (name,), count) for name, count in sorted(totals.events().items())]


def _seconds_since(since: Time | None, now: Time) -> float:
    return 0.0 if since is None else max(0, now - since) / _SECOND
