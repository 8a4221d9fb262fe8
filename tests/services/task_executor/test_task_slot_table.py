"""TaskSlotTable: the effect of each step on a slot in each state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.services.core.role import IllegalTransition
from tailrace.services.task_executor.task_slot_table import (
    TRANSITIONS,
    TaskSlot,
    TaskSlotState,
    TaskSlotTable,
)

from ..simulated_cluster.cluster import PROFILE

FREE, ALLOCATED, ACTIVE, RELEASING = TaskSlotState


@pytest.mark.parametrize("before", TaskSlotState)
@pytest.mark.parametrize("after", TaskSlotState)
def test_slot_transitions_follow_table(before: TaskSlotState, after: TaskSlotState) -> None:
    slot = TaskSlot(0, PROFILE, before)
    if after in TRANSITIONS[before]:
        assert slot.transition(after).state is after
    else:
        with pytest.raises(
            IllegalTransition, match=f"slot 0 is {before.value} and can't become {after.value}"
        ):
            slot.transition(after)


def test_every_state_is_in_table_and_leads_to_every_other() -> None:
    assert set(TRANSITIONS) == set(TaskSlotState)
    for state in TaskSlotState:
        reached = {state}
        for _ in TaskSlotState:
            reached |= {after for before in reached for after in TRANSITIONS[before]}
        assert reached == set(TaskSlotState)


def table(state: TaskSlotState, *, busy: bool = False) -> TaskSlotTable:
    """Returns a table with slot 0 in a state, held by allocation "a" of job "j" unless it is free; `busy`: with a
    task."""
    slots = TaskSlotTable().with_size(1, PROFILE)
    if state is FREE:
        return slots
    held = slots.allocate(0, "j", "a")
    assert held is not None
    slots = held.wait("a", 7)
    if busy:
        slots = slots.add_task("a", "t") or slots
    if state is not ALLOCATED:
        slots = slots.activate("a")
    return slots.release("a") if state is RELEASING else slots


STEPS: dict[str, Callable[[TaskSlotTable], TaskSlotTable | None]] = {
    "allocate": lambda slots: slots.allocate(0, "j2", "b"),
    "wait": lambda slots: slots.wait("a", 9),
    "activate": lambda slots: slots.activate("a"),
    "release": lambda slots: slots.release("a"),
    "vacate": lambda slots: slots.free_if_empty("a"),
    "add_task": lambda slots: slots.add_task("a", "t2"),
}
BECOMES: dict[tuple[TaskSlotState, str], TaskSlotState | None] = {
    (FREE, "allocate"): ALLOCATED,
    (ALLOCATED, "allocate"): None,
    (ACTIVE, "allocate"): None,
    (RELEASING, "allocate"): None,
    (ALLOCATED, "activate"): ACTIVE,
    (ALLOCATED, "release"): RELEASING,
    (ACTIVE, "release"): RELEASING,
    (RELEASING, "vacate"): FREE,
    (FREE, "add_task"): None,
    (RELEASING, "add_task"): None,
}
"""What a step makes of a slot; None: refused. In all other states it stays as it is."""


@pytest.mark.parametrize("before", TaskSlotState)
@pytest.mark.parametrize("step", STEPS)
def test_step_moves_slot_to_next_state(before: TaskSlotState, step: str) -> None:
    slots = STEPS[step](table(before))
    assert (None if slots is None else slots.slots[0].state) == BECOMES.get((before, step), before)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("before", TaskSlotState)
def test_allocated_slot_waits_for_its_job_master(before: TaskSlotState, step: str) -> None:
    slots = STEPS[step](table(before))
    if slots is not None and step != "allocate":
        assert slots.waiting.first == (("a", 7) if slots.slots[0].state is ALLOCATED else None)


def test_slot_with_running_task_is_not_free() -> None:
    slots = table(RELEASING, busy=True)
    assert slots.free_if_empty("a") is slots
    (status,) = slots.report("te")
    assert (status.allocation_id, status.job_id) == ("a", "j")
    slots = slots.remove_task("a", "t").free_if_empty("a")
    assert slots == TaskSlotTable().with_size(1, PROFILE)


def test_slot_that_does_not_exist_is_not_allocated() -> None:
    assert table(FREE).allocate(1, "j", "a") is None


def test_resized_table_keeps_held_slots() -> None:
    slots = TaskSlotTable().with_size(3, PROFILE).allocate(1, "j", "a")
    assert slots is not None
    assert sorted(slots.with_size(1, PROFILE).slots) == [0, 1]
    assert sorted(slots.with_size(5, PROFILE).slots) == [0, 1, 2, 3, 4]
    assert [slot_status.allocation_id for slot_status in slots.report("te")] == [None, "a", None]
