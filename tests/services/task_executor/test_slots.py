"""Slots: asked for, offered, taken, given up, taken away and given back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.schemas import job_master, resource_manager, task_executor
from tailrace.schemas.types import ExecutionState
from tailrace.services.core.role import RESOURCE_MANAGER
from tailrace.services.task_executor.task_slot_table import TaskSlotState

from ..simulated_cluster.cluster import SECOND
from .log_builder import JM, OWN, Talk, names

FREE, ALLOCATED, ACTIVE, RELEASING = TaskSlotState
RUNNING, CANCELED = ExecutionState.RUNNING, ExecutionState.CANCELED


def test_a_slot_is_offered_when_the_job_master_knows_the_task_executor() -> None:
    talk = Talk()
    talk.allocate("a", "b")
    assert names(talk.settle()) == ["SlotRequestAccepted", "SlotRequestAccepted", "RegisterTaskManager"]
    talk.answer()
    (offer,) = [each.body for each in talk.settle()]
    assert isinstance(offer, job_master.OfferSlots)
    assert [(each.allocation_id, each.slot_number) for each in offer.slots] == [("a", 0), ("b", 1)]


def test_each_slot_that_is_offered_is_taken_or_free_again() -> None:
    talk = Talk()
    talk.allocate("a", "b")
    talk.settle()
    talk.answer()
    talk.settle()
    talk.take("a")
    talk.hear(task_executor.SlotsRejected(job_id="j", allocation_ids=("b",), reason="not wanted"), JM)
    assert (talk.slot(0), talk.slot(1)) == (ACTIVE, FREE)
    assert names(talk.settle()) == ["NotifySlotAvailable"]


def test_what_is_allocated_later_is_offered_alone() -> None:
    talk = Talk()
    talk.hold("a")
    talk.allocate("b")
    owed = talk.settle()
    assert names(owed) == ["SlotRequestAccepted", "OfferSlots"]
    assert [each.allocation_id for each in owed[1].body.slots] == ["b"]  # type: ignore[attr-defined]


def test_a_job_without_slots_is_disconnected_in_the_documents_words() -> None:
    talk = Talk()
    talk.hold("a")
    talk.free("a")
    owed = talk.settle()
    assert names(owed) == ["NotifySlotAvailable", "DisconnectTaskManager"]
    reason = "TaskExecutor task_executor/te has no more allocated slots for job j."
    assert owed[-1].body.reason == reason  # type: ignore[attr-defined]
    assert not talk.state.jobs


# Slots that nobody takes


def test_a_slot_that_is_not_taken_in_time_is_given_up() -> None:
    talk = Talk(**{"taskmanager.slot.timeout": "3 s"})
    talk.allocate("a")
    talk.settle()
    assert talk.role.deadline(talk.state) == talk.now + 3 * SECOND
    talk.now += 3 * SECOND - 1
    assert talk.settle() == []
    talk.now += 1
    owed = talk.settle()
    assert names(owed) == ["FailSlot", "NotifySlotAvailable", "DisconnectTaskManager"]
    assert owed[0].recipient == JM
    assert owed[0].body.reason == "slot 0 of TaskExecutor te was not taken within 3 s"  # type: ignore[attr-defined]
    assert (talk.slot(), talk.role.deadline(talk.state)) == (FREE, None)


def test_of_several_slots_only_the_ones_whose_time_is_up_are_given_up() -> None:
    talk = Talk(3)
    talk.hold("a")
    talk.allocate("b")
    talk.settle()
    talk.now += 6 * SECOND
    talk.allocate("c")
    talk.settle()
    talk.now += 4 * SECOND
    assert [each.body.allocation_id for each in talk.settle() if "Fail" in names([each])[0]] == ["b"]  # type: ignore[attr-defined]
    assert [talk.slot(number) for number in range(3)] == [ACTIVE, FREE, ALLOCATED]


@pytest.mark.parametrize("taken_first", [True, False])
def test_a_slot_that_was_given_up_while_it_was_taken_is_given_up(taken_first: bool) -> None:
    talk = Talk()
    talk.allocate("a")
    talk.settle()
    talk.now += 10 * SECOND
    (failure,) = talk.role.decide(talk.state, talk.now)
    said: list[Callable[[], object]] = [lambda: talk.take("a"), lambda: talk.hear(failure.body, OWN, JM)]
    for each in said if taken_first else reversed(said):
        each()
    assert talk.slot() is FREE


def test_a_process_that_starts_again_gives_its_slots_all_the_time_once_more() -> None:
    talk = Talk()
    talk.allocate("a")
    talk.settle()
    talk.now += 60 * SECOND
    talk.start()
    assert talk.slot() is ALLOCATED
    assert talk.role.deadline(talk.state) == talk.now + 10 * SECOND


# Slots that are given back, and slots that are taken away


def test_a_slot_that_is_given_back_is_free_when_its_last_task_has_ended() -> None:
    talk = Talk()
    talk.hold("a")
    talk.submit("t")
    talk.report("t", RUNNING)
    talk.settle()
    talk.free("a")
    assert (talk.slot(), talk.demands()) == (RELEASING, ({}, ["t"]))
    assert talk.settle() == []
    talk.report("t", CANCELED)
    assert talk.slot() is FREE
    assert names(talk.settle()) == ["NotifySlotAvailable", "DisconnectTaskManager"]


def test_a_slot_that_the_resource_manager_takes_away_has_failed_for_its_job_master() -> None:
    talk = Talk()
    talk.hold("a")
    talk.free("a", sender=RESOURCE_MANAGER)
    owed = talk.settle()
    assert sorted(names(owed)) == ["DisconnectTaskManager", "FailSlot", "NotifySlotAvailable"]


def test_a_job_master_that_leaves_gets_word_of_slots_that_it_may_be_waiting_for() -> None:
    talk = Talk(3)
    talk.hold("a")
    talk.allocate("b")
    talk.hear(task_executor.DisconnectJobManager(job_id="j", reason="silence"), JM)
    assert (talk.slot(0), talk.slot(1)) == (FREE, FREE)
    failed = [each.body.allocation_id for each in talk.settle() if isinstance(each.body, job_master.FailSlot)]
    assert failed == ["b"]
    assert not talk.state.jobs


def test_a_slot_that_is_allocated_while_the_last_one_is_given_back_keeps_the_job_connected() -> None:
    talk = Talk()
    talk.hold("a")
    talk.free("a")
    goodbye = talk.role.decide(talk.state, talk.now)[-1]
    talk.allocate("b")
    talk.hear(goodbye.body, OWN, JM)
    assert "RegisterTaskManager" in names(talk.settle())
    talk.answer()
    assert names(talk.settle()) == ["OfferSlots"]


def test_every_allocation_that_a_slot_has_had_is_told_of() -> None:
    talk = Talk(1)
    talk.hold("a")
    talk.free("a")
    talk.allocate("b")
    talk.free("b")
    talk.allocate("a")
    talk.free("a")
    freed = [
        each.body for each in talk.settle() if isinstance(each.body, resource_manager.NotifySlotAvailable)
    ]
    assert [each.old_allocation_id for each in freed] == ["b", "a"]


def test_a_slot_that_is_given_again_for_the_same_allocation_is_not_free() -> None:
    talk = Talk(1)
    talk.hold("a")
    talk.free("a")
    talk.allocate("a")
    assert "NotifySlotAvailable" not in names(talk.settle())


# Requests


def test_a_request_that_comes_again_is_answered_with_the_slot_that_it_has() -> None:
    talk = Talk()
    talk.hold("a")
    talk.hear(
        task_executor.RequestSlot(
            slot_id=next(iter(talk.state.slots.report("te"))).slot_id,
            job_id="j",
            allocation_id="a",
            resource_profile=None,
            reason="again",
        )
    )
    assert names(talk.settle()) == ["SlotRequestAccepted"]
    assert (talk.slot(0), talk.slot(1), talk.role.deadline(talk.state)) == (ACTIVE, FREE, None)
