"""A TaskExecutor that is lost, and one whose masters are silent or contradict it."""

from __future__ import annotations

import pytest

from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.schemas.types import ExecutionState
from tailrace.services.task_executor.slot_reconciliation import slot_contradictions
from tailrace.services.task_executor.task_slot_table import TaskSlotState

from .log_builder import JM, OWN, Driver, heartbeat, names

FREE, ALLOCATED, ACTIVE, RELEASING = TaskSlotState
RUNNING, CANCELED = ExecutionState.RUNNING, ExecutionState.CANCELED
RM = "resource_manager"


def running() -> Driver:
    """Returns a TaskExecutor where task t runs in slot a of job j, slot b is accepted, slot c is allocated."""
    driver = Driver(4)
    driver.hold("a", "b")
    driver.submit("t")
    driver.report("t", RUNNING)
    driver.allocate("c")
    driver.settle()
    return driver


# Loss


def test_lost_task_executor_stops_tasks_and_registers_again() -> None:
    driver = running()
    driver.lose()
    assert [driver.slot(number) for number in range(4)] == [RELEASING, FREE, FREE, FREE]
    assert driver.demands() == ({}, ["t"])
    assert dict(driver.state.jobs) == {}
    assert [event.body for event in driver.settle()] == [driver.registration]


def test_slot_is_not_free_before_its_tasks_have_ended() -> None:
    driver = running()
    driver.lose()
    driver.settle()
    driver.receive(task_executor.TaskExecutorRegistrationSuccess(instance_id="new"))
    (report,) = [event.body for event in driver.settle()]
    assert isinstance(report, resource_manager.SendSlotReport)
    assert [slot.allocation_id for slot in report.slots] == ["a", None, None, None]
    driver.report("t", CANCELED)
    assert names(driver.settle()) == ["NotifySlotAvailable"]
    assert [slot_status.allocation_id for slot_status in driver.state.slots.report("te")] == [None] * 4


def test_job_may_return_before_its_old_tasks_have_ended() -> None:
    driver = running()
    driver.lose()
    driver.settle()
    driver.admit()
    driver.hold("x")
    driver.submit("t", "x", number=1)
    driver.submit("t-1", "x", number=1)
    assert driver.demands() == ({"d": ["t-1"]}, ["t"])
    driver.report("t", CANCELED)
    assert "j" in driver.state.jobs
    assert driver.demands() == ({"d": ["t-1"]}, [])


def test_loss_of_other_task_executor_changes_nothing() -> None:
    driver = running()
    before = driver.state
    driver.receive(everyone.TaskExecutorLost(resource_id="other", reason="silence"), recipient="*")
    assert driver.state is before


def test_answer_to_lost_registration_does_not_answer_next_one() -> None:
    driver = running()
    driver.lose()
    driver.receive(task_executor.TaskExecutorRegistrationSuccess(instance_id="old"))
    assert names(driver.settle()) == ["RegisterTaskExecutor"]
    assert driver.state.registration is not None
    assert driver.state.registration.instance_id is None


def test_task_executor_lost_during_start_is_registered_by_its_process() -> None:
    driver = running()
    driver.receive(everyone.LeaderElected(role=OWN, epoch=9, address="here", session="s"), OWN, "*")
    driver.lose()
    assert driver.settle() == []
    driver.receive(driver.registration, OWN, RM)
    driver.admit()
    assert [slot_status.allocation_id for slot_status in driver.state.slots.report("te")] == [
        "a",
        None,
        None,
        None,
    ]
    assert driver.demands() == ({}, ["t"])


def test_disconnected_task_executor_does_not_register_again() -> None:
    driver = running()
    driver.receive(task_executor.DisconnectResourceManager(reason="the cluster ends"))
    driver.lose()
    assert driver.settle() == []
    driver.report("t", CANCELED)
    assert names(driver.settle()) == ["DisconnectTaskManager"]
    assert driver.state.left


def test_departed_task_executor_holds_nothing() -> None:
    driver = running()
    driver.receive(resource_manager.DisconnectTaskManager(resource_id="te", reason="asked to"), OWN, RM)
    assert driver.settle() == []
    driver.start()
    assert [slot_status.allocation_id for slot_status in driver.state.slots.report("te")] == [
        "a",
        None,
        None,
        None,
    ]
    assert driver.demands() == ({}, ["t"])


def test_event_about_slot_after_loss_is_late() -> None:
    driver = running()
    driver.lose()
    before = driver.state
    driver.take("c")
    driver.free("b")
    driver.answer()
    driver.receive(task_executor.DisconnectJobManager(job_id="j", reason="ended"), JM)
    assert driver.state == before


# Silence


def test_silence_of_resource_manager_causes_new_registration() -> None:
    driver = running()
    driver.silence(RM)
    assert [event.body for event in driver.settle()] == [driver.registration]
    assert [driver.slot(number) for number in range(4)] == [ACTIVE, ACTIVE, ALLOCATED, FREE]
    assert driver.demands() == ({"d": ["t"]}, [])
    driver.receive(task_executor.TaskExecutorRegistrationSuccess(instance_id="new"))
    assert names(driver.settle()) == ["SendSlotReport"]


def test_silence_of_job_master_causes_registration_and_new_offer() -> None:
    driver = running()
    driver.silence(JM)
    assert names(driver.settle()) == ["RegisterTaskManager"]
    assert driver.demands() == ({"d": ["t"]}, [])
    driver.answer()
    (offer,) = [event.body for event in driver.settle()]
    assert isinstance(offer, job_master.OfferSlots)
    assert [slot.allocation_id for slot in offer.slots] == ["c"]


@pytest.mark.parametrize("peer", [RM, JM])
def test_master_that_has_not_answered_gets_no_second_request(peer: str) -> None:
    driver = running()
    driver.silence(peer)
    driver.settle()
    before = driver.state
    driver.silence(peer)
    assert driver.state is before
    assert driver.settle() == []


@pytest.mark.parametrize("peer", ["job_master/unknown", "client/x", "nonsense"])
def test_silence_of_unknown_master_changes_nothing(peer: str) -> None:
    driver = running()
    before = driver.state
    driver.silence(peer)
    assert driver.state is before


# Contradictions


def test_job_master_with_accepted_slots_contradicts_nothing() -> None:
    driver = running()
    for report in (("a", "b"), ("a", "b", "c")):
        assert slot_contradictions(driver.state, heartbeat(driver.offset, *report)) == ((), ())


def test_slot_held_by_one_side_only_is_missing_or_surplus() -> None:
    driver = running()
    assert slot_contradictions(driver.state, heartbeat(driver.offset, "b", "x", "c")) == (("x",), ("a",))
    driver.free("a")
    assert driver.slot() is RELEASING
    assert slot_contradictions(driver.state, heartbeat(driver.offset, "a", "b")) == (("a",), ())


def test_job_master_that_has_not_read_last_change_contradicts_nothing() -> None:
    driver = running()
    last = driver.state.slots_changed
    assert slot_contradictions(driver.state, heartbeat(last - 1)) == ((), ())
    assert slot_contradictions(driver.state, heartbeat(last)) == ((), ("a", "b"))


def test_disconnected_job_holds_no_slot() -> None:
    driver = Driver()
    assert slot_contradictions(driver.state, heartbeat(driver.offset, "a")) == (("a",), ())


def contradicted(driver: Driver, missing: tuple[str, ...] = (), surplus: tuple[str, ...] = ()) -> list[str]:
    """Returns the allocations that get FailSlot."""
    body = task_executor.AllocatedSlotsContradicted(job_id="j", missing=missing, surplus=surplus)
    driver.receive(body, OWN)
    return [
        event.body.allocation_id for event in driver.settle() if isinstance(event.body, job_master.FailSlot)
    ]


def test_surplus_slots_are_freed_and_job_master_is_notified() -> None:
    driver = running()
    assert contradicted(driver, surplus=("a", "c", "x")) == ["a"]
    assert (driver.slot(0), driver.slot(1), driver.slot(2)) == (RELEASING, ACTIVE, ALLOCATED)


def test_missing_slots_have_failed_unless_held_meanwhile() -> None:
    driver = running()
    assert contradicted(driver, missing=("x", "b", "c")) == ["x"]
    assert contradicted(driver, missing=("x",)) == ["x"]
    assert (driver.slot(0), driver.slot(1), driver.slot(2)) == (ACTIVE, ACTIVE, ALLOCATED)
