"""Active mode: workers are started for pending requests, and stopped when they are idle."""

from __future__ import annotations

from msgspec.structs import replace

from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.services.resource_manager.instructions import StartWorkerProcess, StopWorkerProcess
from tailrace.services.resource_manager.worker_pool import WorkerState

from ..simulated_cluster.cluster import HARDWARE, PROFILE
from .manager import ACTIVE, MANAGER, Manager, events_of, requested_slots


def started(bodies: list[Body]) -> list[str]:
    return [event.resource_id for event in events_of(resource_manager.StartWorker, bodies)]


def wanting(count: int, **more: str) -> tuple[Manager, list[Body]]:
    """Returns a manager where a job requests slots in an empty cluster."""
    manager = Manager({**ACTIVE, **more})
    manager.job()
    for number in range(count):
        manager.request(f"a{number}")
    return manager, manager.settle()


def working() -> Manager:
    """Returns a manager where worker-1 runs, with one of its two slots in use."""
    manager, _ = wanting(1)
    manager.receive(MANAGER, resource_manager.WorkerStarted(resource_id="worker-1", address="host:1"))
    manager.register("worker-1", 2)
    manager.settle()
    manager.accept("a0")
    return manager


def released() -> Manager:
    """Returns a manager where worker-1 has been idle for long, and is disconnected."""
    manager = working()
    manager.free("a0")
    manager.wait(30)
    return manager


def gone(manager: Manager, resource_id: str = "worker-1") -> None:
    manager.lost(resource_id, None, exited=True)


def test_as_many_workers_are_started_as_pending_requests_need() -> None:
    manager, events = wanting(5)
    assert started(events) == ["worker-1", "worker-2", "worker-3"]
    assert events_of(resource_manager.StartWorker, events)[0].reason == (
        "5 slot requests wait, workers on their way bring 0 slots: 3 more with 2 each"
    )
    manager.request("a5")
    assert started(manager.settle()) == []
    manager.request("a6")
    assert started(manager.settle()) == ["worker-4"]


def test_free_slots_are_used_before_new_workers() -> None:
    manager = Manager(ACTIVE)
    manager.register("te-1", 1)
    manager.job()
    manager.request("a")
    manager.request("b")
    events = manager.settle()
    assert (requested_slots(events), started(events)) == ([("a", "te-1")], ["worker-1"])


def test_standalone_mode_starts_no_worker() -> None:
    manager = Manager()
    manager.job()
    manager.request("a")
    assert started(manager.wait(60)) == []


def test_start_of_worker_is_demanded_until_driver_reports_result() -> None:
    manager, _ = wanting(3)
    first, second = manager.instructions()
    assert isinstance(first, StartWorkerProcess)
    assert (first.resource_id, first.number_of_slots, first.key) == ("worker-1", 2, "start/worker-1")
    manager.receive(MANAGER, resource_manager.WorkerStarted(resource_id="worker-1", address="host:1"))
    assert manager.instructions() == [second]
    gone(manager, "worker-2")
    assert manager.instructions() == []


def test_worker_may_register_before_driver_reports_its_start() -> None:
    manager, _ = wanting(1)
    manager.register("worker-1", 2)
    manager.receive(MANAGER, resource_manager.WorkerStarted(resource_id="worker-1", address="host:1"))
    assert manager.instructions() == []
    assert manager.state.pool.state_of("worker-1") is WorkerState.REGISTERED
    assert requested_slots(manager.settle()) == [("a0", "worker-1")]


def test_slots_of_started_worker_are_expected_until_reported() -> None:
    manager, _ = wanting(1)
    manager.register("worker-1", 2, report=False)
    assert started(manager.settle()) == []
    assert manager.state.pool.expected == 2


def test_number_of_slots_never_exceeds_maximum() -> None:
    manager, events = wanting(9, **{"slotmanager.number-of-slots.max": "5"})
    assert started(events) == ["worker-1", "worker-2"]
    assert started(manager.wait(5)) == []


def test_failed_start_is_retried_after_delay_with_new_name() -> None:
    manager, _ = wanting(1)
    gone(manager)
    assert started(manager.wait(2.9)) == []
    assert started(manager.wait(0.1)) == ["worker-2"]
    gone(manager, "worker-2")
    manager.receive(
        "dispatcher",
        everyone.ConfigurationChanged(configuration={**ACTIVE, "slot.request.timeout": "1 s"}),
        "*",
    )
    (failed,) = events_of(job_master.SlotAllocationFailed, manager.settle())
    assert failed.reason.endswith("no worker could be started: it is silent")


def test_worker_name_is_unique_and_not_in_use() -> None:
    manager, _ = wanting(1)
    manager.register("worker-2", 1)
    gone(manager)
    manager.settle()
    for allocation_id in ("b", "c"):
        manager.request(allocation_id)
    events = manager.wait(10)
    assert started(events) == ["worker-2", "worker-3"]
    assert {instruction.resource_id for instruction in manager.instructions()} == {"worker-3"}  # type: ignore[attr-defined]


def test_requests_larger_than_worker_start_none_once_its_size_is_known() -> None:
    manager = working()
    manager.request("large", profile=replace(PROFILE, cpu_cores=64.0))
    events = manager.wait(10)
    assert started(events) == []
    (failed,) = events_of(job_master.SlotAllocationFailed, events)
    assert "the job wants a slot with 64 CPU" in failed.reason


def test_worker_that_does_not_register_in_time_is_lost_and_stopped() -> None:
    manager, _ = wanting(1)
    manager.receive(MANAGER, resource_manager.WorkerStarted(resource_id="worker-1", address="host:1"))
    assert events_of(everyone.TaskExecutorLost, manager.wait(299)) == []
    events = manager.wait(1)
    assert [event.reason for event in events_of(everyone.TaskExecutorLost, events)] == [
        "TaskExecutor worker-1 is lost: it did not register within 300 s; see its log"
    ]
    assert [instruction.key for instruction in manager.instructions()] == ["stop/worker-1"]
    # It registers after all: it is turned away.
    manager.receive(
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
    (rejection,) = events_of(task_executor.TaskExecutorRegistrationRejection, manager.settle())
    assert rejection.reason.startswith("worker worker-1 is being stopped: TaskExecutor worker-1 is lost")
    gone(manager)
    assert not manager.state.pool.workers.get("worker-1")


def test_idle_worker_is_disconnected_then_its_process_is_stopped() -> None:
    manager = working()
    assert events_of(resource_manager.StopWorker, manager.wait(3600)) == []
    manager.free("a0")
    assert manager.wait(29) == []
    events = manager.wait(1)
    assert [type(event).__name__ for event in events] == ["StopWorker", "DisconnectResourceManager"]
    assert events_of(resource_manager.StopWorker, events)[0].reason == "none of its slots was used for 30 s"
    assert manager.slots() == {}
    assert manager.instructions() == []
    manager.leave("worker-1", "it was told to")
    (stop,) = manager.instructions()
    assert isinstance(stop, StopWorkerProcess)
    gone(manager)
    assert manager.instructions() == []
    assert manager.state.pool.workers.get("worker-1") is None


def test_idle_worker_that_does_not_leave_is_stopped() -> None:
    manager = released()
    assert events_of(everyone.TaskExecutorLost, manager.wait(14)) == []
    (lost,) = events_of(everyone.TaskExecutorLost, manager.wait(1))
    assert lost.reason.endswith("it did not leave within 15 s though nothing runs there")
    assert [instruction.key for instruction in manager.instructions()] == ["stop/worker-1"]


def test_idle_time_of_worker_starts_with_its_last_used_slot() -> None:
    manager = working()
    manager.request("b")
    manager.settle()
    manager.accept("b")
    manager.free("a0")
    manager.wait(20)
    manager.free("b")
    assert events_of(resource_manager.StopWorker, manager.wait(29)) == []
    assert len(events_of(resource_manager.StopWorker, manager.wait(1))) == 1


def test_worker_that_gets_task_at_last_moment_is_kept() -> None:
    manager = working()
    manager.free("a0")
    manager.wait(29)
    manager.now += 1_000_000
    manager.request("b")
    events = manager.settle()
    assert requested_slots(events) == [("b", "worker-1")]
    assert events_of(resource_manager.StopWorker, events) == []


def test_decision_to_stop_worker_in_use_is_void() -> None:
    manager = working()
    manager.receive(MANAGER, resource_manager.StopWorker(resource_id="worker-1", reason="idle"))
    assert manager.state.pool.state_of("worker-1") is WorkerState.REGISTERED
    assert len(manager.slots()) == 2


def test_workers_started_by_others_are_kept() -> None:
    manager = Manager(ACTIVE)
    manager.register("te-1", 2)
    assert manager.wait(3600) == [
        *events_of(task_executor.TaskExecutorRegistrationSuccess, manager_events(manager))
    ]


def manager_events(manager: Manager) -> list[Body]:
    return [record.body for record in manager.log if record.header.sender == MANAGER]


def test_worker_whose_process_has_ended_is_lost_at_once_and_not_stopped() -> None:
    manager = working()
    gone(manager)
    assert len(events_of(everyone.TaskExecutorLost, manager.settle())) == 1
    assert manager.instructions() == []
    assert started(manager.settle()) == []


def test_silent_worker_is_lost_and_its_process_stopped() -> None:
    manager = working()
    manager.lost("worker-1", manager.state.workers["worker-1"].instance_id)
    assert len(events_of(everyone.TaskExecutorLost, manager.settle())) == 1
    assert [instruction.key for instruction in manager.instructions()] == ["stop/worker-1"]


LARGE = replace(PROFILE, heap_memory_mb=PROFILE.heap_memory_mb * 4)
SIZING = {"resourcemanager.worker-driver": "yarn"}


def wanting_large(**more: str) -> Manager:
    """Returns a manager where a worker of the configured size runs, and the job requests two larger slots."""
    manager = Manager({**ACTIVE, **more})
    manager.job()
    manager.request("a")
    manager.settle()
    manager.register("worker-1", 2)
    manager.settle()
    manager.accept("a")
    manager.request("b", profile=LARGE)
    manager.request("c", profile=LARGE)
    return manager


def test_larger_slots_get_workers_of_one_slot_of_their_size() -> None:
    manager = wanting_large(**SIZING)
    first, second = events_of(resource_manager.StartWorker, manager.settle())
    assert (first.number_of_slots, first.slot_profile, second.slot_profile) == (1, LARGE, LARGE)
    assert first.reason.endswith("workers on their way bring 0 slots: 2 more with 1 each")
    assert [each.slot_profile for each in manager.instructions() if isinstance(each, StartWorkerProcess)] == [
        LARGE,
        LARGE,
    ]
    manager.request("d")
    manager.request("e")
    (default,) = events_of(resource_manager.StartWorker, manager.settle())
    assert (default.number_of_slots, default.slot_profile) == (2, None)
    manager.register("worker-2", 1, LARGE)
    assert requested_slots(manager.settle()) == [("b", "worker-2")]


def test_driver_that_cannot_size_workers_starts_none_for_larger_slots() -> None:
    manager = wanting_large()
    events = manager.wait(60)
    assert started(events) == []
    assert len(events_of(job_master.SlotAllocationFailed, events)) == 2


def test_request_for_larger_slot_fails_in_time_if_its_worker_cannot_be_started() -> None:
    manager = wanting_large(**SIZING)
    events, failed = manager.settle(), list[job_master.SlotAllocationFailed]()
    for _ in range(10):
        for resource_id in started(events):
            manager.lost(resource_id, None, exited=True)
        events = manager.wait(3)
        failed += events_of(job_master.SlotAllocationFailed, events)
    assert len(failed) == 2
    assert "for a slot could be started: it is silent" in failed[0].reason
    assert manager.owed() == []


def test_worker_that_has_ended_for_its_driver_is_sent_away_if_it_registers_again() -> None:
    manager = working()
    manager.lost("worker-1", None, exited=True)
    manager.settle()
    assert manager.state.pool.state_of("worker-1") is WorkerState.ABSENT
    for resource_id in ("worker-1", "worker-01", "worker-99", "worker-x", "te-1"):
        body = resource_manager.RegisterTaskExecutor(
            address="host:1",
            resource_id=resource_id,
            data_port=0,
            hardware=HARDWARE,
            number_of_slots=1,
            default_slot_profile=PROFILE,
        )
        manager.receive(f"task_executor/{resource_id}", body)
    (rejection,) = events_of(task_executor.TaskExecutorRegistrationRejection, manager.settle())
    assert rejection.reason == "worker worker-1 has ended, and its name is not used again"
    assert set(manager.state.workers) == {"worker-01", "worker-99", "worker-x", "te-1"}
