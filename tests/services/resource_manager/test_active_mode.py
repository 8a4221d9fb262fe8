"""Active mode: workers are started for requests that wait, and stopped when nobody needs them."""

from __future__ import annotations

from msgspec.structs import replace

from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.services.resource_manager.instructions import StartWorkerProcess, StopWorkerProcess
from tailrace.services.resource_manager.worker_pool import WorkerState

from ..simulated_cluster.cluster import HARDWARE, PROFILE
from .manager import ACTIVE, MANAGER, Manager, asked, of


def started(said: list[Body]) -> list[str]:
    return [each.resource_id for each in of(resource_manager.StartWorker, said)]


def wanting(count: int, **more: str) -> tuple[Manager, list[Body]]:
    """A job asks for slots in an empty cluster."""
    manager = Manager({**ACTIVE, **more})
    manager.job()
    for number in range(count):
        manager.request(f"a{number}")
    return manager, manager.settle()


def working() -> Manager:
    """worker-1 runs, with one of its two slots in use."""
    manager, _ = wanting(1)
    manager.hear(MANAGER, resource_manager.WorkerStarted(resource_id="worker-1", address="host:1"))
    manager.register("worker-1", 2)
    manager.settle()
    manager.accept("a0")
    return manager


def released() -> Manager:
    """worker-1 has been idle for long, and is told to leave."""
    manager = working()
    manager.free("a0")
    manager.wait(30)
    return manager


def gone(manager: Manager, resource_id: str = "worker-1") -> None:
    manager.lost(resource_id, None, exited=True)


def test_as_many_workers_are_started_as_waiting_requests_need() -> None:
    manager, said = wanting(5)
    assert started(said) == ["worker-1", "worker-2", "worker-3"]
    assert of(resource_manager.StartWorker, said)[0].reason == (
        "5 slot requests wait, workers on their way bring 0 slots: 3 more with 2 each"
    )
    manager.request("a5")
    assert started(manager.settle()) == []
    manager.request("a6")
    assert started(manager.settle()) == ["worker-4"]


def test_free_slots_come_first() -> None:
    manager = Manager(ACTIVE)
    manager.register("te-1", 1)
    manager.job()
    manager.request("a")
    manager.request("b")
    said = manager.settle()
    assert (asked(said), started(said)) == ([("a", "te-1")], ["worker-1"])


def test_no_worker_is_started_in_standalone_mode() -> None:
    manager = Manager()
    manager.job()
    manager.request("a")
    assert started(manager.wait(60)) == []


def test_the_driver_is_to_start_a_worker_until_it_has_said_what_came_of_it() -> None:
    manager, _ = wanting(3)
    first, second = manager.instructions()
    assert isinstance(first, StartWorkerProcess)
    assert (first.resource_id, first.number_of_slots, first.key) == ("worker-1", 2, "start/worker-1")
    manager.hear(MANAGER, resource_manager.WorkerStarted(resource_id="worker-1", address="host:1"))
    assert manager.instructions() == [second]
    gone(manager, "worker-2")
    assert manager.instructions() == []


def test_a_worker_may_register_before_the_driver_has_said_that_it_started_it() -> None:
    manager, _ = wanting(1)
    manager.register("worker-1", 2)
    manager.hear(MANAGER, resource_manager.WorkerStarted(resource_id="worker-1", address="host:1"))
    assert manager.instructions() == []
    assert manager.state.pool.state_of("worker-1") is WorkerState.REGISTERED
    assert asked(manager.settle()) == [("a0", "worker-1")]


def test_slots_are_on_their_way_until_they_are_reported() -> None:
    manager, _ = wanting(1)
    manager.register("worker-1", 2, report=False)
    assert started(manager.settle()) == []
    assert manager.state.pool.expected == 2


def test_there_are_never_more_slots_than_may_be() -> None:
    manager, said = wanting(9, **{"slotmanager.number-of-slots.max": "5"})
    assert started(said) == ["worker-1", "worker-2"]
    assert started(manager.wait(5)) == []


def test_a_failed_start_is_tried_again_after_a_while_under_another_name() -> None:
    manager, _ = wanting(1)
    gone(manager)
    assert started(manager.wait(2.9)) == []
    assert started(manager.wait(0.1)) == ["worker-2"]
    gone(manager, "worker-2")
    manager.hear(
        "dispatcher",
        everyone.ConfigurationChanged(configuration={**ACTIVE, "slot.request.timeout": "1 s"}),
        "*",
    )
    (failed,) = of(job_master.SlotAllocationFailed, manager.settle())
    assert failed.reason.endswith("no worker could be started: it is silent")


def test_a_name_is_never_given_twice_nor_one_that_somebody_has_taken() -> None:
    manager, _ = wanting(1)
    manager.register("worker-2", 1)
    gone(manager)
    manager.settle()
    for allocation_id in ("b", "c"):
        manager.request(allocation_id)
    said = manager.wait(10)
    assert started(said) == ["worker-2", "worker-3"]
    assert {each.resource_id for each in manager.instructions()} == {"worker-3"}  # type: ignore[attr-defined]


def test_requests_that_no_worker_could_serve_start_none_once_one_is_known() -> None:
    manager = working()
    manager.request("large", profile=replace(PROFILE, cpu_cores=64.0))
    said = manager.wait(10)
    assert started(said) == []
    (failed,) = of(job_master.SlotAllocationFailed, said)
    assert "the job wants a slot with 64 CPU" in failed.reason


def test_a_worker_that_does_not_register_in_time_is_lost_and_ended() -> None:
    manager, _ = wanting(1)
    manager.hear(MANAGER, resource_manager.WorkerStarted(resource_id="worker-1", address="host:1"))
    assert of(everyone.TaskExecutorLost, manager.wait(299)) == []
    said = manager.wait(1)
    assert [each.reason for each in of(everyone.TaskExecutorLost, said)] == [
        "TaskExecutor worker-1 is lost: it did not register within 300 s; see its log"
    ]
    assert [each.key for each in manager.instructions()] == ["stop/worker-1"]
    # It registers after all: it is turned away.
    manager.hear(
        "task_executor/worker-1",
        resource_manager.RegisterTaskExecutor(
            address="host:1",
            resource_id="worker-1",
            data_port=0,
            hardware=HARDWARE,
            number_of_slots=2,
            default_slot_profile=PROFILE,
        ),
    )
    (rejection,) = of(task_executor.TaskExecutorRegistrationRejection, manager.settle())
    assert rejection.reason.startswith("worker worker-1 is being stopped: TaskExecutor worker-1 is lost")
    gone(manager)
    assert not manager.state.pool.workers.get("worker-1")


def test_an_idle_worker_is_told_to_leave_then_its_process_is_ended() -> None:
    manager = working()
    assert of(resource_manager.StopWorker, manager.wait(3600)) == []
    manager.free("a0")
    assert manager.wait(29) == []
    said = manager.wait(1)
    assert [type(each).__name__ for each in said] == ["StopWorker", "DisconnectResourceManager"]
    assert of(resource_manager.StopWorker, said)[0].reason == "none of its slots was used for 30 s"
    assert manager.slots() == {}
    assert manager.instructions() == []
    manager.leave("worker-1", "it was told to")
    (stop,) = manager.instructions()
    assert isinstance(stop, StopWorkerProcess)
    gone(manager)
    assert manager.instructions() == []
    assert manager.state.pool.workers.get("worker-1") is None


def test_an_idle_worker_that_does_not_leave_is_ended_all_the_same() -> None:
    manager = released()
    assert of(everyone.TaskExecutorLost, manager.wait(14)) == []
    (lost,) = of(everyone.TaskExecutorLost, manager.wait(1))
    assert lost.reason.endswith("it did not leave within 15 s though nothing runs there")
    assert [each.key for each in manager.instructions()] == ["stop/worker-1"]


def test_a_worker_is_idle_from_its_last_used_slot_on() -> None:
    manager = working()
    manager.request("b")
    manager.settle()
    manager.accept("b")
    manager.free("a0")
    manager.wait(20)
    manager.free("b")
    assert of(resource_manager.StopWorker, manager.wait(29)) == []
    assert len(of(resource_manager.StopWorker, manager.wait(1))) == 1


def test_a_worker_that_gets_something_to_do_at_the_last_moment_stays() -> None:
    manager = working()
    manager.free("a0")
    manager.wait(29)
    manager.now += 1_000_000
    manager.request("b")
    said = manager.settle()
    assert asked(said) == [("b", "worker-1")]
    assert of(resource_manager.StopWorker, said) == []


def test_a_decision_to_stop_a_worker_that_was_found_in_use_meanwhile_is_void() -> None:
    manager = working()
    manager.hear(MANAGER, resource_manager.StopWorker(resource_id="worker-1", reason="idle"))
    assert manager.state.pool.state_of("worker-1") is WorkerState.REGISTERED
    assert len(manager.slots()) == 2


def test_workers_that_somebody_else_started_stay() -> None:
    manager = Manager(ACTIVE)
    manager.register("te-1", 2)
    assert manager.wait(3600) == [*of(task_executor.TaskExecutorRegistrationSuccess, manager_said(manager))]


def manager_said(manager: Manager) -> list[Body]:
    return [each.body for each in manager.log if each.header.sender == MANAGER]


def test_a_worker_whose_process_has_ended_is_lost_at_once_and_needs_no_end() -> None:
    manager = working()
    gone(manager)
    assert len(of(everyone.TaskExecutorLost, manager.settle())) == 1
    assert manager.instructions() == []
    assert started(manager.settle()) == []


def test_a_worker_that_is_only_silent_is_lost_and_its_process_is_ended() -> None:
    manager = working()
    manager.lost("worker-1", manager.state.workers["worker-1"].instance_id)
    assert len(of(everyone.TaskExecutorLost, manager.settle())) == 1
    assert [each.key for each in manager.instructions()] == ["stop/worker-1"]
