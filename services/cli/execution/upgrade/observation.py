"""Reads from the log what an upgrade goes by: the old job, and the jobs whose ids follow from it."""

from __future__ import annotations

from .....schemas.types import ExecutionState, JobStatus, SnapshotType
from ....history import HistoryProjection
from ....history.checkpoint_history import CheckpointStatus
from ....history.cluster_view import find_dispatcher, find_started_job, job_view
from ....history.execution_history import AttemptView, ExecutionGraphView
from .steps import JobFacts, Upgrade, fallback_id, successor_id


def read_upgrade(fold: HistoryProjection, old_id: str) -> Upgrade | None:
    """Returns what the log has of the upgrade of a job; None for a job that is unknown or forgotten."""
    old = read_job_facts(fold, old_id)
    if old is None:
        return None
    savepoint = find_last_savepoint(fold, old_id)
    return Upgrade(
        old,
        savepoint,
        successor=None if savepoint is None else read_job_facts(fold, successor_id(old_id, savepoint)),
        fallback=read_job_facts(fold, fallback_id(old_id)),
    )


def find_upgraded_job(fold: HistoryProjection, job_id: str) -> str | None:
    """Returns the job whose upgrade has started this one; None if there is none, or it is forgotten."""
    for old_id in find_dispatcher(fold.replica.states).jobs:
        savepoint = find_last_savepoint(fold, old_id)
        if savepoint is not None and job_id in (successor_id(old_id, savepoint), fallback_id(old_id)):
            return old_id
    return None


def find_last_savepoint(fold: HistoryProjection, job_id: str) -> str | None:
    """Returns the complete savepoint that has stopped the job."""
    for view in reversed(fold.checkpoints.for_job(job_id).checkpoints):
        is_last = view.stops and view.snapshot_type is SnapshotType.SAVEPOINT
        if is_last and view.status is CheckpointStatus.COMPLETED:
            return view.uri
    return None


def read_job_facts(fold: HistoryProjection, job_id: str) -> JobFacts | None:
    """Returns what the log has of a job; None if the cluster does not know it."""
    job = find_dispatcher(fold.replica.states).jobs.get(job_id)
    if job is None:
        return None
    view, graph = job_view(fold, job), fold.executions.graph(job_id)
    master = find_started_job(fold.replica.states, job_id)
    failure = graph.exceptions[0] if graph is not None and graph.exceptions else None
    return JobFacts(
        job_id=job_id,
        status=view.status,
        submitted_at=view.submitted or 0,
        ended_at=view.ended,
        reason=(view.reason or "").partition("\n")[0] or None,
        running_since=None if graph is None else _running_since(graph),
        has_run=graph is not None and any(_started_at(attempt) for attempt in graph.attempts),
        failed_at=None if failure is None else failure.time,
        last_failed_at=None if graph is None or failure is None else graph.exceptions[-1].time,
        failure="" if failure is None else f"{failure.task}: {failure.text.strip().splitlines()[0]}",
        runs_now=master is not None and master.is_fully_running,
        missing_slots=view.missing_slots,
    )


def _running_since(graph: ExecutionGraphView) -> int | None:
    """Returns when the first attempts of all tasks ran. An attempt that the history has no longer ran long ago."""
    first: dict[tuple[str, int], AttemptView] = {}
    for attempt in graph.attempts:
        task = attempt.vertex_id, attempt.subtask_index
        if task not in first or attempt.attempt_number < first[task].attempt_number:
            first[task] = attempt
    if len(first) < sum(vertex.parallelism for vertex in graph.vertices):
        return None
    times = [_started_at(attempt) for attempt in first.values()]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def _started_at(attempt: AttemptView) -> int | None:
    return attempt.times.get(ExecutionState.RUNNING, attempt.times.get(ExecutionState.FINISHED))


def has_started_from(fold: HistoryProjection, savepoint: str, besides: frozenset[str]) -> str | None:
    """Returns a job that started from the savepoint, besides those of the upgrade."""
    for job_id, job in find_dispatcher(fold.replica.states).jobs.items():
        path = None if job_id in besides or job.status is JobStatus.FAILED else job.savepoint_path
        if path is not None and path.rstrip("/") == savepoint.rstrip("/"):
            return job_id
    return None
