"""Jobs that are paused, resumed and restarted by a client, in a whole cluster."""

from __future__ import annotations

from tailrace.schemas import client, dispatcher
from tailrace.schemas.body import Body
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.job_master.state import StartedJob

from .cluster import Cluster, graph, start_cluster


def running() -> Cluster:
    cluster = start_cluster("te-1", slots=2)
    cluster.submit("j1", graph(2))
    cluster.settle()
    return cluster


def request(cluster: Cluster, body: Body) -> None:
    cluster.send("client/test", "dispatcher", body)
    cluster.settle()


def job(cluster: Cluster) -> StartedJob:
    state = cluster.replica.states["job_master/j1"]
    assert isinstance(state, StartedJob)
    return state


def refusals(cluster: Cluster) -> list[str]:
    bodies = [record.body for record in cluster.events_of("JobRequestRejected")]
    return [body.reason for body in bodies if isinstance(body, client.JobRequestRejected)]


def test_paused_job_gives_its_slots_back_and_continues_when_resumed() -> None:
    cluster = running()
    request(cluster, dispatcher.PauseJob(job_id="j1"))
    assert job(cluster).status is JobStatus.SUSPENDED
    assert cluster.replica.states["resource_manager"].slot_manager.slots.free_count == 2
    request(cluster, dispatcher.ResumeJob(job_id="j1"))
    assert job(cluster).is_fully_running
    assert {execution.attempt_number for execution in job(cluster).executions.values()} >= {1}


def test_paused_job_stays_paused_when_cluster_restarts() -> None:
    cluster = running()
    request(cluster, dispatcher.PauseJob(job_id="j1"))
    request(cluster, dispatcher.ShutDownCluster(reason="maintenance", suspend=True))
    cluster.start_master()
    cluster.start_task_executor("te-1", 2)
    cluster.settle()
    assert job(cluster).status is JobStatus.SUSPENDED
    request(cluster, dispatcher.ResumeJob(job_id="j1"))
    assert job(cluster).is_fully_running


def test_paused_job_is_cancelled_on_request() -> None:
    cluster = running()
    request(cluster, dispatcher.PauseJob(job_id="j1"))
    request(cluster, dispatcher.CancelJob(job_id="j1"))
    assert cluster.replica.states["job_master/j1"].status is JobStatus.CANCELED


def test_request_that_does_not_fit_is_rejected() -> None:
    cluster = running()
    request(cluster, dispatcher.ResumeJob(job_id="j1"))
    request(cluster, dispatcher.PauseJob(job_id="nobody"))
    request(cluster, dispatcher.PauseJob(job_id="j1"))
    request(cluster, dispatcher.PauseJob(job_id="j1"))
    request(cluster, dispatcher.RestartTasks(job_id="j1"))
    assert refusals(cluster) == [
        "job j1 is not paused",
        "job nobody is unknown",
        "job j1 is paused",
        "job j1 is paused",
    ]


def test_restart_of_subtask_leaves_other_tasks_alone() -> None:
    cluster = running()
    before = job(cluster).current_attempts
    chosen = min(before)
    request(cluster, dispatcher.RestartTasks(job_id="j1", vertex_id=chosen[0], subtask_index=chosen[1]))
    after = job(cluster).current_attempts
    assert {key for key in before if before[key] != after[key]} == {chosen}
    assert job(cluster).is_fully_running
    assert job(cluster).exceptions == ()
    assert cluster.events_of("RestartScheduled") == []


def test_restart_of_job_restarts_all_tasks() -> None:
    cluster = running()
    before = job(cluster).current_attempts
    request(cluster, dispatcher.RestartTasks(job_id="j1"))
    after = job(cluster)
    assert all(before[key] != after.current_attempts[key] for key in before)
    assert {after.executions[each].state for each in after.current_attempts.values()} == {
        ExecutionState.RUNNING
    }
