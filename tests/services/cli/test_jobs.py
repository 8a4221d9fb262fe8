"""What `list` and `cluster status` say of jobs that restart, wait or are over, from the log."""

from __future__ import annotations

import pytest

from tailrace.schemas import dispatcher
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.cli.cluster_view import _told, counts
from tailrace.services.cli.jobs import why
from tailrace.services.history import Fold
from tailrace.services.history.views import JobView, jobs

from ..simulation import Cluster, graph
from ..simulation_jobs import configured

RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "2"}


def running_cluster() -> Cluster:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=2)
    cluster.settle()
    cluster.submit("j", configured(graph(1), RESTARTS))
    cluster.settle()
    return cluster


def seen(cluster: Cluster) -> JobView:
    fold = Fold()
    for record in cluster.log:
        fold.tell(record)
    (job,) = jobs(fold)
    return job


def test_while_a_job_restarts_its_last_failure_is_told_and_not_after_that() -> None:
    cluster = running_cluster()
    assert seen(cluster).restarting is None
    for attempt in (1, 2):
        cluster.finish_all(ExecutionState.FAILED, f"it broke\n{attempt}")
        cluster.settle()
        job = seen(cluster)
        assert job.restarting is not None
        assert job.restarting.attempt_number == attempt
        assert job.restarting.at > 0
        assert why(job).startswith(f"restarting, attempt {attempt + 1}: ")
        assert why(job).endswith(f"it broke {attempt}")
        cluster.tick(2)
        assert seen(cluster).restarting is None
        assert why(seen(cluster)) == ""
    cluster.finish_all(ExecutionState.FAILED, "for good")
    cluster.settle()
    assert seen(cluster).restarting is None
    assert "for good" in why(seen(cluster))


def test_a_lost_task_executor_is_a_reason() -> None:
    cluster = running_cluster()
    cluster.kill("te-1")
    cluster.lose("te-1", "its process has ended")
    cluster.settle()
    assert why(seen(cluster)) == "restarting, attempt 2: TaskExecutor te-1 is lost: its process has ended"


def test_a_job_that_is_suspended_says_so_and_its_old_failures_are_over_when_it_goes_on() -> None:
    cluster = running_cluster()
    cluster.finish_all(ExecutionState.FAILED, "it broke")
    cluster.settle()
    cluster.say("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="maintenance", suspend=True))
    cluster.settle()
    job = seen(cluster)
    assert job.status is JobStatus.SUSPENDED
    assert job.restarting is None
    assert why(job) == "the cluster is shutting down: maintenance"
    cluster.start_master()
    cluster.settle()
    assert seen(cluster).restarting is None


def test_a_job_that_waits_for_slots_says_for_how_many() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=1)
    cluster.submit("j", graph(3))
    cluster.settle()
    assert why(seen(cluster)) == "waits for 2 of 3 slots"


def test_a_long_reason_is_cut() -> None:
    view = JobView("j", "", JobStatus.FAILED, "x" * 1000, 1, 2, {}, 1, 0, {}, None)
    assert why(view) == "x" * 117 + "..."


@pytest.mark.parametrize(
    ("statuses", "told"),
    [
        ((), "0 jobs run, 0 have ended"),
        (("RUNNING",), "1 job runs, 0 have ended"),
        (("RUNNING", "CANCELLING", "FAILED"), "2 jobs run, 1 has ended"),
        (("SUSPENDED", "FINISHED", "CANCELED"), "0 jobs run, 1 is suspended, 2 have ended"),
        (("SUSPENDED", "SUSPENDED", "CREATED"), "1 job runs, 2 are suspended, 0 have ended"),
    ],
)
def test_suspended_jobs_are_neither_running_nor_over(statuses: tuple[str, ...], told: str) -> None:
    found = counts(JobStatus(each) for each in statuses)
    assert sum(found.values()) == len(statuses)
    assert _told(found) == told
