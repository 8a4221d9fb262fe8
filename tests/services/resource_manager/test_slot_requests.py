"""Slot requests: asked for, fulfilled, refused, cancelled; what crosses on the log; and when they fail, and why."""

from __future__ import annotations

from msgspec.structs import replace

from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.types import JobStatus, SlotID
from tailrace.services.resource_manager.task_manager_slot import SlotState

from ..simulated_cluster.cluster import PROFILE, SECOND
from .manager import ACTIVE, MANAGER, Manager, asked, of, status

FREE, PENDING, ALLOCATED = SlotState.FREE, SlotState.PENDING, SlotState.ALLOCATED
KEY = ("te-1", 0)


def reasons(said: list[Body]) -> list[str]:
    return [each.reason for each in of(job_master.SlotAllocationFailed, said)]


def reject(manager: Manager, allocation_id: str, resource_id: str = "te-1") -> None:
    body = resource_manager.SlotRequestRejected(
        allocation_id=allocation_id,
        slot_id=SlotID(resource_id=resource_id, slot_number=0),
        reason="it is taken",
    )
    manager.hear(f"task_executor/{resource_id}", body)


def ask(manager: Manager, allocation_id: str, resource_id: str = "te-1") -> None:
    """RequestSlot comes into the log now, whenever it was decided."""
    body = task_executor.RequestSlot(
        slot_id=SlotID(resource_id=resource_id, slot_number=0),
        job_id="j",
        allocation_id=allocation_id,
        resource_profile=None,
        reason="",
    )
    manager.hear(MANAGER, body, f"task_executor/{resource_id}")


def one() -> Manager:
    """A job, and a TaskExecutor with one slot."""
    manager = Manager()
    manager.register("te-1")
    manager.job()
    return manager


def test_a_request_waits_is_asked_for_and_fulfilled() -> None:
    manager = one()
    manager.request("a")
    assert manager.slots() == {KEY: (FREE, None)}
    assert asked(manager.settle()) == [("a", "te-1")]
    assert manager.slots() == {KEY: (PENDING, "a")}
    manager.accept("a")
    assert manager.slots() == {KEY: (ALLOCATED, "a")}
    assert manager.wait(3600) == []


def test_a_request_that_is_made_again_is_not_fulfilled_twice() -> None:
    manager = one()
    manager.register("te-2")
    manager.request("a")
    manager.request("a")
    assert len(asked(manager.settle())) == 1
    manager.request("a")
    manager.accept("a")
    manager.request("a")
    assert asked(manager.settle()) == []


def test_a_slot_that_was_refused_is_held_by_something_else_and_the_request_gets_another() -> None:
    manager = one()
    manager.request("a")
    manager.settle()
    reject(manager, "a")
    assert manager.slots() == {KEY: (ALLOCATED, None)}
    assert manager.settle() == []
    manager.register("te-2")
    assert asked(manager.settle()) == [("a", "te-2")]


def test_what_held_a_refused_slot_frees_it() -> None:
    manager = one()
    manager.request("a")
    manager.settle()
    reject(manager, "a")
    body = resource_manager.NotifySlotAvailable(
        instance_id="",
        slot_id=SlotID(resource_id="te-1", slot_number=0),
        old_allocation_id="whatever held it",
    )
    manager.hear("task_executor/te-1", body)
    assert asked(manager.settle()) == [("a", "te-1")]


def test_a_refusal_that_comes_late_does_not_concern_the_request_any_more() -> None:
    manager = one()
    manager.request("a")
    manager.settle()
    reject(manager, "a")
    manager.register("te-2")
    manager.settle()
    reject(manager, "a")
    assert manager.slot_of("a") == ("te-2", 0)


def test_the_oldest_request_is_served_first_also_after_it_had_to_wait_again() -> None:
    manager = one()
    for allocation_id in "abc":
        manager.request(allocation_id)
    assert asked(manager.settle()) == [("a", "te-1")]
    manager.accept("a")
    manager.free("a")
    assert asked(manager.settle()) == [("b", "te-1")]


def test_a_cancelled_request_is_forgotten_and_its_slot_stays_pending_until_the_answer() -> None:
    manager = one()
    manager.request("a")
    manager.settle()
    manager.hear("job_master/j", resource_manager.CancelSlotRequest(allocation_id="a", reason=""))
    assert manager.slots() == {KEY: (PENDING, "a")}
    assert manager.wait(3600) == []
    body = resource_manager.SlotRequestAccepted(
        allocation_id="a", slot_id=SlotID(resource_id="te-1", slot_number=0)
    )
    manager.hear("task_executor/te-1", body)
    assert manager.slots() == {KEY: (ALLOCATED, "a")}
    assert not manager.state.slot_manager.requests.known


def test_a_job_that_leaves_is_forgotten_but_for_the_slots_that_it_has_not_given_back_yet() -> None:
    manager = one()
    manager.hold("a")
    manager.request("b")
    manager.hear(
        "job_master/j", resource_manager.DisconnectJobManager(job_id="j", status=JobStatus.SUSPENDED)
    )
    assert set(manager.state.slot_manager.requests.known) == {"a"}
    assert manager.slots() == {KEY: (ALLOCATED, "a")}
    assert manager.wait(3600) == []
    manager.free("a")
    assert manager.slots() == {KEY: (FREE, None)}
    assert not manager.state.slot_manager.requests.known


def test_a_slot_that_was_found_to_be_held_when_it_was_asked_for_stays_so() -> None:
    manager = one()
    manager.request("a")
    manager.report("te-1", [status("te-1", 0, "b")])
    ask(manager, "a")
    assert manager.slots() == {KEY: (ALLOCATED, "b")}
    manager.register("te-2")
    assert manager.settle()
    reject(manager, "a")
    assert asked(manager.settle()) == [("a", "te-2")]


def test_a_slot_that_goes_from_one_allocation_to_another_leaves_no_request_behind() -> None:
    manager = one()
    manager.hold("b")
    manager.request("a")
    # Its TaskExecutor has freed it, allocates it at once, and speaks of the new allocation first.
    ask(manager, "a")
    manager.accept("a")
    body = resource_manager.NotifySlotAvailable(
        instance_id="", slot_id=SlotID(resource_id="te-1", slot_number=0), old_allocation_id="b"
    )
    manager.hear("task_executor/te-1", body)
    assert manager.slots() == {KEY: (ALLOCATED, "a")}
    assert set(manager.state.slot_manager.requests.known) == {"a"}


def test_a_request_that_asks_a_task_executor_that_has_just_left_goes_on_waiting() -> None:
    manager = one()
    manager.request("a")
    manager.leave("te-1")
    ask(manager, "a")
    manager.register("te-2")
    assert asked(manager.settle()) == [("a", "te-2")]


def test_slots_go_to_requests_that_they_match() -> None:
    manager = one()
    large = replace(PROFILE, cpu_cores=8.0)
    manager.request("large", profile=large)
    manager.request("small", profile=PROFILE)
    assert asked(manager.settle()) == [("small", "te-1")]
    manager.register("te-2", profile=large)
    assert asked(manager.settle()) == [("large", "te-2")]


def test_slots_are_spread_where_the_cluster_is_told_so() -> None:
    placed = {}
    for spread in ("false", "true"):
        manager = Manager({"cluster.evenly-spread-out-slots": spread})
        manager.register("te-1", 2)
        manager.register("te-2", 2)
        manager.job()
        manager.request("a")
        manager.request("b")
        placed[spread] = [resource_id for _, resource_id in asked(manager.settle())]
    assert placed == {"false": ["te-1", "te-1"], "true": ["te-1", "te-2"]}


# Failures


def test_a_job_that_wants_more_than_there_are_fails_soon_with_the_numbers() -> None:
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


def test_no_request_fails_as_one_that_can_not_be_met_while_task_executors_may_be_starting() -> None:
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
    manager.hear(MANAGER, everyone.LeaderElected(role=MANAGER, epoch=2, address="sim", session="2"), "*")
    assert reasons(manager.wait(29)) == []
    assert len(reasons(manager.wait(1))) == 1


def test_a_job_waits_for_a_first_task_executor_as_it_does_for_busy_ones() -> None:
    manager = Manager()
    manager.job()
    manager.request("a")
    assert reasons(manager.wait(299)) == []
    (reason,) = reasons(manager.wait(1))
    assert "the job wants 1, 0 are free, 0 are registered" in reason


def test_a_request_that_waits_for_busy_slots_fails_late_and_says_so() -> None:
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


def test_a_request_becomes_one_that_can_not_be_met_when_slots_are_lost() -> None:
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


def test_a_job_that_gives_up_part_of_what_it_wants_can_be_met_again() -> None:
    manager = one()
    manager.job("i")
    manager.hold("x", job_id="i")
    manager.request("a")
    manager.request("b")
    manager.wait(9)
    manager.hear("job_master/j", resource_manager.CancelSlotRequest(allocation_id="b", reason=""))
    assert reasons(manager.wait(100)) == []


def test_more_slots_make_a_job_one_that_can_be_met() -> None:
    manager = one()
    manager.request("a")
    manager.request("b")
    manager.wait(9)
    manager.register("te-2")
    assert asked(manager.wait(100)) == [("b", "te-2")]


def test_a_request_that_no_slot_is_large_enough_for_fails_soon_and_says_what_there_is() -> None:
    manager = one()
    manager.request("a", profile=replace(PROFILE, cpu_cores=8.0))
    assert reasons(manager.wait(9)) == []
    (reason,) = reasons(manager.wait(1))
    assert reason == (
        "no slot within 10 s: the job wants a slot with 8 CPU, 256 MiB heap, but those that are "
        "there have 1 CPU, 256 MiB heap; start TaskExecutors with larger slots or ask for less"
    )


def test_a_task_executor_that_does_not_answer_is_named() -> None:
    manager = one()
    manager.request("a")
    assert reasons(manager.wait(299)) == []
    (reason,) = reasons(manager.wait(1))
    assert reason == (
        "no slot within 300 s: TaskExecutor te-1 does not answer the request for its slot 0; see "
        "whether it runs, or start another"
    )


def test_times_are_what_the_log_says_they_are() -> None:
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


def test_in_active_mode_a_job_fails_soon_only_where_it_wants_more_than_may_be_started() -> None:
    manager = Manager({**ACTIVE, "slotmanager.number-of-slots.max": "3"})
    manager.job()
    for allocation_id in "abc":
        manager.request(allocation_id)
    # One worker with two slots is all that may be started; nothing fails while it is on its way.
    assert reasons(manager.wait(60)) == []
    manager.register("worker-1", 2)
    said = manager.settle()
    assert len(asked(said)) == 2
    (reason,) = reasons(said)
    assert reason == (
        "no slot within 10 s: the job wants 3, 2 are free, 2 are registered on 1 TaskExecutor; "
        "slotmanager.number-of-slots.max is 3: raise it or lower the parallelism"
    )
