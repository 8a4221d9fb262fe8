"""The end of a cluster: everybody leaves, in order, and what remains is said."""

from __future__ import annotations

from tailrace.schemas import everyone, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.types import JobStatus

from .manager import ACTIVE, MANAGER, Manager, of


def ended(said: list[Body]) -> list[tuple[str, ...]]:
    return [each.remains for each in of(everyone.ClusterTerminated, said)]


def end(manager: Manager) -> list[Body]:
    manager.settle()
    manager.hear("dispatcher", resource_manager.ShutDownCluster(reason="asked to"))
    return manager.settle()


def test_the_cluster_has_ended_when_all_have_left() -> None:
    manager = Manager()
    manager.register("te-1")
    manager.register("te-2")
    said = end(manager)
    assert len(of(task_executor.DisconnectResourceManager, said)) == 2
    manager.leave("te-1")
    assert ended(manager.settle()) == []
    manager.leave("te-2")
    assert ended(manager.settle()) == [()]
    assert manager.state.ending is not None
    assert manager.state.ending.over
    assert manager.wait(3600) == []


def test_an_empty_cluster_ends_at_once() -> None:
    assert ended(end(Manager())) == [()]


def test_what_does_not_leave_is_named_with_where_it_is() -> None:
    manager = Manager()
    manager.register("te-1")
    manager.register("te-2")
    manager.job("i")
    manager.job("j")
    end(manager)
    manager.leave("te-2")
    manager.hear("job_master/i", resource_manager.DisconnectJobManager(job_id="i", status=JobStatus.FINISHED))
    assert ended(manager.wait(14)) == []
    assert ended(manager.wait(1)) == [
        (
            "TaskExecutor te-1 at host:te-1 did not answer: end its process if it runs",
            "the JobMaster of job j has not left: its job goes on with the cluster's next start",
        )
    ]


def test_one_that_is_lost_is_not_waited_for() -> None:
    manager = Manager({"taskmanager.restart-grace": "60 s"})
    instance_id = manager.register("te-1")
    end(manager)
    manager.lost("te-1", instance_id, exited=True)
    assert ended(manager.settle()) == [()]


def test_one_that_registers_while_the_cluster_ends_is_told_to_leave() -> None:
    manager = Manager()
    manager.register("te-1")
    end(manager)
    manager.register("te-2")
    assert len(of(task_executor.DisconnectResourceManager, manager.settle())) == 1
    manager.leave("te-1")
    assert ended(manager.settle()) == []
    manager.leave("te-2")
    assert ended(manager.settle()) == [()]


def test_workers_of_the_driver_are_ended_whether_they_have_left_or_not() -> None:
    manager = Manager(ACTIVE)
    manager.job()
    for allocation_id in "abcdef":
        manager.request(allocation_id)
    manager.settle()
    manager.register("worker-1", 2)
    manager.register("worker-2", 2)
    manager.settle()
    said = end(manager)
    assert len(of(task_executor.DisconnectResourceManager, said)) == 2
    # worker-3 has not registered: there is nobody to talk to.
    assert [each.key for each in manager.instructions()] == ["stop/worker-3"]
    manager.leave("worker-1")
    said = manager.wait(15)
    assert [each.resource_id for each in of(everyone.TaskExecutorLost, said)] == ["worker-1", "worker-2"]
    assert sorted(each.key for each in manager.instructions()) == [
        "stop/worker-1",
        "stop/worker-2",
        "stop/worker-3",
    ]
    assert ended(said) == []
    for resource_id in ("worker-1", "worker-2"):
        manager.lost(resource_id, None, exited=True)
    (remains,) = ended(manager.wait(15))
    assert remains[0].startswith("worker worker-3 at ? is not known to have ended")


def test_no_worker_is_started_or_released_while_the_cluster_ends() -> None:
    manager = Manager(ACTIVE)
    manager.job()
    manager.register("te-1")
    end(manager)
    manager.request("a")
    manager.request("b")
    assert of(resource_manager.StartWorker, manager.wait(10)) == []
    manager.hear(
        MANAGER,
        resource_manager.StartWorker(resource_id="worker-1", number_of_slots=2, reason="decided before"),
    )
    assert manager.instructions() == []


def test_an_end_goes_on_under_the_next_leader_and_a_cluster_that_has_ended_starts_again() -> None:
    manager = Manager()
    manager.register("te-1")
    end(manager)
    manager.hear(MANAGER, everyone.LeaderElected(role=MANAGER, epoch=2, address="sim", session="2"), "*")
    assert len(ended(manager.wait(15))) == 1
    manager.hear(MANAGER, everyone.LeaderElected(role=MANAGER, epoch=3, address="sim", session="3"), "*")
    assert manager.state.ending is None
    assert manager.wait(3600) == []
    manager.register("te-2")
    assert of(task_executor.DisconnectResourceManager, manager.settle()) == []
