"""The small machines that roles are made of, one table each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas.types import ResourceProfile, SlotID, SlotStatus
from tailrace.services.resource_manager.placement import fits, place
from tailrace.services.resource_manager.slot_manager import SlotManager, SlotRequest, SlotState
from tailrace.services.task_executor.task_slot_table import TaskSlotState, TaskSlotTable

from .scenarios import SCENARIOS
from .simulation import PROFILE

# TaskSlotTable: how to bring slot 0 into each state, and what each step makes of it (None: refused).

FREE, ALLOCATED, ACTIVE, RELEASING = TaskSlotState


def table(state: TaskSlotState, *, busy: bool = False) -> TaskSlotTable:
    """Slot 0 in a state, held by allocation "a" of job "j" unless it is free; `busy` with a task."""
    slots = TaskSlotTable().sized(1, PROFILE)
    if state is FREE:
        return slots
    held = slots.allocate(0, "j", "a")
    assert held is not None
    slots = held
    if busy:
        slots = slots.add_task("a", "t") or slots
    if state is not ALLOCATED:
        slots = slots.activate("a")
    return slots.release("a") if state is RELEASING else slots


STEPS = {
    "allocate": lambda slots: slots.allocate(0, "j2", "b"),
    "activate": lambda slots: slots.activate("a"),
    "release": lambda slots: slots.release("a"),
    "vacate": lambda slots: slots.vacate("a"),
    "add_task": lambda slots: slots.add_task("a", "t2"),
}
TRANSITIONS = [
    (FREE, "allocate", ALLOCATED),
    (ALLOCATED, "allocate", None),
    (ACTIVE, "allocate", None),
    (RELEASING, "allocate", None),
    (FREE, "activate", FREE),
    (ALLOCATED, "activate", ACTIVE),
    (ACTIVE, "activate", ACTIVE),
    (RELEASING, "activate", RELEASING),
    (FREE, "release", FREE),
    (ALLOCATED, "release", RELEASING),
    (ACTIVE, "release", RELEASING),
    (RELEASING, "release", RELEASING),
    (FREE, "vacate", FREE),
    (ALLOCATED, "vacate", ALLOCATED),
    (ACTIVE, "vacate", ACTIVE),
    (RELEASING, "vacate", FREE),
    (FREE, "add_task", None),
    (ALLOCATED, "add_task", ALLOCATED),
    (ACTIVE, "add_task", ACTIVE),
    (RELEASING, "add_task", None),
]


@pytest.mark.parametrize(("before", "step", "after"), TRANSITIONS)
def test_a_task_slot_goes_from_state_to_state(
    before: TaskSlotState, step: str, after: TaskSlotState | None
) -> None:
    slots = STEPS[step](table(before))
    assert (None if slots is None else slots.slots[0].state) == after


def test_the_table_of_task_slots_is_complete() -> None:
    assert {(before, step) for before, step, _ in TRANSITIONS} == {
        (state, step) for state in TaskSlotState for step in STEPS
    }


def test_a_slot_is_not_free_while_a_task_runs_in_it() -> None:
    slots = table(RELEASING, busy=True)
    assert slots.vacate("a") is slots
    slots = slots.remove_task("a", "t").vacate("a")
    assert slots.slots[0].state is FREE
    assert (dict(slots.allocated), dict(slots.per_job)) == ({}, {})


def test_a_slot_that_does_not_exist_is_not_allocated() -> None:
    assert table(FREE).allocate(1, "j", "a") is None


def test_a_table_that_is_sized_anew_keeps_what_is_held() -> None:
    slots = TaskSlotTable().sized(3, PROFILE).allocate(1, "j", "a")
    assert slots is not None
    assert sorted(slots.sized(1, PROFILE).slots) == [0, 1]
    assert sorted(slots.sized(5, PROFILE).slots) == [0, 1, 2, 3, 4]
    assert [each.allocation_id for each in slots.report("te")] == [None, "a", None]


# SlotManager

KEY, OTHER = ("te-1", 0), ("te-2", 0)


def request(allocation_id: str = "a", cause: int = 10) -> SlotRequest:
    return SlotRequest(allocation_id=allocation_id, job_id="j", profile=None, cause=cause, since=1)


def reported(*slots: tuple[str, int]) -> SlotManager:
    """Free slots."""
    manager = SlotManager()
    for resource_id in dict.fromkeys(each for each, _ in slots):
        numbers = [number for each, number in slots if each == resource_id]
        manager = manager.report(resource_id, tuple(status(resource_id, number) for number in numbers), 0)
    return manager


def status(resource_id: str, number: int, allocation_id: str | None = None) -> SlotStatus:
    slot_id = SlotID(resource_id=resource_id, slot_number=number)
    job_id = None if allocation_id is None else "j"
    return SlotStatus(slot_id=slot_id, resource_profile=PROFILE, allocation_id=allocation_id, job_id=job_id)


PENDING = reported(KEY, OTHER).request(request()).pend("a", KEY, 11)
GIVEN = PENDING.allocate("a", KEY, "j")


def test_a_request_waits_is_asked_for_and_fulfilled() -> None:
    waiting = reported(KEY).request(request())
    assert (set(waiting.waiting), set(waiting.unfulfilled)) == ({"a"}, {"a"})
    assert (set(PENDING.waiting), set(PENDING.unfulfilled)) == (set(), {"a"})
    assert (PENDING.slots[KEY].state, dict(PENDING.free)) == (SlotState.PENDING, {"te-2": (0,)})
    assert (GIVEN.slots[KEY].state, set(GIVEN.unfulfilled)) == (SlotState.ALLOCATED, set())
    assert (waiting.oldest, PENDING.oldest, GIVEN.oldest) == (waiting.requests["a"].since,) * 2 + (None,)


def test_a_request_that_is_made_again_changes_nothing() -> None:
    assert PENDING.request(request(cause=20)) is PENDING
    assert GIVEN.request(request(cause=20)) is GIVEN


def test_a_slot_that_was_refused_is_held_by_something_else_and_the_request_waits_again() -> None:
    refused = PENDING.reject("a", KEY, 12)
    assert refused.slots[KEY].state is SlotState.ALLOCATED
    assert set(refused.waiting) == {"a"}
    assert refused.release(KEY, "whatever held it").slots[KEY].state is SlotState.FREE


def test_a_refusal_that_comes_late_does_not_concern_the_request_any_more() -> None:
    elsewhere = PENDING.retry("a", KEY, 12).pend("a", OTHER, 13)
    late = elsewhere.reject("a", KEY, 14)
    assert late.requests["a"].slot == OTHER
    assert not late.waiting
    assert late.release(KEY, "a").requests["a"].slot == OTHER


def test_a_report_that_was_decided_before_the_slot_was_asked_for_does_not_take_it_back() -> None:
    assert PENDING.report("te-1", (status("te-1", 0),), 10).slots[KEY].state is SlotState.PENDING
    assert PENDING.report("te-1", (status("te-1", 0),), 11).slots[KEY].state is SlotState.FREE


def test_a_report_of_an_allocation_fulfils_the_request_that_waits_for_it() -> None:
    manager = PENDING.retry("a", KEY, 12).report("te-1", (status("te-1", 0, "a"),), 12)
    assert (set(manager.waiting), set(manager.unfulfilled)) == (set(), set())
    assert manager.requests["a"].slot == KEY


def test_a_slot_is_released_by_the_allocation_that_holds_it_only() -> None:
    assert GIVEN.release(KEY, "b") is GIVEN
    free = GIVEN.release(KEY, "a")
    assert (free.slots[KEY].state, dict(free.requests)) == (SlotState.FREE, {})


def test_slots_whose_numbers_have_gaps_are_all_forgotten_with_their_task_executor() -> None:
    manager = SlotManager().report("te-1", (status("te-1", 0), status("te-1", 2, "a")), 0)
    assert manager.allocations_of("te-1") == {"a": ("te-1", 2)}
    assert manager.without("te-1") == SlotManager()


# Placement

DIMENSIONS = [name for name in ResourceProfile.__struct_fields__ if name != "extended_resources"]


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_slot_fits_if_it_offers_enough_of_everything(dimension: str) -> None:
    assert fits(PROFILE, None)
    assert fits(PROFILE, PROFILE)
    more = replace(PROFILE, **{dimension: getattr(PROFILE, dimension) + 1})
    assert fits(more, PROFILE)
    assert not fits(PROFILE, more)


def test_a_slot_fits_if_it_has_the_extended_resources() -> None:
    wanted = replace(PROFILE, extended_resources={"gpu": 1.0})
    assert not fits(PROFILE, wanted)
    assert not fits(replace(PROFILE, extended_resources={"gpu": 0.5}), wanted)
    assert fits(replace(PROFILE, extended_resources={"gpu": 2.0, "fpga": 1.0}), wanted)


SLOTS = st.sets(st.tuples(st.sampled_from(["te-1", "te-2", "te-3"]), st.integers(0, 3)), max_size=8)


@given(slots=SLOTS, count=st.integers(0, 10))
def test_placement_gives_each_slot_once_and_as_many_as_there_are(
    slots: set[tuple[str, int]], count: int
) -> None:
    manager = reported(*sorted(slots))
    requests = [request(str(number), number) for number in range(count)]
    placed = place(manager, requests)
    keys = [key for _, key, _ in placed]
    assert len(keys) == len(set(keys)) == min(count, len(slots))
    assert set(keys) <= slots
    assert [each for each, _, _ in placed] == requests[: len(placed)]
    assert place(manager, requests) == placed


def test_placement_packs_so_that_whole_task_executors_stay_free() -> None:
    manager = reported(("te-1", 0), ("te-1", 1), ("te-1", 2), ("te-2", 0), ("te-2", 1))
    placed = place(manager, [request(str(number), number) for number in range(3)])
    assert [key for _, key, _ in placed] == [("te-2", 0), ("te-2", 1), ("te-1", 0)]


def test_a_request_that_fits_nowhere_does_not_keep_others_waiting() -> None:
    large = replace(request("large"), profile=replace(PROFILE, cpu_cores=64.0))
    placed = place(reported(KEY), [large, request("small", 11)])
    assert [each.allocation_id for each, _, _ in placed] == ["small"]


# The status of a job, as its clients hear of it

STATUSES = {
    "a_job_finishes": "CREATED RUNNING FINISHED",
    "a_job_is_cancelled_during_its_deployment": "CREATED RUNNING CANCELLING CANCELED",
    "a_job_wants_more_slots_than_there_are": "CREATED FAILING FAILED",
    "a_task_fails": "CREATED RUNNING FAILING FAILED",
    "a_task_executor_restarts_under_its_old_resource_id": "CREATED RUNNING FINISHED",
    "a_cluster_shuts_down_with_a_running_job": "CREATED RUNNING CANCELLING CANCELED",
}


@pytest.mark.parametrize(("story", "statuses"), STATUSES.items())
def test_clients_hear_of_every_status_of_a_job_in_order(story: str, statuses: str) -> None:
    said = SCENARIOS[story]().said("JobStatusChanged")
    assert [record.body.status for record in said] == statuses.split()  # type: ignore[attr-defined]
