"""Jobs that are paused, resumed and restarted by a client, in a whole cluster."""

from __future__ import annotations

from tailrace.schemas import client, dispatcher
from tailrace.schemas.body import Body
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.configuration.role_options import FixedDelay, JobOptions
from tailrace.services.job_master.state import StartedJob

from .cluster import Cluster, graph, start_cluster
from .jobs import with_options


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


INTERVAL, BACKEND = "execution.checkpointing.interval", "state.backend.type"
FIXED_DELAY = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "3"}


def configure(cluster: Cluster, configuration: dict[str, str], *removed: str) -> None:
    request(cluster, dispatcher.ConfigureJob(job_id="j1", configuration=configuration, removed=removed))


def test_changed_options_hold_without_restart_and_until_they_are_removed() -> None:
    cluster = running()
    before, attempts = job(cluster).options, job(cluster).current_attempts
    configure(cluster, {**FIXED_DELAY, INTERVAL: "5 s"})
    options = job(cluster).options
    assert isinstance(options.restart_strategy, FixedDelay)
    assert (options.restart_strategy.attempts, options.checkpointing.interval) == (3, 5_000_000)
    configure(cluster, {INTERVAL: "7 s"}, *FIXED_DELAY)
    assert dict(job(cluster).changed_options) == {INTERVAL: "7 s"}
    configure(cluster, {}, INTERVAL)
    assert (job(cluster).options, dict(job(cluster).changed_options)) == (before, {})
    assert job(cluster).current_attempts == attempts
    assert len(cluster.events_of("JobConfigurationChanged")) == 3


def test_options_after_change_are_those_of_job_started_with_them() -> None:
    cluster = running()
    configure(cluster, {**FIXED_DELAY, INTERVAL: "5 s"})
    started = job(cluster)
    again = JobOptions.from_configuration({**started.graph.configuration, **started.changed_options})
    assert started.options == again


def test_changed_options_survive_pause_new_leader_and_resumption() -> None:
    cluster = running()
    request(cluster, dispatcher.PauseJob(job_id="j1"))
    configure(cluster, {INTERVAL: "5 s"})
    cluster.start_master()
    cluster.settle()
    request(cluster, dispatcher.ResumeJob(job_id="j1"))
    assert job(cluster).is_fully_running
    assert job(cluster).options.checkpointing.interval == 5_000_000


def test_changed_interval_decides_when_next_checkpoint_is_triggered() -> None:
    cluster = start_cluster("te-1", slots=2)
    checkpointing = {"state.checkpoints.dir": "file:///checkpoints", INTERVAL: "1 h"}
    cluster.submit("j1", with_options(graph(2), checkpointing))
    cluster.settle()
    cluster.tick(30)
    assert cluster.events_of("CheckpointTriggered") == []
    configure(cluster, {INTERVAL: "10 s"})
    cluster.tick(30)
    assert cluster.events_of("CheckpointTriggered") != []


def test_change_that_is_not_possible_is_refused_with_what_to_do() -> None:
    cluster = running()
    configure(cluster, {BACKEND: "rocksdb", INTERVAL: "5 s"})
    configure(cluster, {INTERVAL: "off"})
    configure(cluster, {INTERVAL: "soon"})
    configure(cluster, {"execution.checkpointing.intervall": "5 s"})
    configure(cluster, {"heartbeat.timeout": "5 s"})
    configure(cluster, {})
    configure(cluster, {INTERVAL: "5 s"}, INTERVAL)
    reasons = refusals(cluster)
    assert "can't change while the job runs: stop the job with a savepoint" in reasons[0]
    assert "can't become `off`" in reasons[1]
    assert "execution.checkpointing.interval is 'soon': it may be" in reasons[2]
    assert reasons[3].endswith("the nearest is execution.checkpointing.interval")
    assert "is an option of the cluster's processes" in reasons[4]
    assert reasons[5:] == ["no option is named", f"{INTERVAL} can't be both set and removed"]
    assert cluster.events_of("JobConfigurationChanged") == []
    assert not job(cluster).changed_options
