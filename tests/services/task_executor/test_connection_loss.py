"""A TaskExecutor that is lost, and one whose masters are silent or contradict it."""

from __future__ import annotations

import pytest

from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.schemas.types import ExecutionState
from tailrace.services.task_executor.slot_reconciliation import slot_contradictions
from tailrace.services.task_executor.task_slot_table import TaskSlotState

from .log_builder import JM, OWN, Talk, heartbeat, names

FREE, ALLOCATED, ACTIVE, RELEASING = TaskSlotState
RUNNING, CANCELED = ExecutionState.RUNNING, ExecutionState.CANCELED
RM = "resource_manager"


def running() -> Talk:
    """Task t runs in slot a of job j, slot b is taken, slot c is allocated."""
    talk = Talk(4)
    talk.hold("a", "b")
    talk.submit("t")
    talk.report("t", RUNNING)
    talk.allocate("c")
    talk.settle()
    return talk


# Loss


def test_a_task_executor_that_is_lost_stops_its_tasks_and_registers_again() -> None:
    talk = running()
    talk.lose()
    assert [talk.slot(number) for number in range(4)] == [RELEASING, FREE, FREE, FREE]
    assert talk.demands() == ({}, ["t"])
    assert (dict(talk.state.jobs), dict(talk.state.freed)) == ({}, {})
    assert [each.body for each in talk.settle()] == [talk.registration]


def test_a_slot_is_not_free_before_what_ran_in_it_has_ended() -> None:
    talk = running()
    talk.lose()
    talk.settle()
    talk.hear(task_executor.TaskExecutorRegistrationSuccess(instance_id="new"))
    (report,) = [each.body for each in talk.settle()]
    assert isinstance(report, resource_manager.SendSlotReport)
    assert [each.allocation_id for each in report.slots] == ["a", None, None, None]
    talk.report("t", CANCELED)
    assert names(talk.settle()) == ["NotifySlotAvailable"]
    assert [each.allocation_id for each in talk.state.slots.report("te")] == [None] * 4


def test_a_job_may_come_back_before_its_old_tasks_have_ended() -> None:
    talk = running()
    talk.lose()
    talk.settle()
    talk.admit()
    talk.hold("x")
    talk.submit("t", "x", number=1)
    talk.submit("t-1", "x", number=1)
    assert talk.demands() == ({"d": ["t-1"]}, ["t"])
    talk.report("t", CANCELED)
    assert "j" in talk.state.jobs
    assert talk.demands() == ({"d": ["t-1"]}, [])


def test_the_loss_of_another_changes_nothing() -> None:
    talk = running()
    before = talk.state
    talk.hear(everyone.TaskExecutorLost(resource_id="other", reason="silence"), recipient="*")
    assert talk.state is before


def test_an_answer_to_the_registration_that_was_lost_is_none_to_the_next() -> None:
    talk = running()
    talk.lose()
    talk.hear(task_executor.TaskExecutorRegistrationSuccess(instance_id="old"))
    assert names(talk.settle()) == ["RegisterTaskExecutor"]
    assert talk.state.registration is not None
    assert talk.state.registration.instance_id is None


def test_one_that_is_lost_while_its_process_starts_is_registered_by_the_process() -> None:
    talk = running()
    talk.hear(everyone.LeaderElected(role=OWN, epoch=9, address="here", session="s"), OWN, "*")
    talk.lose()
    assert talk.settle() == []
    talk.hear(talk.registration, OWN, RM)
    talk.admit()
    assert [each.allocation_id for each in talk.state.slots.report("te")] == ["a", None, None, None]
    assert talk.demands() == ({}, ["t"])


def test_one_that_was_told_to_leave_does_not_register_again() -> None:
    talk = running()
    talk.hear(task_executor.DisconnectResourceManager(reason="the cluster ends"))
    talk.lose()
    assert talk.settle() == []
    talk.report("t", CANCELED)
    assert names(talk.settle()) == ["DisconnectTaskManager"]
    assert talk.state.left


def test_one_that_has_left_has_let_go_of_all() -> None:
    talk = running()
    talk.hear(resource_manager.DisconnectTaskManager(resource_id="te", reason="asked to"), OWN, RM)
    assert talk.settle() == []
    talk.start()
    assert [each.allocation_id for each in talk.state.slots.report("te")] == ["a", None, None, None]
    assert talk.demands() == ({}, ["t"])


def test_whatever_is_said_of_a_slot_after_the_loss_comes_too_late() -> None:
    talk = running()
    talk.lose()
    before = talk.state
    talk.take("c")
    talk.free("b")
    talk.answer()
    talk.hear(task_executor.DisconnectJobManager(job_id="j", reason="ended"), JM)
    assert talk.state == before


# Silence


def test_the_silence_of_the_resource_manager_is_answered_with_another_registration() -> None:
    talk = running()
    talk.silence(RM)
    assert [each.body for each in talk.settle()] == [talk.registration]
    assert [talk.slot(number) for number in range(4)] == [ACTIVE, ACTIVE, ALLOCATED, FREE]
    assert talk.demands() == ({"d": ["t"]}, [])
    talk.hear(task_executor.TaskExecutorRegistrationSuccess(instance_id="new"))
    assert names(talk.settle()) == ["SendSlotReport"]


def test_the_silence_of_a_job_master_is_answered_with_a_greeting_and_the_offer_of_what_it_has_not_taken() -> (
    None
):
    talk = running()
    talk.silence(JM)
    assert names(talk.settle()) == ["RegisterTaskManager"]
    assert talk.demands() == ({"d": ["t"]}, [])
    talk.answer()
    (offer,) = [each.body for each in talk.settle()]
    assert isinstance(offer, job_master.OfferSlots)
    assert [each.allocation_id for each in offer.slots] == ["c"]


@pytest.mark.parametrize("peer", [RM, JM])
def test_a_master_that_has_not_answered_is_not_asked_again(peer: str) -> None:
    talk = running()
    talk.silence(peer)
    talk.settle()
    before = talk.state
    talk.silence(peer)
    assert talk.state is before
    assert talk.settle() == []


@pytest.mark.parametrize("peer", ["job_master/unknown", "client/x", "nonsense"])
def test_the_silence_of_strangers_is_nothing(peer: str) -> None:
    talk = running()
    before = talk.state
    talk.silence(peer)
    assert talk.state is before


# Contradictions


def test_a_job_master_that_holds_what_it_has_taken_contradicts_nothing() -> None:
    talk = running()
    for report in (("a", "b"), ("a", "b", "c")):
        assert slot_contradictions(talk.state, heartbeat(talk.offset, *report)) == ((), ())


def test_what_only_one_of_both_holds_is_missing_or_surplus() -> None:
    talk = running()
    assert slot_contradictions(talk.state, heartbeat(talk.offset, "b", "x", "c")) == (("x",), ("a",))
    talk.free("a")
    assert talk.slot() is RELEASING
    assert slot_contradictions(talk.state, heartbeat(talk.offset, "a", "b")) == (("a",), ())


def test_a_job_master_that_has_not_read_of_the_last_change_contradicts_nothing() -> None:
    talk = running()
    last = talk.state.slots_changed
    assert slot_contradictions(talk.state, heartbeat(last - 1)) == ((), ())
    assert slot_contradictions(talk.state, heartbeat(last)) == ((), ("a", "b"))


def test_nothing_is_held_for_a_job_that_is_not_connected() -> None:
    talk = Talk()
    assert slot_contradictions(talk.state, heartbeat(talk.offset, "a")) == (("a",), ())


def contradicted(talk: Talk, missing: tuple[str, ...] = (), surplus: tuple[str, ...] = ()) -> list[str]:
    """The allocations that FailSlot is said of."""
    body = task_executor.AllocatedSlotsContradicted(job_id="j", missing=missing, surplus=surplus)
    talk.hear(body, OWN)
    return [each.body.allocation_id for each in talk.settle() if isinstance(each.body, job_master.FailSlot)]


def test_surplus_slots_are_released_and_the_job_master_is_told() -> None:
    talk = running()
    assert contradicted(talk, surplus=("a", "c", "x")) == ["a"]
    assert (talk.slot(0), talk.slot(1), talk.slot(2)) == (RELEASING, ACTIVE, ALLOCATED)


def test_missing_slots_have_failed_unless_they_are_held_by_now() -> None:
    talk = running()
    assert contradicted(talk, missing=("x", "b", "c")) == ["x"]
    assert contradicted(talk, missing=("x",)) == ["x"]
    assert (talk.slot(0), talk.slot(1), talk.slot(2)) == (ACTIVE, ACTIVE, ALLOCATED)
