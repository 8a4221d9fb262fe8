"""TaskExecutors that are lost, return or leave; and reports that contradict the log."""

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
from .manager import MANAGER, Manager, events_of, requested_slots, status

FREE, PENDING, ALLOCATED = SlotState.FREE, SlotState.PENDING, SlotState.ALLOCATED


def cluster(configuration: dict[str, str] | None = None) -> tuple[Manager, str]:
    """Returns a manager with te-1 of three slots: a is allocated, b pending, one is free; request c is pending."""
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


def losses(bodies: list[Body]) -> list[tuple[str, str | None]]:
    return [(event.resource_id, event.instance_id) for event in events_of(everyone.TaskExecutorLost, bodies)]


def test_loss_of_worker_is_broadcast() -> None:
    manager, instance_id = cluster()
    manager.lost("te-1", instance_id)
    owed = [event for event in manager.owed() if isinstance(event.body, everyone.TaskExecutorLost)]
    assert [(event.recipient, event.body.instance_id) for event in owed] == [("*", instance_id)]  # type: ignore[attr-defined]
    events = manager.settle()
    assert [
        task_executor_lost.reason for task_executor_lost in events_of(everyone.TaskExecutorLost, events)
    ] == ["TaskExecutor te-1 is lost: it is silent"]
    assert manager.slots() == {}
    assert "te-1" not in manager.state.workers
    assert manager.state.pool.state_of("te-1") is WorkerState.ABSENT


def test_pending_request_of_lost_slot_waits_again_and_holder_learns_of_loss() -> None:
    manager, instance_id = cluster()
    manager.lost("te-1", instance_id)
    events = manager.settle()
    assert events_of(job_master.FailSlot, events) == []
    manager.register("te-2", 2)
    assert requested_slots(manager.settle()) == [("b", "te-2")]
    manager.request("a2")
    assert requested_slots(manager.settle()) == [("a2", "te-2")]


def test_slots_of_possibly_lost_task_executor_are_not_assigned() -> None:
    manager, instance_id = cluster({"taskmanager.restart-grace": "30 s"})
    manager.lost("te-1", instance_id, exited=True)
    manager.request("c")
    assert requested_slots(manager.wait(29)) == []


def test_loss_of_older_registration_is_ignored() -> None:
    manager, instance_id = cluster()
    manager.register("te-1", 3, report=False)
    manager.lost("te-1", instance_id)
    manager.lost("te-1", None)
    manager.lost("te-9", None)
    assert losses(manager.settle()) == []


def test_ended_process_may_return_within_grace_period_and_keeps_slots() -> None:
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
def test_grace_period_ends_and_silence_has_none(exited: bool, seconds: int) -> None:
    manager, instance_id = cluster({"taskmanager.restart-grace": "5 s"})
    before = manager.now
    manager.lost("te-1", instance_id, exited=exited)
    assert losses(manager.wait(60)) == [("te-1", instance_id)]
    (lost,) = [record for record in manager.log if isinstance(record.body, everyone.TaskExecutorLost)]
    assert lost.header.time - before == seconds * SECOND


def test_worker_that_is_silent_then_ended_is_lost_once() -> None:
    manager, instance_id = cluster()
    manager.lost("te-1", instance_id)
    manager.lost("te-1", instance_id, exited=True)
    assert losses(manager.settle()) == [("te-1", instance_id)]


def test_loss_is_folded_for_any_registration() -> None:
    manager, instance_id = cluster()
    manager.register("te-1", 3)
    body = everyone.TaskExecutorLost(resource_id="te-1", instance_id=instance_id, reason="")
    manager.receive(MANAGER, body, "*")
    assert manager.slots() == {}
    assert not manager.state.workers
    # It lives, and registers again.
    manager.register("te-1", 3)
    assert requested_slots(manager.settle()) == [("b", "te-1")]


def test_loss_of_unknown_worker_changes_nothing() -> None:
    manager, _ = cluster()
    before = manager.state
    manager.receive(MANAGER, everyone.TaskExecutorLost(resource_id="te-9", instance_id=None, reason=""), "*")
    assert manager.state == before


def test_departure_with_slots_of_jobs_is_loss_and_without_is_not() -> None:
    manager, instance_id = cluster()
    manager.register("te-2")
    manager.leave("te-2")
    assert manager.settle() == []
    manager.leave("te-1", "SIGTERM")
    events = manager.settle()
    assert losses(events) == [("te-1", instance_id)]
    assert [event.reason for event in events_of(everyone.TaskExecutorLost, events)] == [
        "TaskExecutor te-1 has left: SIGTERM"
    ]
    assert events_of(job_master.FailSlot, events) == []


def test_new_registration_replaces_old_and_reports_count_for_their_registration() -> None:
    manager, instance_id = cluster()
    manager.register("te-1", 3, report=False)
    old = resource_manager.SendSlotReport(resource_id="te-1", instance_id=instance_id, slots=())
    manager.receive("task_executor/te-1", old)
    assert len(manager.slots()) == 3


def test_report_decided_before_request_does_not_free_requested_slot() -> None:
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
    assert [allocation_id for allocation_id, _ in requested_slots(manager.settle())] == ["b"]


def test_slots_with_gaps_in_numbers_are_removed_with_their_task_executor() -> None:
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
    manager.receive(MANAGER, body, seen=seen)


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
def test_report_contradicts_if_different_except_pending_slots(slots: list[SlotStatus], verdict: bool) -> None:
    manager, _ = cluster()
    assert is_contradiction(manager.state, heartbeat(manager, slots)) is verdict


def test_report_contradicts_only_what_its_sender_had_folded() -> None:
    manager, _ = cluster()
    changed = manager.state.slot_manager.slots.workers["te-1"].changed
    wrong = [status("te-1", 0), *AGREEING[1:]]
    assert not is_contradiction(manager.state, heartbeat(manager, wrong, changed - 1))
    assert is_contradiction(manager.state, heartbeat(manager, wrong, changed))
    assert not is_contradiction(manager.state, heartbeat(manager, wrong, instance_id="another"))


@given(st.lists(st.sampled_from((None, "a", "b", "x")), max_size=4))
def test_report_does_not_contradict_after_correction(held: list[str | None]) -> None:
    manager, _ = cluster()
    slots = [status("te-1", number, allocation_id) for number, allocation_id in enumerate(held)]
    contradict(manager, slots)
    assert not is_contradiction(manager.state, heartbeat(manager, slots))


def test_allocation_missing_at_task_executor_is_lost_for_job() -> None:
    manager, _ = cluster()
    contradict(manager, [status("te-1", 0), *AGREEING[1:]])
    assert manager.slots()[("te-1", 0)] == (FREE, None)
    events = manager.settle()
    assert [(event.allocation_id, event.reason) for event in events_of(job_master.FailSlot, events)] == [
        ("a", "TaskExecutor te-1 does not hold it any more")
    ]
    assert manager.slots()[("te-1", 1)] == (PENDING, "b")


def test_allocation_of_unknown_job_is_freed_by_task_executor() -> None:
    manager, _ = cluster()
    contradict(manager, [*AGREEING[:2], status("te-1", 2, "x", job="gone")])
    assert manager.slots()[("te-1", 2)] == (ALLOCATED, "x")
    owed = [event for event in manager.owed() if isinstance(event.body, task_executor.FreeSlot)]
    assert [(event.recipient, event.body.allocation_id) for event in owed] == [("task_executor/te-1", "x")]  # type: ignore[attr-defined]
    assert "there is no job gone" in events_of(task_executor.FreeSlot, manager.settle())[0].reason


def test_allocation_of_known_job_is_accepted() -> None:
    manager, _ = cluster()
    contradict(manager, [*AGREEING[:2], status("te-1", 2, "x")])
    assert manager.slots()[("te-1", 2)] == (ALLOCATED, "x")
    assert manager.settle() == []


def test_changes_since_contradiction_are_kept() -> None:
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
