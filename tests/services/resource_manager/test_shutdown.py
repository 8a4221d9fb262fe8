"""The shutdown of a cluster: all TaskExecutors leave in order, and those that remain are named."""

from __future__ import annotations

from tailrace.schemas import everyone, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.types import JobStatus

from .manager import ACTIVE, MANAGER, Manager, events_of


def ended(bodies: list[Body]) -> list[tuple[str, ...]]:
    return [event.remains for event in events_of(everyone.ClusterTerminated, bodies)]


def end(manager: Manager) -> list[Body]:
    manager.settle()
    manager.receive("dispatcher", resource_manager.ShutDownCluster(reason="asked to"))
    return manager.settle()


def test_cluster_has_ended_when_all_task_executors_have_left() -> None:
    manager = Manager()
    manager.register("te-1")
    manager.register("te-2")
    events = end(manager)
    assert len(events_of(task_executor.DisconnectResourceManager, events)) == 2
    manager.leave("te-1")
    assert ended(manager.settle()) == []
    manager.leave("te-2")
    assert ended(manager.settle()) == [()]
    assert manager.state.ending is not None
    assert manager.state.ending.is_over
    assert manager.wait(3600) == []


def test_empty_cluster_ends_at_once() -> None:
    assert ended(end(Manager())) == [()]


def test_remaining_task_executor_is_named_with_its_address() -> None:
    manager = Manager()
    manager.register("te-1")
    manager.register("te-2")
    manager.job("i")
    manager.job("j")
    end(manager)
    manager.leave("te-2")
    manager.receive(
        "job_master/i", resource_manager.DisconnectJobManager(job_id="i", status=JobStatus.FINISHED)
    )
    assert ended(manager.wait(14)) == []
    assert ended(manager.wait(1)) == [
        (
            "TaskExecutor te-1 at host:te-1 did not answer: end its process if it runs",
            "the JobMaster of job j has not left: its job goes on with the cluster's next start",
        )
    ]


def test_lost_task_executor_is_not_waited_for() -> None:
    manager = Manager({"taskmanager.restart-grace": "60 s"})
    instance_id = manager.register("te-1")
    end(manager)
    manager.lost("te-1", instance_id, exited=True)
    assert ended(manager.settle()) == [()]


def test_task_executor_that_registers_during_shutdown_is_disconnected() -> None:
    manager = Manager()
    manager.register("te-1")
    end(manager)
    manager.register("te-2")
    assert len(events_of(task_executor.DisconnectResourceManager, manager.settle())) == 1
    manager.leave("te-1")
    assert ended(manager.settle()) == []
    manager.leave("te-2")
    assert ended(manager.settle()) == [()]


def test_workers_of_driver_are_stopped_whether_they_have_left_or_not() -> None:
    manager = Manager(ACTIVE)
    manager.job()
    for allocation_id in "abcdef":
        manager.request(allocation_id)
    manager.settle()
    manager.register("worker-1", 2)
    manager.register("worker-2", 2)
    manager.settle()
    events = end(manager)
    assert len(events_of(task_executor.DisconnectResourceManager, events)) == 2
    # worker-3 has not registered: there is nobody to talk to.
    assert [instruction.key for instruction in manager.instructions()] == ["stop/worker-3"]
    manager.leave("worker-1")
    events = manager.wait(15)
    assert [event.resource_id for event in events_of(everyone.TaskExecutorLost, events)] == [
        "worker-1",
        "worker-2",
    ]
    assert sorted(instruction.key for instruction in manager.instructions()) == [
        "stop/worker-1",
        "stop/worker-2",
        "stop/worker-3",
    ]
    assert ended(events) == []
    for resource_id in ("worker-1", "worker-2"):
        manager.lost(resource_id, None, exited=True)
    (remains,) = ended(manager.wait(15))
    assert remains[0].startswith("worker worker-3 at ? is not known to have ended")


def test_no_worker_is_started_or_released_during_shutdown() -> None:
    manager = Manager(ACTIVE)
    manager.job()
    manager.register("te-1")
    end(manager)
    manager.request("a")
    manager.request("b")
    assert events_of(resource_manager.StartWorker, manager.wait(10)) == []
    manager.receive(
        MANAGER,
        resource_manager.StartWorker(resource_id="worker-1", number_of_slots=2, reason="decided before"),
    )
    assert manager.instructions() == []


def test_shutdown_continues_with_next_leader_and_ended_cluster_restarts() -> None:
    manager = Manager()
    manager.register("te-1")
    end(manager)
    manager.receive(MANAGER, everyone.LeaderElected(role=MANAGER, epoch=2, address="sim", session="2"), "*")
    assert len(ended(manager.wait(15))) == 1
    manager.receive(MANAGER, everyone.LeaderElected(role=MANAGER, epoch=3, address="sim", session="3"), "*")
    assert manager.state.ending is None
    assert manager.wait(3600) == []
    manager.register("te-2")
    assert events_of(task_executor.DisconnectResourceManager, manager.settle()) == []
