"""Quarantine and drain of TaskExecutors and hosts, by hand and by rule, in a whole cluster."""

from __future__ import annotations

from tailrace.schemas import dispatcher, resource_manager
from tailrace.schemas.types import ExecutionState, JobStatus, QuarantineMode
from tailrace.services.job_master.state import StartedJob
from tailrace.services.resource_manager.state import ResourceManagerState

from .cluster import Cluster, graph, start_cluster

QUARANTINED, DRAINING, RELEASED = (
    QuarantineMode.QUARANTINED,
    QuarantineMode.DRAINING,
    QuarantineMode.RELEASED,
)


def set_quarantine(
    cluster: Cluster, mode: QuarantineMode, resource_id: str | None, host: str | None = None
) -> None:
    body = dispatcher.SetQuarantine(resource_id=resource_id, host=host, mode=mode, reason="disk errors")
    cluster.send("client/test", "dispatcher", body)
    cluster.settle()


def places(cluster: Cluster, job_id: str) -> list[str]:
    """Returns where the running tasks of a job are."""
    state = cluster.replica.states[f"job_master/{job_id}"]
    assert isinstance(state, StartedJob)
    assert state.status is JobStatus.RUNNING
    current = [state.executions[attempt] for attempt in state.current_attempts.values()]
    assert {execution.state for execution in current} == {ExecutionState.RUNNING}
    return sorted({execution.resource_id or "" for execution in current})


def manager(cluster: Cluster) -> ResourceManagerState:
    state = cluster.replica.states["resource_manager"]
    assert isinstance(state, ResourceManagerState)
    return state


def requests_at(cluster: Cluster, resource_id: str) -> int:
    asked = cluster.events_of("task_executor.RequestSlot")
    return sum(record.header.recipient == f"task_executor/{resource_id}" for record in asked)


def run(cluster: Cluster, *job_ids: str, parallelism: int = 1) -> None:
    for job_id in job_ids:
        cluster.submit(job_id, graph(parallelism))
        cluster.settle()


def test_quarantined_task_executor_gets_no_slots() -> None:
    cluster = start_cluster("te-1", "te-2", slots=2)
    set_quarantine(cluster, QUARANTINED, "te-1")
    run(cluster, "j1", "j2")
    assert places(cluster, "j1") == places(cluster, "j2") == ["te-2"]
    cluster.submit("j3")
    cluster.settle()
    assert requests_at(cluster, "te-1") == 0
    set_quarantine(cluster, RELEASED, "te-1")
    assert places(cluster, "j3") == ["te-1"]


def test_tasks_of_quarantined_task_executor_move_without_failure() -> None:
    cluster = start_cluster("te-1", slots=2)
    run(cluster, "j1", "j2")
    cluster.start_task_executor("te-2", 2)
    cluster.settle()
    set_quarantine(cluster, QUARANTINED, "te-1")
    assert places(cluster, "j1") == places(cluster, "j2") == ["te-2"]
    moves = [record.header.recipient for record in cluster.events_of("MoveSlot")]
    assert moves == ["job_master/j1", "job_master/j2"]
    assert cluster.events_of("RestartScheduled") == []
    second_move, moved = cluster.events_of("MoveSlot")[1], cluster.events_of("NotifySlotAvailable")[0]
    assert moved.offset < second_move.offset, "the second job is asked when the first has moved"
    assert manager(cluster).slot_manager.slots.workers["te-1"].idle


def test_tasks_stay_until_another_slot_is_free() -> None:
    cluster = start_cluster("te-1", slots=2)
    run(cluster, "j1", parallelism=2)
    set_quarantine(cluster, QUARANTINED, "te-1")
    assert places(cluster, "j1") == ["te-1"]
    assert cluster.events_of("MoveSlot") == []
    # Also a task that fails continues there.
    cluster.finish_all(ExecutionState.FAILED, "broken")
    cluster.tick(60)
    assert places(cluster, "j1") == ["te-1"]
    cluster.start_task_executor("te-2", 1)
    cluster.settle()
    assert places(cluster, "j1") == ["te-1", "te-2"]
    cluster.start_task_executor("te-3", 1)
    cluster.settle()
    assert places(cluster, "j1") == ["te-2", "te-3"]


def test_quarantine_outlives_masters_and_task_executors() -> None:
    cluster = start_cluster("te-1", slots=2)
    set_quarantine(cluster, QUARANTINED, "te-1")
    cluster.start_master()
    cluster.kill("te-1")
    cluster.lose("te-1", "it has exited")
    cluster.settle()
    cluster.start_task_executor("te-1", 2)
    cluster.settle()
    run(cluster, "j1")
    assert requests_at(cluster, "te-1") == 0


def test_quarantine_of_host_holds_for_all_its_task_executors() -> None:
    cluster = start_cluster()
    for resource_id, host in (("te-1", "a:1"), ("te-2", "b:2"), ("te-3", "a:3")):
        cluster.start_task_executor(resource_id, 1, host)
    cluster.settle()
    set_quarantine(cluster, DRAINING, None, "a")
    cluster.start_task_executor("te-4", 1, "a:4")
    cluster.settle()
    run(cluster, "j1")
    assert places(cluster, "j1") == ["te-2"]
    cluster.submit("j2")
    cluster.settle()
    assert [requests_at(cluster, each) for each in ("te-1", "te-3", "te-4")] == [0, 0, 0]
    # A TaskExecutor of its own quarantine stays quarantined when the host is released.
    set_quarantine(cluster, QUARANTINED, "te-1")
    set_quarantine(cluster, RELEASED, None, "a")
    assert places(cluster, "j2") in (["te-3"], ["te-4"])
    assert set(manager(cluster).slot_manager.slots.excluded) == {"te-1"}


def test_drained_worker_of_driver_is_stopped_when_its_tasks_have_moved() -> None:
    cluster = start_cluster(
        configuration={"resourcemanager.mode": "active", "taskmanager.numberOfTaskSlots": "1"}
    )
    run(cluster, "j1")
    assert places(cluster, "j1") == ["worker-1"]
    set_quarantine(cluster, DRAINING, "worker-1")
    assert places(cluster, "j1") == ["worker-2"]
    (stop,) = (record.body for record in cluster.events_of("StopWorker"))
    assert isinstance(stop, resource_manager.StopWorker)
    assert stop.resource_id == "worker-1"
    assert stop.reason == "it is drained: disk errors"
    assert list(manager(cluster).workers) == ["worker-2"]


RULE = {
    "taskmanager.quarantine.task-failures": "2",
    "taskmanager.quarantine.interval": "10 min",
    "taskmanager.quarantine.duration": "1 h",
    "taskmanager.quarantine.max-percent": "50",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
}


def changes(cluster: Cluster) -> list[resource_manager.QuarantineChanged]:
    bodies = (record.body for record in cluster.events_of("QuarantineChanged"))
    return [body for body in bodies if isinstance(body, resource_manager.QuarantineChanged)]


def fail(cluster: Cluster, resource_id: str) -> None:
    """Fails a running task of a TaskExecutor."""
    tasks = cluster.replica.states[f"task_executor/{resource_id}"].tasks
    cluster.report(f"task_executor/{resource_id}", min(tasks), ExecutionState.FAILED, "no space left")
    cluster.tick(60)


def test_task_executor_with_many_failures_is_quarantined_for_a_time() -> None:
    cluster = start_cluster("te-1", "te-2", slots=1, configuration=RULE)
    run(cluster, "j1")
    (failing,) = places(cluster, "j1")
    fail(cluster, failing)
    assert cluster.events_of("QuarantineChanged") == []
    fail(cluster, failing)
    (other,) = {"te-1", "te-2"} - {failing}
    assert places(cluster, "j1") == [other]
    (changed,) = changes(cluster)
    assert changed.reason == "2 failures of tasks within 600 s, the last one: no space left"
    # Half of the cluster is quarantined: the rest stays, however often it fails.
    for _ in range(4):
        fail(cluster, other)
    assert places(cluster, "j1") == [other]
    cluster.tick(3_600)
    assert changes(cluster)[1].mode is RELEASED


def test_old_failures_do_not_count() -> None:
    cluster = start_cluster("te-1", "te-2", slots=1, configuration=RULE)
    run(cluster, "j1")
    (failing,) = places(cluster, "j1")
    for _ in range(3):
        fail(cluster, failing)
        cluster.tick(601)
    assert cluster.events_of("TaskFailuresExceeded") == []


def test_host_with_two_failing_task_executors_is_quarantined() -> None:
    cluster = start_cluster(configuration={**RULE, "taskmanager.quarantine.max-percent": "60"})
    for number, host in enumerate(("a:1", "a:2", "a:3", "b:4", "b:5"), start=1):
        cluster.start_task_executor(f"te-{number}", 1, host)
    cluster.settle()
    run(cluster, "j1", parallelism=2)
    for resource_id in ("te-1", "te-2"):
        for _ in range(2):
            fail(cluster, resource_id)
    assert [change.host for change in changes(cluster)] == [None, "a"]
    assert set(manager(cluster).slot_manager.slots.excluded) == {"te-1", "te-2", "te-3"}
    assert places(cluster, "j1") == ["te-4", "te-5"]
