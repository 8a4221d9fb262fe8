"""A program in another language follows the status of jobs from the events alone, and agrees with tailrace."""

from __future__ import annotations

from pathlib import Path

from job_statuses import read_statuses

from tailrace.schemas.types import JobStatus
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.cluster_view import jobs
from tailrace.services.history.projection import HistoryProjection
from tailrace.services.log.event_log import read_to_end

LOGS = sorted((Path(__file__).parents[1] / "golden").glob("*/*.avro"))


def fold(path: Path) -> HistoryProjection:
    projection = HistoryProjection()
    log = FileLog.open(path)
    try:
        for batch in read_to_end(log):
            for record in batch:
                projection.apply(record)
    finally:
        log.close()
    return projection


def listed_statuses(projection: HistoryProjection) -> dict[str, JobStatus]:
    """Returns what `tailrace list` shows of accepted jobs."""
    return {job.job_id: job.status for job in jobs(projection) if job.programs_before is None}


def test_program_in_java_agrees_with_list_on_golden_logs() -> None:
    histories = read_statuses(*LOGS)
    seen: set[JobStatus] = set()
    for path, history in zip(LOGS, histories, strict=True):
        listed = listed_statuses(fold(path))
        assert {job_id: history[job_id][-1][1] for job_id in listed} == listed, path.name
        seen |= {status for changes in history.values() for _, status in changes}
    assert seen == set(JobStatus)
