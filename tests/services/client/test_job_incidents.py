"""What whoever submitted a job is told of its failures, by the log of a simulated cluster."""

from __future__ import annotations

import pytest

from tailrace.schemas import job_master, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState
from tailrace.services.client import Incident, JobIncidentTracker
from tailrace.services.client.job_incidents import is_about_job
from tailrace.services.history import HistoryProjection
from tailrace.services.job_master.state import JobMasterState

from ..simulated_cluster.cluster import Cluster, graph

TRACEBACK = "Traceback (most recent call last):\n  in parse"
FAILURE = f"ValueError: cannot parse 'x' at count.py:6, in operator 'Map'\n{TRACEBACK}"


@pytest.fixture
def cluster() -> Cluster:
    """Two jobs run, each with a TaskExecutor of its own; there is a third one."""
    cluster = Cluster()
    cluster.start_master()
    for number in range(3):
        cluster.start_task_executor(f"te-{number}", 2)
    cluster.settle()
    for job_id in ("job-a", "job-b"):
        cluster.submit(job_id, graph(2))
        cluster.settle()
    return cluster


def told(cluster: Cluster, job_id: str = "job-a", after: int = 0) -> list[Incident]:
    """What a client that follows the job is told, by events that it gets one by one."""
    incidents = JobIncidentTracker(job_id)
    found = []
    for record in cluster.log:
        header = record.header
        if header.recipient == "*" or is_about_job(f"job_master/{job_id}", header.sender, header.recipient):
            heard = incidents.on_event([record])
            found += heard if record.offset >= after else []
    return found


def submitted(cluster: Cluster, job_id: str) -> list[Record]:
    return [
        record
        for record in cluster.log
        if isinstance(record.body, task_executor.SubmitTask) and record.body.job_id == job_id
    ]


def fail(cluster: Cluster, record: Record) -> None:
    body = record.body
    assert isinstance(body, task_executor.SubmitTask)
    cluster.report(record.header.recipient, body.execution_attempt_id, ExecutionState.FAILED, FAILURE)


def test_how_many_slots_a_job_waits_for_is_what_its_job_master_waits_for() -> None:
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
        wanted = len(state.slots.requests) if isinstance(state, JobMasterState) else 0
        seen.append((incidents.waits_for_slots, wanted))
    assert seen[-1] == (0, 0)
    assert max(seen) == (3, 3)


def test_a_job_that_runs_well_has_no_incidents(cluster: Cluster) -> None:
    assert told(cluster) == []
    cluster.finish_all()
    cluster.settle()
    assert told(cluster) == []


def test_a_failed_task_is_told_with_its_name_attempt_reason_and_traceback(cluster: Cluster) -> None:
    first = submitted(cluster, "job-a")[0]
    before = len(cluster.log)
    fail(cluster, first)
    failed, *rest = told(cluster, after=before)
    assert "(1/1) failed, attempt 1: ValueError: cannot parse 'x' at count.py:6" in failed.line
    assert "\n" not in failed.line
    assert failed.details == TRACEBACK
    assert rest == []


def test_what_starts_again_is_told_with_its_next_attempt(cluster: Cluster) -> None:
    fail(cluster, submitted(cluster, "job-a")[0])
    before = len(cluster.log)
    cluster.settle()
    cluster.tick(60)
    cluster.settle()
    (again,) = told(cluster, after=before)
    assert again.line.endswith("attempt 2")
    assert "starts again on te-" in again.line


def test_the_loss_of_a_taskexecutor_is_told_to_those_whose_tasks_ran_there(cluster: Cluster) -> None:
    there = submitted(cluster, "job-a")[0].header.recipient.partition("/")[2]
    before = len(cluster.log)
    cluster.kill(there)
    cluster.lose(there, "its process has ended")
    cluster.settle()
    lost = told(cluster, after=before)[0].line
    assert there in lost
    assert "its process has ended" in lost
    assert lost.endswith(f"{len(submitted(cluster, 'job-a'))} tasks ran there")
    assert told(cluster, "job-b", after=before) == []


def test_a_zombie_that_reports_what_was_lost_is_not_told_again(cluster: Cluster) -> None:
    first = submitted(cluster, "job-a")[0]
    cluster.kill(first.header.recipient.partition("/")[2])
    cluster.lose(first.header.recipient.partition("/")[2], "no heartbeat")
    cluster.settle()
    before = len(cluster.log)
    assert isinstance(first.body, task_executor.SubmitTask)
    update = job_master.UpdateTaskExecutionState(
        job_id="job-a",
        execution_attempt_id=first.body.execution_attempt_id,
        execution_state=ExecutionState.FAILED,
        failure="fenced",
    )
    cluster.say(first.header.recipient, "job_master/job-a", update)
    assert told(cluster, after=before) == []


def test_failures_that_come_together_are_told_in_a_few_lines(cluster: Cluster) -> None:
    tasks = submitted(cluster, "job-a")
    incidents = JobIncidentTracker("job-a")
    incidents.on_event(cluster.log)
    before = len(cluster.log)
    for record in tasks:
        fail(cluster, record)
    found = incidents.on_event(cluster.log[before:])
    assert len(tasks) > 4
    assert len(found) == 4
    assert found[-1].line == f"and {len(tasks) - 3} more failures"


def test_that_there_are_no_slots_is_told_with_the_reason() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.submit("job-a")
    cluster.settle()
    cluster.tick(301)
    cluster.settle()
    (refused,) = told(cluster)
    assert "0 are registered" in refused.line
