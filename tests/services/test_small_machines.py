"""The small machines that roles are made of, one table each."""

from __future__ import annotations

import pytest

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
