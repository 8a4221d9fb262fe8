"""Slot requests: sent, fulfilled, rejected, cancelled; crossing messages; and when and why they fail."""

from __future__ import annotations

from msgspec.structs import replace

from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.types import JobStatus, SlotID
from tailrace.services.resource_manager.task_manager_slot import SlotState

from ..simulated_cluster.cluster import PROFILE, SECOND
from .manager import ACTIVE, MANAGER, Manager, events_of, requested_slots, status

FREE, PENDING, ALLOCATED = SlotState.FREE, SlotState.PENDING, SlotState.ALLOCATED
KEY = ("te-1", 0)


def reasons(bodies: list[Body]) -> list[str]:
    return [event.reason for event in events_of(job_master.SlotAllocationFailed, bodies)]


def reject(manager: Manager, allocation_id: str, resource_id: str = "te-1") -> None:
    body = resource_manager.SlotRequestRejected(
        allocation_id=allocation_id,
        slot_id=SlotID(resource_id=resource_id, slot_number=0),
        reason="it is taken",
    )
    manager.receive(f"task_executor/{resource_id}", body)


def ask(manager: Manager, allocation_id: str, resource_id: str = "te-1") -> None:
    """Appends RequestSlot now, whenever it was decided."""
    body = task_executor.RequestSlot(
        slot_id=SlotID(resource_id=resource_id, slot_number=0),
        job_id="j",
        allocation_id=allocation_id,
        reason="",
    )
    manager.receive(MANAGER, body, f"task_executor/{resource_id}")


def one() -> Manager:
    """Returns a manager with a job, and a TaskExecutor with one slot."""
    manager = Manager()
    manager.register("te-1")
    manager.job()
    return manager


def test_request_waits_is_sent_and_fulfilled() -> None:
    manager = one()
    manager.request("a")
    assert manager.slots() == {KEY: (FREE, None)}
    assert requested_slots(manager.settle()) == [("a", "te-1")]
    assert manager.slots() == {KEY: (PENDING, "a")}
    manager.accept("a")
    assert manager.slots() == {KEY: (ALLOCATED, "a")}
    assert manager.wait(3600) == []


def test_repeated_request_is_not_fulfilled_twice() -> None:
    manager = one()
    manager.register("te-2")
    manager.request("a")
    manager.request("a")
    assert len(requested_slots(manager.settle())) == 1
    manager.request("a")
    manager.accept("a")
    manager.request("a")
    assert requested_slots(manager.settle()) == []


def test_rejected_slot_counts_as_held_and_request_gets_another() -> None:
    manager = one()
    manager.request("a")
    manager.settle()
    reject(manager, "a")
    assert manager.slots() == {KEY: (ALLOCATED, None)}
    assert manager.settle() == []
    manager.register("te-2")
    assert requested_slots(manager.settle()) == [("a", "te-2")]


def test_holder_of_rejected_slot_frees_it() -> None:
    manager = one()
    manager.request("a")
    manager.settle()
    reject(manager, "a")
    body = resource_manager.NotifySlotAvailable(
        instance_id="",
        slot_id=SlotID(resource_id="te-1", slot_number=0),
        old_allocation_id="whatever held it",
    )
    manager.receive("task_executor/te-1", body)
    assert requested_slots(manager.settle()) == [("a", "te-1")]


def test_late_rejection_does_not_affect_request() -> None:
    manager = one()
    manager.request("a")
    manager.settle()
    reject(manager, "a")
    manager.register("te-2")
    manager.settle()
    reject(manager, "a")
    assert manager.slot_of("a") == ("te-2", 0)


def test_oldest_request_is_served_first_also_after_waiting_again() -> None:
    manager = one()
    for allocation_id in "abc":
        manager.request(allocation_id)
    assert requested_slots(manager.settle()) == [("a", "te-1")]
    manager.accept("a")
    manager.free("a")
    assert requested_slots(manager.settle()) == [("b", "te-1")]


def ask_for_more(manager: Manager, allocation_id: str) -> None:
    """The job asks for a slot for a higher parallelism."""
    body = resource_manager.RequestSlot(job_id="j", allocation_id=allocation_id, is_optional=True)
    manager.receive("job_master/j", body)


def test_optional_request_is_served_after_all_others() -> None:
    manager = one()
    for allocation_id in "ab":
        ask_for_more(manager, allocation_id)
    manager.request("c")
    assert requested_slots(manager.settle()) == [("c", "te-1")]
    manager.accept("c")
    manager.free("c")
    assert requested_slots(manager.settle()) == [("a", "te-1")]


def test_optional_request_waits_without_timeout_and_is_not_counted() -> None:
    manager = one()
    manager.request("a")
    manager.settle()
    manager.accept("a")
    for allocation_id in "bc":
        ask_for_more(manager, allocation_id)
    assert manager.wait(100_000) == []
    assert manager.state.slot_manager.requests.jobs["j"].wanted == 1
    manager.register("te-2")
    assert requested_slots(manager.settle()) == [("b", "te-2")]
    assert manager.state.slot_manager.requests.jobs["j"].wanted == 2


def test_optional_request_that_loses_its_slot_is_as_any_other() -> None:
    manager = one()
    ask_for_more(manager, "a")
    manager.settle()
    reject(manager, "a")
    assert reasons(manager.wait(100_000))


def test_cancelled_optional_request_is_removed() -> None:
    manager = Manager()
    manager.job()
    ask_for_more(manager, "a")
    manager.receive("job_master/j", resource_manager.CancelSlotRequest(allocation_id="a", reason=""))
    assert not manager.state.slot_manager.requests.jobs
    assert manager.wait(3600) == []


def test_cancelled_request_is_removed_and_its_slot_stays_pending_until_answer() -> None:
    manager = one()
    manager.request("a")
    manager.settle()
    manager.receive("job_master/j", resource_manager.CancelSlotRequest(allocation_id="a", reason=""))
    assert manager.slots() == {KEY: (PENDING, "a")}
    assert manager.wait(3600) == []
    body = resource_manager.SlotRequestAccepted(
        allocation_id="a", slot_id=SlotID(resource_id="te-1", slot_number=0)
    )
    manager.receive("task_executor/te-1", body)
    assert manager.slots() == {KEY: (ALLOCATED, "a")}
    assert not manager.state.slot_manager.requests.known


def test_departed_job_is_removed_except_slots_it_has_not_freed() -> None:
    manager = one()
    manager.hold("a")
    manager.request("b")
    manager.receive(
        "job_master/j", resource_manager.DisconnectJobManager(job_id="j", status=JobStatus.SUSPENDED)
    )
    assert set(manager.state.slot_manager.requests.known) == {"a"}
    assert manager.slots() == {KEY: (ALLOCATED, "a")}
    assert manager.wait(3600) == []
    manager.free("a")
    assert manager.slots() == {KEY: (FREE, None)}
    assert not manager.state.slot_manager.requests.known


def test_slot_found_held_when_requested_stays_held() -> None:
    manager = one()
    manager.request("a")
    manager.report("te-1", [status("te-1", 0, "b")])
    ask(manager, "a")
    assert manager.slots() == {KEY: (ALLOCATED, "b")}
    manager.register("te-2")
    assert manager.settle()
    reject(manager, "a")
    assert requested_slots(manager.settle()) == [("a", "te-2")]


def test_slot_that_changes_allocation_leaves_no_request() -> None:
    manager = one()
    manager.hold("b")
    manager.request("a")
    # Its TaskExecutor has freed it, allocates it at once, and speaks of the new allocation first.
    ask(manager, "a")
    manager.accept("a")
    body = resource_manager.NotifySlotAvailable(
        instance_id="", slot_id=SlotID(resource_id="te-1", slot_number=0), old_allocation_id="b"
    )
    manager.receive("task_executor/te-1", body)
    assert manager.slots() == {KEY: (ALLOCATED, "a")}
    assert set(manager.state.slot_manager.requests.known) == {"a"}


def test_request_to_departed_task_executor_waits_again() -> None:
    manager = one()
    manager.request("a")
    manager.leave("te-1")
    ask(manager, "a")
    manager.register("te-2")
    assert requested_slots(manager.settle()) == [("a", "te-2")]


def test_slots_go_to_matching_requests() -> None:
    manager = one()
    large = replace(PROFILE, cpu_cores=8.0)
    manager.request("large", profile=large)
    manager.request("small", profile=PROFILE)
    assert requested_slots(manager.settle()) == [("small", "te-1")]
    manager.register("te-2", profile=large)
    assert requested_slots(manager.settle()) == [("large", "te-2")]


def test_spread_option_spreads_slots() -> None:
    placed = {}
    for spread in ("false", "true"):
        manager = Manager({"cluster.evenly-spread-out-slots": spread})
        manager.register("te-1", 2)
        manager.register("te-2", 2)
        manager.job()
        manager.request("a")
        manager.request("b")
        placed[spread] = [resource_id for _, resource_id in requested_slots(manager.settle())]
    assert placed == {"false": ["te-1", "te-1"], "true": ["te-1", "te-2"]}


# Failures


def test_job_that_needs_more_slots_than_exist_fails_early_with_numbers() -> None:
    manager = Manager()
    manager.register("te-1", 2)
    manager.job()
    for allocation_id in "abc":
        manager.request(allocation_id)
    manager.settle()
    assert reasons(manager.wait(9)) == []
    (reason,) = reasons(manager.wait(1))
    assert reason == (
        "no slot within 10 s: the job wants 3 and was given 2, 0 are free, 2 are registered on 1 TaskExecutor; "
        "start more TaskExecutors or lower the parallelism"
    )
    assert set(manager.state.slot_manager.requests.known) == {"a", "b"}


def test_no_request_is_unfulfillable_while_task_executors_may_be_starting() -> None:
    manager = Manager(started=False)
    manager.register("te-1")
    manager.job()
    manager.request("a")
    manager.request("b")
    manager.wait(15)
    manager.request("c")
    assert reasons(manager.wait(14.9)) == []
    assert len(reasons(manager.wait(0.1))) == 2
    # As long again after each election: the jobmanager may have come back before its TaskExecutors.
    manager.request("d")
    manager.wait(9)
    manager.receive(MANAGER, everyone.LeaderElected(role=MANAGER, epoch=2, address="sim", session="2"), "*")
    assert reasons(manager.wait(29)) == []
    assert len(reasons(manager.wait(1))) == 1


def test_job_waits_for_first_task_executor_as_for_busy_ones() -> None:
    manager = Manager()
    manager.job()
    manager.request("a")
    assert reasons(manager.wait(299)) == []
    (reason,) = reasons(manager.wait(1))
    assert "the job wants 1, 0 are free, 0 are registered" in reason


def test_request_waiting_for_busy_slots_fails_late_with_reason() -> None:
    manager = Manager()
    manager.register("te-1", 2)
    manager.job("i")
    manager.job("j")
    manager.hold("x", "y", job_id="i")
    manager.request("a")
    assert reasons(manager.wait(299)) == []
    (reason,) = reasons(manager.wait(1))
    assert reason == (
        "no slot within 300 s: the job wants 1, 0 are free, 2 are registered on 1 TaskExecutor; "
        "wait until other jobs have ended, start more TaskExecutors or lower the parallelism"
    )


def test_loss_of_slots_makes_request_unfulfillable() -> None:
    manager = Manager()
    manager.register("te-1", 1)
    manager.register("te-2", 1)
    manager.job("i")
    manager.job("j")
    manager.hold("x", "y", job_id="i")
    manager.request("a")
    manager.request("b")
    manager.wait(100)
    manager.leave("te-2")
    assert reasons(manager.wait(9)) == []
    assert len(reasons(manager.wait(1))) == 2


def test_job_that_cancels_some_requests_becomes_fulfillable() -> None:
    manager = one()
    manager.job("i")
    manager.hold("x", job_id="i")
    manager.request("a")
    manager.request("b")
    manager.wait(9)
    manager.receive("job_master/j", resource_manager.CancelSlotRequest(allocation_id="b", reason=""))
    assert reasons(manager.wait(100)) == []


def test_more_slots_make_job_fulfillable() -> None:
    manager = one()
    manager.request("a")
    manager.request("b")
    manager.wait(9)
    manager.register("te-2")
    assert requested_slots(manager.wait(100)) == [("b", "te-2")]


def test_request_larger_than_every_slot_fails_early_with_available_sizes() -> None:
    manager = one()
    manager.request("a", profile=replace(PROFILE, cpu_cores=8.0))
    assert reasons(manager.wait(9)) == []
    (reason,) = reasons(manager.wait(1))
    assert reason == (
        "no slot within 10 s: the job wants a slot with 8 CPU, 256 MiB heap, but those that are "
        "there have 1 CPU, 256 MiB heap; start TaskExecutors with larger slots or ask for less"
    )


def test_task_executor_that_does_not_answer_is_named() -> None:
    manager = one()
    manager.request("a")
    assert reasons(manager.wait(299)) == []
    (reason,) = reasons(manager.wait(1))
    assert reason == (
        "no slot within 300 s: TaskExecutor te-1 does not answer the request for its slot 0; see "
        "whether it runs, or start another"
    )


def test_timeouts_follow_configuration_in_log() -> None:
    manager = Manager({"slot.request.unfulfillable-timeout": "2 s", "slot.request.timeout": "5 s"})
    manager.register("te-1")
    manager.job("i")
    manager.hold("x", job_id="i")
    manager.job()
    manager.request("a")
    manager.request("b")
    assert len(reasons(manager.wait(2))) == 2
    manager.request("c")
    assert reasons(manager.wait(4)) == []
    assert len(reasons(manager.wait(1))) == 1
    assert manager.now < 1_100 * SECOND


def test_active_mode_fails_job_early_only_above_maximum_of_slots() -> None:
    manager = Manager({**ACTIVE, "slotmanager.number-of-slots.max": "3"})
    manager.job()
    for allocation_id in "abc":
        manager.request(allocation_id)
    # One worker with two slots is all that may be started; nothing fails while it is on its way.
    assert reasons(manager.wait(60)) == []
    manager.register("worker-1", 2)
    events = manager.settle()
    assert len(requested_slots(events)) == 2
    (reason,) = reasons(events)
    assert reason == (
        "no slot within 10 s: the job wants 3, 2 are free, 2 are registered on 1 TaskExecutor; "
        "slotmanager.number-of-slots.max is 3: raise it or lower the parallelism"
    )
