"""The metrics of jobs and of the cluster. The log has them: so they exist for ended jobs and for moments of the past,
too. Only latencies come from the TaskExecutors of a job that runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from ....schemas.states import JOB_ENDS
from ....schemas.types import ExecutionState, JobStatus
from ...history.cluster_view import JobView
from ...history.execution_history import AttemptView
from ..endpoint import Parameters
from ..moment import Moment
from .checkpoints import CheckpointingStatistics, checkpoints
from .cluster import overview
from .job_list import jobs
from .lookup import find_graph, find_job
from .metrics import AggregatedMetric, Metric, aggregate, names_of, select

JobValues = dict[str, float | str]
_STATUS_NAMES: Final = {
    JobStatus.CREATED: "createdTime",
    JobStatus.RUNNING: "runningTime",
    JobStatus.RESTARTING: "restartingTime",
    JobStatus.FAILING: "failingTime",
    JobStatus.CANCELLING: "cancellingTime",
}
_RUNS: Final = (ExecutionState.RUNNING, ExecutionState.FINISHED)


def metrics(moment: Moment, parameters: Parameters) -> Sequence[Metric]:
    """GET /jobs/:jobid/metrics"""
    return select(_values(moment, parameters), parameters)


def aggregated_metrics(moment: Moment, parameters: Parameters) -> Sequence[AggregatedMetric]:
    """GET /jobs/metrics: over all jobs, or those of `jobs`"""
    chosen = names_of(parameters, "jobs")
    return aggregate(list(_job_values(moment, chosen)), parameters)


def cluster_metrics(moment: Moment, parameters: Parameters) -> Sequence[Metric]:
    """GET /jobmanager/metrics"""
    known = overview(moment, {})
    values: JobValues = {
        "numRegisteredTaskManagers": known.taskmanagers,
        "numRunningJobs": known.jobs_running,
        "taskSlotsTotal": known.slots_total,
        "taskSlotsAvailable": known.slots_available,
    }
    return select(values, parameters)


def _job_values(moment: Moment, chosen: Collection[str] | None) -> Iterator[JobValues]:
    for job_id in chosen if chosen is not None else [each.id for each in jobs(moment, {}).jobs]:
        yield _values(moment, {"jobid": job_id})


def _values(moment: Moment, parameters: Parameters) -> JobValues:
    _, view = find_job(moment, parameters)
    attempts = [each for each in find_graph(moment, view).attempts if each.is_current]
    return {
        "numRestarts": sum(each.attempt_number for each in attempts),
        **_times(moment, view, attempts),
        **_checkpoint_values(checkpoints(moment, parameters)),
        **moment.live.jobs.get(view.job_id, {}),
    }


def _times(moment: Moment, view: JobView, attempts: Sequence[AttemptView]) -> JobValues:
    """Returns times in milliseconds. The job is up while all its tasks run, and down from the failure of one on; both
    are -1 after its end, as in Flink."""
    statuses = moment.fold.executions.statuses(view.job_id)
    entered = statuses.get(view.status)
    values: JobValues = {
        name: max(0, moment.now - entered // 1000) if status is view.status and entered is not None else 0
        for status, name in _STATUS_NAMES.items()
    }
    has_ended = view.status in JOB_ENDS
    running = [each.times.get(ExecutionState.RUNNING) for each in attempts if each.state in _RUNS]
    runs_since = max((time for time in running if time is not None), default=None)
    waiting = [each for each in attempts if each.state not in _RUNS and each.attempt_number > 0]
    down_since = min((time for each in waiting for time in each.times.values()), default=None)
    is_up = view.status is JobStatus.RUNNING and bool(attempts) and len(running) == len(attempts)
    values["uptime"] = _since(moment, runs_since) if is_up else -1 if has_ended else 0
    values["downtime"] = -1 if has_ended else _since(moment, down_since)
    return values


def _since(moment: Moment, time: int | None) -> int:
    return 0 if time is None else max(0, moment.now - time // 1000)


def _checkpoint_values(found: CheckpointingStatistics) -> JobValues:
    counts, latest = found.counts, found.latest
    values: JobValues = {
        "totalNumberOfCheckpoints": counts.total,
        "numberOfInProgressCheckpoints": counts.in_progress,
        "numberOfCompletedCheckpoints": counts.completed,
        "numberOfFailedCheckpoints": counts.failed,
    }
    complete = [each for each in (latest.completed, latest.savepoint) if each is not None]
    if complete:
        last = max(complete, key=lambda each: each.id)
        values |= {
            "lastCompletedCheckpointId": last.id,
            "lastCheckpointDuration": last.end_to_end_duration,
            "lastCheckpointCompletedTimestamp": last.latest_ack_timestamp,
            "lastCheckpointSize": last.checkpointed_size,
            "lastCheckpointFullSize": last.state_size,
            "lastCheckpointPersistedData": last.persisted_data,
            "lastCheckpointProcessedData": last.processed_data,
        }
        if last.external_path is not msgspec.UNSET:
            values["lastCheckpointExternalPath"] = last.external_path
    if latest.restored is not None:
        values["lastCheckpointRestoreTimestamp"] = latest.restored.restore_timestamp
    return values
