"""Slots: requested, offered, accepted, given up, revoked and freed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.schemas import job_master, resource_manager, task_executor
from tailrace.schemas.types import ExecutionState
from tailrace.services.core.role import RESOURCE_MANAGER
from tailrace.services.task_executor.task_slot_table import TaskSlotState

from ..simulated_cluster.cluster import SECOND
from .log_builder import JM, OWN, Driver, names

FREE, ALLOCATED, ACTIVE, RELEASING = TaskSlotState
RUNNING, CANCELED = ExecutionState.RUNNING, ExecutionState.CANCELED


def test_slot_is_offered_when_job_master_knows_task_executor() -> None:
    driver = Driver()
    driver.allocate("a", "b")
    assert names(driver.settle()) == ["SlotRequestAccepted", "SlotRequestAccepted", "RegisterTaskManager"]
    driver.answer()
    (offer,) = [event.body for event in driver.settle()]
    assert isinstance(offer, job_master.OfferSlots)
    assert [(slot.allocation_id, slot.slot_number) for slot in offer.slots] == [("a", 0), ("b", 1)]


def test_each_offered_slot_is_accepted_or_freed() -> None:
    driver = Driver()
    driver.allocate("a", "b")
    driver.settle()
    driver.answer()
    driver.settle()
    driver.take("a")
    driver.receive(task_executor.SlotsRejected(job_id="j", allocation_ids=("b",), reason="not wanted"), JM)
    assert (driver.slot(0), driver.slot(1)) == (ACTIVE, FREE)
    assert names(driver.settle()) == ["NotifySlotAvailable"]


def test_later_allocation_is_offered_alone() -> None:
    driver = Driver()
    driver.hold("a")
    driver.allocate("b")
    owed = driver.settle()
    assert names(owed) == ["SlotRequestAccepted", "OfferSlots"]
    assert [slot.allocation_id for slot in owed[1].body.slots] == ["b"]  # type: ignore[attr-defined]


def test_job_without_slots_is_disconnected_with_message_of_flink() -> None:
    driver = Driver()
    driver.hold("a")
    driver.free("a")
    owed = driver.settle()
    assert names(owed) == ["NotifySlotAvailable", "DisconnectTaskManager"]
    reason = "TaskExecutor task_executor/te has no more allocated slots for job j."
    assert owed[-1].body.reason == reason  # type: ignore[attr-defined]
    assert not driver.state.jobs


# Slots that nobody takes


def test_slot_not_accepted_in_time_is_freed() -> None:
    driver = Driver(**{"taskmanager.slot.timeout": "3 s"})
    driver.allocate("a")
    driver.settle()
    assert driver.role.deadline(driver.state) == driver.now + 3 * SECOND
    driver.now += 3 * SECOND - 1
    assert driver.settle() == []
    driver.now += 1
    owed = driver.settle()
    assert names(owed) == ["FailSlot", "NotifySlotAvailable", "DisconnectTaskManager"]
    assert owed[0].recipient == JM
    assert owed[0].body.reason == "slot 0 of TaskExecutor te was not taken within 3 s"  # type: ignore[attr-defined]
    assert (driver.slot(), driver.role.deadline(driver.state)) == (FREE, None)


def test_only_slots_past_their_timeout_are_freed() -> None:
    driver = Driver(3)
    driver.hold("a")
    driver.allocate("b")
    driver.settle()
    driver.now += 6 * SECOND
    driver.allocate("c")
    driver.settle()
    driver.now += 4 * SECOND
    assert [event.body.allocation_id for event in driver.settle() if "Fail" in names([event])[0]] == ["b"]  # type: ignore[attr-defined]
    assert [driver.slot(number) for number in range(3)] == [ACTIVE, FREE, ALLOCATED]


@pytest.mark.parametrize("taken_first", [True, False])
def test_slot_freed_while_accepted_is_freed(taken_first: bool) -> None:
    driver = Driver()
    driver.allocate("a")
    driver.settle()
    driver.now += 10 * SECOND
    (failure,) = driver.role.decide(driver.state, driver.now)
    events: list[Callable[[], object]] = [
        lambda: driver.take("a"),
        lambda: driver.receive(failure.body, OWN, JM),
    ]
    for event in events if taken_first else reversed(events):
        event()
    assert driver.slot() is FREE


def test_restarted_process_restarts_slot_timeouts() -> None:
    driver = Driver()
    driver.allocate("a")
    driver.settle()
    driver.now += 60 * SECOND
    driver.start()
    assert driver.slot() is ALLOCATED
    assert driver.role.deadline(driver.state) == driver.now + 10 * SECOND


# Slots that are given back, and slots that are taken away


def test_freed_slot_becomes_free_when_last_task_has_ended() -> None:
    driver = Driver()
    driver.hold("a")
    driver.submit("t")
    driver.report("t", RUNNING)
    driver.settle()
    driver.free("a")
    assert (driver.slot(), driver.demands()) == (RELEASING, ({}, ["t"]))
    assert driver.settle() == []
    driver.report("t", CANCELED)
    assert driver.slot() is FREE
    assert names(driver.settle()) == ["NotifySlotAvailable", "DisconnectTaskManager"]


def test_slot_revoked_by_resource_manager_fails_for_job_master() -> None:
    driver = Driver()
    driver.hold("a")
    driver.free("a", sender=RESOURCE_MANAGER)
    owed = driver.settle()
    assert sorted(names(owed)) == ["DisconnectTaskManager", "FailSlot", "NotifySlotAvailable"]


def test_disconnecting_job_master_is_notified_of_slots_it_may_wait_for() -> None:
    driver = Driver(3)
    driver.hold("a")
    driver.allocate("b")
    driver.receive(task_executor.DisconnectJobManager(job_id="j", reason="silence"), JM)
    assert (driver.slot(0), driver.slot(1)) == (FREE, FREE)
    failed = [
        event.body.allocation_id for event in driver.settle() if isinstance(event.body, job_master.FailSlot)
    ]
    assert failed == ["b"]
    assert not driver.state.jobs


def test_slot_allocated_while_last_one_is_freed_keeps_job_connected() -> None:
    driver = Driver()
    driver.hold("a")
    driver.free("a")
    goodbye = driver.role.decide(driver.state, driver.now)[-1]
    driver.allocate("b")
    driver.receive(goodbye.body, OWN, JM)
    assert "RegisterTaskManager" in names(driver.settle())
    driver.answer()
    assert names(driver.settle()) == ["OfferSlots"]


def test_every_allocation_of_slot_is_reported() -> None:
    driver = Driver(1)
    driver.hold("a")
    driver.free("a")
    driver.allocate("b")
    driver.free("b")
    driver.allocate("a")
    driver.free("a")
    freed = [
        event.body
        for event in driver.settle()
        if isinstance(event.body, resource_manager.NotifySlotAvailable)
    ]
    assert [event.old_allocation_id for event in freed] == ["b", "a"]


def test_slot_allocated_again_for_same_allocation_is_not_free() -> None:
    driver = Driver(1)
    driver.hold("a")
    driver.free("a")
    driver.allocate("a")
    assert "NotifySlotAvailable" not in names(driver.settle())


# Requests


def test_repeated_request_is_answered_with_same_slot() -> None:
    driver = Driver()
    driver.hold("a")
    driver.receive(
        task_executor.RequestSlot(
            slot_id=next(iter(driver.state.slots.report("te"))).slot_id,
            job_id="j",
            allocation_id="a",
            reason="again",
        )
    )
    assert names(driver.settle()) == ["SlotRequestAccepted"]
    assert (driver.slot(0), driver.slot(1), driver.role.deadline(driver.state)) == (ACTIVE, FREE, None)
