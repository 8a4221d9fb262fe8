"""TaskExecutors that are lost, come back, or leave; and reports that contradict the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.types import SlotStatus
from tailrace.services.resource_manager.slot_reports import is_contradiction
from tailrace.services.resource_manager.task_manager_slot import SlotState
from tailrace.services.resource_manager.worker_pool import WorkerState

from ..simulated_cluster.cluster import SECOND
from .manager import MANAGER, Manager, asked, of, status

FREE, PENDING, ALLOCATED = SlotState.FREE, SlotState.PENDING, SlotState.ALLOCATED


def cluster(configuration: dict[str, str] | None = None) -> tuple[Manager, str]:
    """te-1 with three slots: a is allocated, b pending, one is free; the job has c waiting nowhere."""
    manager = Manager(configuration)
    instance_id = manager.register("te-1", 3)
    manager.job()
    manager.hold("a")
    manager.request("b")
    manager.settle()
    assert manager.slots() == {
        ("te-1", 0): (ALLOCATED, "a"),
        ("te-1", 1): (PENDING, "b"),
        ("te-1", 2): (FREE, None),
    }
    return manager, instance_id


def losses(said: list[Body]) -> list[tuple[str, str | None]]:
    return [(each.resource_id, each.instance_id) for each in of(everyone.TaskExecutorLost, said)]


def test_a_worker_that_is_lost_is_declared_so_to_everybody() -> None:
    manager, instance_id = cluster()
    manager.lost("te-1", instance_id)
    owed = [each for each in manager.owed() if isinstance(each.body, everyone.TaskExecutorLost)]
    assert [(each.recipient, each.body.instance_id) for each in owed] == [("*", instance_id)]  # type: ignore[attr-defined]
    said = manager.settle()
    assert [each.reason for each in of(everyone.TaskExecutorLost, said)] == [
        "TaskExecutor te-1 is lost: it is silent"
    ]
    assert manager.slots() == {}
    assert "te-1" not in manager.state.workers
    assert manager.state.pool.state_of("te-1") is WorkerState.ABSENT


def test_what_only_waited_for_a_lost_slot_waits_again_and_who_held_one_is_told_by_the_loss_itself() -> None:
    manager, instance_id = cluster()
    manager.lost("te-1", instance_id)
    said = manager.settle()
    assert of(job_master.FailSlot, said) == []
    manager.register("te-2", 2)
    assert asked(manager.settle()) == [("b", "te-2")]
    manager.request("a2")
    assert asked(manager.settle()) == [("a2", "te-2")]


def test_no_slot_of_a_task_executor_that_may_be_lost_is_given_away() -> None:
    manager, instance_id = cluster({"taskmanager.restart-grace": "30 s"})
    manager.lost("te-1", instance_id, exited=True)
    manager.request("c")
    assert asked(manager.wait(29)) == []


def test_a_loss_that_names_an_older_registration_is_ignored() -> None:
    manager, instance_id = cluster()
    manager.register("te-1", 3, report=False)
    manager.lost("te-1", instance_id)
    manager.lost("te-1", None)
    manager.lost("te-9", None)
    assert losses(manager.settle()) == []


def test_a_process_that_has_ended_has_a_grace_to_come_back_and_goes_on_with_its_slots() -> None:
    manager, instance_id = cluster({"taskmanager.restart-grace": "5 s"})
    manager.lost("te-1", instance_id, exited=True)
    assert losses(manager.wait(4.9)) == []
    manager.register("te-1", 3, report=False)
    held = [status("te-1", 0, "a"), status("te-1", 1, "b"), status("te-1", 2)]
    manager.report("te-1", held)
    assert losses(manager.wait(60)) == []
    assert manager.slots()[("te-1", 0)] == (ALLOCATED, "a")
    assert set(manager.state.slot_manager.requests.known) == {"a", "b"}


@pytest.mark.parametrize(("exited", "seconds"), [(True, 5), (False, 0)])
def test_the_grace_ends_and_silence_has_none(exited: bool, seconds: int) -> None:
    manager, instance_id = cluster({"taskmanager.restart-grace": "5 s"})
    before = manager.now
    manager.lost("te-1", instance_id, exited=exited)
    assert losses(manager.wait(60)) == [("te-1", instance_id)]
    (lost,) = [each for each in manager.log if isinstance(each.body, everyone.TaskExecutorLost)]
    assert lost.header.time - before == seconds * SECOND


def test_a_worker_that_is_silent_first_and_has_ended_then_is_lost_once() -> None:
    manager, instance_id = cluster()
    manager.lost("te-1", instance_id)
    manager.lost("te-1", instance_id, exited=True)
    assert losses(manager.settle()) == [("te-1", instance_id)]


def test_a_loss_is_folded_whatever_registration_it_names() -> None:
    manager, instance_id = cluster()
    manager.register("te-1", 3)
    body = everyone.TaskExecutorLost(resource_id="te-1", instance_id=instance_id, reason="")
    manager.hear(MANAGER, body, "*")
    assert manager.slots() == {}
    assert not manager.state.workers
    # It lives, and registers again.
    manager.register("te-1", 3)
    assert asked(manager.settle()) == [("b", "te-1")]


def test_a_loss_of_somebody_unknown_changes_nothing() -> None:
    manager, _ = cluster()
    before = manager.state
    manager.hear(MANAGER, everyone.TaskExecutorLost(resource_id="te-9", instance_id=None, reason=""), "*")
    assert manager.state == before


def test_one_that_leaves_with_slots_of_jobs_is_declared_lost_one_that_leaves_with_none_is_not() -> None:
    manager, instance_id = cluster()
    manager.register("te-2")
    manager.leave("te-2")
    assert manager.settle() == []
    manager.leave("te-1", "SIGTERM")
    said = manager.settle()
    assert losses(said) == [("te-1", instance_id)]
    assert [each.reason for each in of(everyone.TaskExecutorLost, said)] == [
        "TaskExecutor te-1 has left: SIGTERM"
    ]
    assert of(job_master.FailSlot, said) == []


def test_a_new_registration_supersedes_and_reports_count_for_their_own_registration_only() -> None:
    manager, instance_id = cluster()
    manager.register("te-1", 3, report=False)
    old = resource_manager.SendSlotReport(resource_id="te-1", instance_id=instance_id, slots=())
    manager.hear("task_executor/te-1", old)
    assert len(manager.slots()) == 3


def test_a_report_that_was_decided_before_the_slot_was_asked_for_does_not_take_it_back() -> None:
    manager, _ = cluster()
    position = max(
        record.offset for record in manager.log if isinstance(record.body, task_executor.RequestSlot)
    )
    reported = [status("te-1", 0, "a"), status("te-1", 1), status("te-1", 2)]
    manager.report("te-1", reported, seen=position - 1)
    assert manager.slots()[("te-1", 1)] == (PENDING, "b")
    manager.report("te-1", reported, seen=position)
    assert manager.slots()[("te-1", 1)] == (FREE, None)
    # It was asked and does not know of it: another slot, or this one again.
    assert [allocation_id for allocation_id, _ in asked(manager.settle())] == ["b"]


def test_slots_whose_numbers_have_gaps_are_all_forgotten_with_their_task_executor() -> None:
    manager = Manager()
    manager.register("te-1", report=False)
    manager.report("te-1", [status("te-1", 0), status("te-1", 7)])
    assert set(manager.slots()) == {("te-1", 0), ("te-1", 7)}
    manager.leave("te-1")
    assert manager.slots() == {}


# Contradictions


def heartbeat(
    manager: Manager, slots: list[SlotStatus], position: int | None = None, instance_id: str | None = None
) -> resource_manager.HeartbeatFromTaskManager:
    return resource_manager.HeartbeatFromTaskManager(
        resource_id="te-1",
        instance_id=instance_id or manager.state.workers["te-1"].instance_id,
        position=len(manager.log) - 1 if position is None else position,
        slots=tuple(slots),
    )


def contradict(manager: Manager, slots: list[SlotStatus], *, seen: int = -1) -> None:
    body = resource_manager.SlotReportContradicted(
        resource_id="te-1", instance_id=manager.state.workers["te-1"].instance_id, slots=tuple(slots)
    )
    manager.hear(MANAGER, body, seen=seen)


AGREEING = [status("te-1", 0, "a"), status("te-1", 1), status("te-1", 2)]


@pytest.mark.parametrize(
    ("slots", "verdict"),
    [
        (AGREEING, False),
        ([AGREEING[0], status("te-1", 1, "b"), AGREEING[2]], False),
        ([AGREEING[0], AGREEING[2]], False),
        ([status("te-1", 0), *AGREEING[1:]], True),
        ([status("te-1", 0, "x"), *AGREEING[1:]], True),
        ([*AGREEING[:2], status("te-1", 2, "x")], True),
        (AGREEING[:2], True),
        ([*AGREEING, status("te-1", 3)], True),
    ],
)
def test_a_report_contradicts_where_it_differs_but_for_slots_that_are_pending(
    slots: list[SlotStatus], verdict: bool
) -> None:
    manager, _ = cluster()
    assert is_contradiction(manager.state, heartbeat(manager, slots)) is verdict


def test_a_report_contradicts_only_what_its_sender_had_folded() -> None:
    manager, _ = cluster()
    changed = manager.state.slot_manager.slots.workers["te-1"].changed
    wrong = [status("te-1", 0), *AGREEING[1:]]
    assert not is_contradiction(manager.state, heartbeat(manager, wrong, changed - 1))
    assert is_contradiction(manager.state, heartbeat(manager, wrong, changed))
    assert not is_contradiction(manager.state, heartbeat(manager, wrong, instance_id="another"))


@given(st.lists(st.sampled_from((None, "a", "b", "x")), max_size=4))
def test_after_a_correction_the_report_does_not_contradict_any_more(held: list[str | None]) -> None:
    manager, _ = cluster()
    slots = [status("te-1", number, allocation_id) for number, allocation_id in enumerate(held)]
    contradict(manager, slots)
    assert not is_contradiction(manager.state, heartbeat(manager, slots))


def test_an_allocation_that_the_task_executor_lacks_is_lost_for_its_job() -> None:
    manager, _ = cluster()
    contradict(manager, [status("te-1", 0), *AGREEING[1:]])
    assert manager.slots()[("te-1", 0)] == (FREE, None)
    said = manager.settle()
    assert [(each.allocation_id, each.reason) for each in of(job_master.FailSlot, said)] == [
        ("a", "TaskExecutor te-1 does not hold it any more")
    ]
    assert manager.slots()[("te-1", 1)] == (PENDING, "b")


def test_an_allocation_for_a_job_that_is_not_there_is_given_up_by_the_task_executor() -> None:
    manager, _ = cluster()
    contradict(manager, [*AGREEING[:2], status("te-1", 2, "x", job="gone")])
    assert manager.slots()[("te-1", 2)] == (ALLOCATED, "x")
    owed = [each for each in manager.owed() if isinstance(each.body, task_executor.FreeSlot)]
    assert [(each.recipient, each.body.allocation_id) for each in owed] == [("task_executor/te-1", "x")]  # type: ignore[attr-defined]
    assert "there is no job gone" in of(task_executor.FreeSlot, manager.settle())[0].reason


def test_an_allocation_for_a_job_that_is_there_is_believed() -> None:
    manager, _ = cluster()
    contradict(manager, [*AGREEING[:2], status("te-1", 2, "x")])
    assert manager.slots()[("te-1", 2)] == (ALLOCATED, "x")
    assert manager.settle() == []


def test_what_has_changed_since_the_contradiction_was_found_stays() -> None:
    manager, _ = cluster()
    seen = len(manager.log) - 1
    manager.accept("b")
    manager.free("a")
    contradict(manager, AGREEING, seen=seen)
    assert manager.slots() == {
        ("te-1", 0): (FREE, None),
        ("te-1", 1): (ALLOCATED, "b"),
        ("te-1", 2): (FREE, None),
    }
    assert manager.settle() == []
