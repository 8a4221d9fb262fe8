"""The incidents of a job that its submitter sees, from the log of a simulated cluster."""

from __future__ import annotations

import pytest

from tailrace.schemas import job_master, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState
from tailrace.services.client import Incident, JobIncidentTracker
from tailrace.services.client.job_incidents import is_about_job
from tailrace.services.history import HistoryProjection
from tailrace.services.job_master.state import StartedJob

from ...submitted_tasks import submitted_tasks
from ..simulated_cluster.cluster import Cluster, graph

TRACEBACK = "Traceback (most recent call last):\n  in parse"
FAILURE = f"ValueError: cannot parse 'x' at count.py:6, in operator 'Map'\n{TRACEBACK}"


@pytest.fixture
def cluster() -> Cluster:
    """Returns a cluster with two running jobs, each on a TaskExecutor of its own, and a third TaskExecutor."""
    cluster = Cluster()
    cluster.start_master()
    for number in range(3):
        cluster.start_task_executor(f"te-{number}", 2)
    cluster.settle()
    for job_id in ("job-a", "job-b"):
        cluster.submit(job_id, graph(2))
        cluster.settle()
    return cluster


def incidents_of(cluster: Cluster, job_id: str = "job-a", after: int = 0) -> list[Incident]:
    """Returns the incidents that a client of the job sees when it reads the events one by one."""
    incidents = JobIncidentTracker(job_id)
    results = []
    for record in cluster.log:
        header = record.header
        if header.recipient == "*" or is_about_job(f"job_master/{job_id}", header.sender, header.recipient):
            new_incidents = incidents.on_event([record])
            results += new_incidents if record.offset >= after else []
    return results


def submitted(cluster: Cluster, job_id: str) -> list[Record]:
    return [
        record
        for record in cluster.log
        if isinstance(record.body, task_executor.SubmitTask) and record.body.job_id == job_id
    ]


def fail(cluster: Cluster, record: Record) -> None:
    body = record.body
    assert isinstance(body, task_executor.SubmitTask)
    for subtask in body.subtasks:
        cluster.report(record.header.recipient, subtask.execution_attempt_id, ExecutionState.FAILED, FAILURE)


def test_number_of_missing_slots_equals_that_of_job_master() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-0", 1)
    cluster.submit("job-a", graph(3))
    cluster.settle()
    cluster.start_task_executor("te-1", 1)
    cluster.settle()
    cluster.kill("te-0")
    cluster.lose("te-0", "its process has ended")
    cluster.settle()
    cluster.start_task_executor("te-2", 2)
    cluster.settle()
    cluster.tick(5)
    cluster.settle()
    fold, incidents, seen = HistoryProjection(), JobIncidentTracker("job-a"), []
    for record in cluster.log:
        fold.apply(record)
        header = record.header
        if header.recipient == "*" or is_about_job("job_master/job-a", header.sender, header.recipient):
            incidents.on_event([record])
        state = fold.replica.states.get("job_master/job-a")
        wanted = len(state.slots.requests) if isinstance(state, StartedJob) else 0
        seen.append((incidents.waits_for_slots, wanted))
    assert seen[-1] == (0, 0)
    assert max(seen) == (3, 3)


def test_healthy_job_has_no_incidents(cluster: Cluster) -> None:
    assert incidents_of(cluster) == []
    cluster.finish_all()
    cluster.settle()
    assert incidents_of(cluster) == []


def test_failed_task_is_reported_with_name_attempt_reason_and_traceback(cluster: Cluster) -> None:
    first = submitted(cluster, "job-a")[0]
    before = len(cluster.log)
    fail(cluster, first)
    failed, *rest = incidents_of(cluster, after=before)
    assert "(1/1) failed, attempt 1: ValueError: cannot parse 'x' at count.py:6" in failed.line
    assert "\n" not in failed.line
    assert failed.details == TRACEBACK
    assert rest == []


def test_restart_is_reported_with_next_attempt(cluster: Cluster) -> None:
    fail(cluster, submitted(cluster, "job-a")[0])
    before = len(cluster.log)
    cluster.settle()
    cluster.tick(60)
    cluster.settle()
    (again,) = incidents_of(cluster, after=before)
    assert again.line.endswith("attempt 2")
    assert "restarts on te-" in again.line


def test_loss_of_taskexecutor_is_reported_to_jobs_with_tasks_there(cluster: Cluster) -> None:
    there = submitted(cluster, "job-a")[0].header.recipient.partition("/")[2]
    tasks = submitted_tasks(record.body for record in submitted(cluster, "job-a"))
    before = len(cluster.log)
    cluster.kill(there)
    cluster.lose(there, "its process has ended")
    cluster.settle()
    lost = incidents_of(cluster, after=before)[0].line
    assert there in lost
    assert "its process has ended" in lost
    assert lost.endswith(f"{len(tasks)} tasks ran there")
    assert incidents_of(cluster, "job-b", after=before) == []


def test_late_report_of_lost_task_executor_is_not_reported_again(cluster: Cluster) -> None:
    first = submitted(cluster, "job-a")[0]
    cluster.kill(first.header.recipient.partition("/")[2])
    cluster.lose(first.header.recipient.partition("/")[2], "no heartbeat")
    cluster.settle()
    before = len(cluster.log)
    assert isinstance(first.body, task_executor.SubmitTask)
    update = job_master.UpdateTaskExecutionState(
        job_id="job-a",
        execution_attempt_id=first.body.subtasks[0].execution_attempt_id,
        execution_state=ExecutionState.FAILED,
        failure="fenced",
    )
    cluster.send(first.header.recipient, "job_master/job-a", update)
    assert incidents_of(cluster, after=before) == []


def test_concurrent_failures_are_reported_in_few_lines(cluster: Cluster) -> None:
    deployments = submitted(cluster, "job-a")
    tasks = submitted_tasks(record.body for record in deployments)
    incidents = JobIncidentTracker("job-a")
    incidents.on_event(cluster.log)
    before = len(cluster.log)
    for record in deployments:
        fail(cluster, record)
    results = incidents.on_event(cluster.log[before:])
    assert len(tasks) > 4
    assert len(results) == 4
    assert results[-1].line == f"and {len(tasks) - 3} more failures"


def test_missing_slots_are_reported_with_reason() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.submit("job-a")
    cluster.settle()
    cluster.tick(301)
    cluster.settle()
    (refused,) = incidents_of(cluster)
    assert "0 are registered" in refused.line
