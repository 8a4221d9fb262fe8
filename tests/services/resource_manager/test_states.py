"""Transitions of slots and workers: every pair of states."""

from __future__ import annotations

import itertools

import pytest

from tailrace.services.core.resource_profile import profile_key
from tailrace.services.resource_manager.task_manager_slot import (
    SLOT_TRANSITIONS,
    IllegalSlotTransition,
    SlotState,
    TaskManagerSlot,
)
from tailrace.services.resource_manager.worker_pool import (
    WORKER_TRANSITIONS,
    IllegalWorkerTransition,
    Worker,
    WorkerPool,
    WorkerState,
)

from ..simulated_cluster.cluster import PROFILE

SLOT_PAIRS = {
    ("FREE", "PENDING"),
    ("FREE", "ALLOCATED"),
    ("PENDING", "FREE"),
    ("PENDING", "ALLOCATED"),
    ("ALLOCATED", "FREE"),
    ("ALLOCATED", "ALLOCATED"),
}
WORKER_PAIRS = {
    ("ABSENT", "REQUESTED"),
    ("ABSENT", "REGISTERED"),
    ("REQUESTED", "STARTED"),
    ("REQUESTED", "REGISTERED"),
    ("REQUESTED", "STOPPING"),
    ("REQUESTED", "ABSENT"),
    ("STARTED", "REGISTERED"),
    ("STARTED", "STOPPING"),
    ("STARTED", "ABSENT"),
    ("REGISTERED", "REGISTERED"),
    ("REGISTERED", "RELEASING"),
    ("REGISTERED", "LOST"),
    ("REGISTERED", "STOPPING"),
    ("REGISTERED", "ABSENT"),
    ("RELEASING", "LOST"),
    ("RELEASING", "STOPPING"),
    ("RELEASING", "ABSENT"),
    ("LOST", "REGISTERED"),
    ("LOST", "LOST"),
    ("LOST", "STOPPING"),
    ("LOST", "ABSENT"),
    ("STOPPING", "ABSENT"),
}


def test_tables_are_complete() -> None:
    assert set(SLOT_TRANSITIONS) == set(SlotState)
    assert set(WORKER_TRANSITIONS) == set(WorkerState)


@pytest.mark.parametrize(("before", "after"), [*itertools.product(SlotState, SlotState)])
def test_slot_transitions_follow_table(before: SlotState, after: SlotState) -> None:
    slot = TaskManagerSlot(PROFILE, profile_key(PROFILE), before, changed=1)
    if (before.value, after.value) in SLOT_PAIRS:
        assert slot.transition(after, 2, "a", "j") == TaskManagerSlot(PROFILE, slot.key, after, "a", "j", 2)
    else:
        with pytest.raises(IllegalSlotTransition, match=f"is {before} and|{before} can't become {after}"):
            slot.transition(after, 2, "a", "j")


@pytest.mark.parametrize(("before", "after"), [*itertools.product(WorkerState, WorkerState)])
def test_worker_transitions_follow_table(before: WorkerState, after: WorkerState) -> None:
    pool = in_state(before)

    def step() -> WorkerPool:
        if after is WorkerState.ABSENT:
            return pool.remove("w")
        return pool.put(worker(after))

    if (before.value, after.value) in WORKER_PAIRS:
        assert step().state_of("w") is after
        assert (
            step().remove("w") == WorkerPool() if after is not WorkerState.ABSENT else step() == WorkerPool()
        )
    elif before is after is WorkerState.ABSENT:
        assert step() is pool
    else:
        with pytest.raises(IllegalWorkerTransition, match=f"worker w is {before} and can't become {after}"):
            step()


def worker(state: WorkerState) -> Worker:
    return Worker("w", state, cause=3, since=4, driven=True, number_of_slots=2, expected=2)


def in_state(state: WorkerState) -> WorkerPool:
    """Returns a pool with one worker, brought into the state along the table."""
    ways = {
        WorkerState.ABSENT: (),
        WorkerState.STARTED: (WorkerState.REQUESTED,),
        WorkerState.RELEASING: (WorkerState.REGISTERED,),
        WorkerState.LOST: (WorkerState.REGISTERED,),
        WorkerState.STOPPING: (WorkerState.REQUESTED,),
    }
    pool = WorkerPool()
    for worker_state in (*ways.get(state, ()), state):
        pool = pool if worker_state is WorkerState.ABSENT else pool.put(worker(worker_state))
    return pool
