"""SlotPool under any sequence of operations: an allocation is in one place, and moves as its table says."""

from __future__ import annotations

from collections.abc import Collection

from example_count import example_count
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace.schemas.types import SlotOffer
from tailrace.services.job_master.slot_pool import NEXT, PendingRequest, SlotPool, SlotStep

from ..simulated_cluster.cluster import PROFILE
from .invariants import check_pool

RESOURCE_IDS = st.sampled_from(("te-1", "te-2"))


def step_of(pool: SlotPool, allocation_id: str, returning: Collection[str] = ()) -> SlotStep:
    """Returns the place of the allocation."""
    if allocation_id in returning:
        return SlotStep.RETURNING
    result = pool.slots.get(allocation_id) or pool.requests.get(allocation_id)
    return SlotStep.GONE if result is None else result.step


class Pools(RuleBasedStateMachine):
    """Every rule takes any allocation that ever existed, even if that makes no sense."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = SlotPool()
        self.steps: dict[str, SlotStep] = {}
        self.returning: set[str] = set()

    def any(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.steps) or ["unknown"]))

    @rule(due=st.integers(0, 5))
    def want(self, due: int) -> None:
        allocation_id = f"a{len(self.steps):03}"
        request = PendingRequest(allocation_id, ("default", len(self.steps)), None, 1)
        self.pool = self.pool.request([request], due)
        self.steps[allocation_id] = SlotStep.WANTED

    @rule(data=st.data(), number=st.none() | st.integers(0, 3))
    def requested(self, data: st.DataObject, number: int | None) -> None:
        self.pool = self.pool.requested(self.any(data), number)

    @rule()
    def ask_again(self) -> None:
        self.pool = self.pool.ask_again(3)

    @rule(data=st.data(), resource_id=RESOURCE_IDS)
    def offered(self, data: st.DataObject, resource_id: str) -> None:
        allocation_id = self.any(data)
        if step_of(self.pool, allocation_id) is SlotStep.PENDING:
            offer = SlotOffer(allocation_id=allocation_id, slot_number=0, resource_profile=PROFILE)
            self.pool = self.pool.accept_offer([offer], resource_id, 4)
            assert self.pool.slots[allocation_id].slot is not None

    @rule(data=st.data(), since=st.integers(0, 10**6))
    def available(self, data: st.DataObject, since: int) -> None:
        allocation_id = self.any(data)
        if step_of(self.pool, allocation_id) is SlotStep.ALLOCATED:
            self.pool = self.pool.available(allocation_id, since, 5)

    @rule()
    def allocate_available(self) -> None:
        idle = self.pool.idle_slots()
        if idle:
            first = self.pool.idle.first
            assert first is not None
            assert first[0] == idle[0].allocation_id
            self.pool = self.pool.allocate_available(idle[0].allocation_id, ("default", 99))

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        self.pool, owed = self.pool.give_back(self.any(data), "not needed", 6)
        if owed is not None:
            self.returning.add(owed.allocation_id)

    @rule()
    def give_back_all(self) -> None:
        self.pool, owed = self.pool.give_back_all("over", 7)
        self.returning |= {event.allocation_id for event in owed}
        assert not self.pool.slots
        assert not self.pool.requests

    @rule(data=st.data())
    def returned(self, data: st.DataObject) -> None:
        self.returning.discard(self.any(data))

    @rule(data=st.data())
    def gone(self, data: st.DataObject) -> None:
        self.pool = self.pool.remove_slot(self.any(data))

    @invariant()
    def pool_is_consistent(self) -> None:
        check_pool(self.pool, self.returning)
        for resource_id in ("te-1", "te-2"):
            at = self.pool.at(resource_id)
            assert {slot.allocation_id for slot in at} == {
                slot.allocation_id for slot in self.pool.slots.values() if slot.resource_id == resource_id
            }

    @invariant()
    def every_allocation_has_moved_along_the_table(self) -> None:
        for allocation_id, before in self.steps.items():
            after = step_of(self.pool, allocation_id, self.returning)
            assert after is before or after in NEXT[before], f"{allocation_id}: {before} -> {after}"
            self.steps[allocation_id] = after


Pools.TestCase.settings = settings(max_examples=example_count(30), deadline=None)
test_pools = Pools.TestCase
