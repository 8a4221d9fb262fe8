"""The SlotPool: the physical slots that a job has requested, holds, and returns (Flink's SlotPool).

A request is WANTED until it is sent, and PENDING until a TaskExecutor offers a slot for it. The slot is then ALLOCATED
to the tree that requested it. When its last subtask has finished it is AVAILABLE to other trees, and it is freed when
it was idle for a while. AllocationIDs are derived from the job, the slot's place and a generation: a new leader that
repeats a request asks for the same slot, and events about an earlier slot are not mistaken for a later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.types import ResourceProfile, SlotOffer
from ..core.due_index import DueIndex, round_up_time
from ..core.resource_profile import matches
from ..core.role import Time
from .topology import SlotKey


class SlotStep(StrEnum):
    """The states of a slot in the SlotPool."""

    WANTED = "WANTED"
    """RequestSlot is owed."""
    PENDING = "PENDING"
    ALLOCATED = "ALLOCATED"
    AVAILABLE = "AVAILABLE"
    RETURNING = "RETURNING"
    """FreeSlot (or, before an offer, CancelSlotRequest) is owed."""
    GONE = "GONE"


# Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md): these are asked for all the time.
_WANTED: Final = SlotStep.WANTED
_PENDING: Final = SlotStep.PENDING
_ALLOCATED: Final = SlotStep.ALLOCATED
_AVAILABLE: Final = SlotStep.AVAILABLE
_RETURNING: Final = SlotStep.RETURNING
_GONE: Final = SlotStep.GONE


NEXT: Mapping[SlotStep, frozenset[SlotStep]] = {
    SlotStep.WANTED: frozenset({SlotStep.PENDING, SlotStep.GONE}),
    SlotStep.PENDING: frozenset({SlotStep.ALLOCATED, SlotStep.RETURNING, SlotStep.GONE}),
    SlotStep.ALLOCATED: frozenset({SlotStep.AVAILABLE, SlotStep.RETURNING, SlotStep.GONE}),
    SlotStep.AVAILABLE: frozenset({SlotStep.ALLOCATED, SlotStep.RETURNING, SlotStep.GONE}),
    SlotStep.RETURNING: frozenset({SlotStep.GONE}),
    SlotStep.GONE: frozenset(),
}


def check_transition(before: SlotStep, after: SlotStep) -> SlotStep:
    """Returns the new step. Raises ValueError if the transition is illegal."""
    if after not in NEXT[before]:
        raise ValueError(f"a slot that is {before.value} can't become {after.value}")
    return after


class PendingRequest(msgspec.Struct, frozen=True):
    """A request for a slot, WANTED or PENDING, for the tree at `slot`. An UNKNOWN profile is None."""

    allocation_id: str
    slot: SlotKey
    profile: ResourceProfile | None
    cause: int
    step: SlotStep = SlotStep.WANTED


class AllocatedSlot(msgspec.Struct, frozen=True):
    """A PhysicalSlot that the job holds: ALLOCATED to the tree at `slot`, or AVAILABLE."""

    allocation_id: str
    resource_id: str
    slot_number: int
    profile: ResourceProfile
    step: SlotStep
    slot: SlotKey | None
    cause: int
    """The offset of the last offer."""


class SlotReturn(msgspec.Struct, frozen=True):
    """A slot that is returned: a pending FreeSlot to its TaskExecutor, or CancelSlotRequest if it has none."""

    allocation_id: str
    resource_id: str | None
    reason: str
    cause: int


class SlotPool(msgspec.Struct, frozen=True):
    """The slots and requests of a job, by AllocationID. `of_resource`, `wanted` and `idle` are indexes."""

    requests: Map[str, PendingRequest] = Map()
    slots: Map[str, AllocatedSlot] = Map()
    returning: Map[str, SlotReturn] = Map()
    of_resource: Map[str, Map[str, None]] = Map()
    """ResourceID -> its slots."""
    wanted: DueIndex = DueIndex()
    """Requests that RequestSlot is owed for, from which time on; the value is their cause."""
    idle: DueIndex = DueIndex()
    """Available slots, by the time at which they are to be freed; the value is the offset that made them idle."""
    generation: int = 0

    def request(self, requests: Iterable[PendingRequest], due: Time) -> SlotPool:
        """Adds requests, to be sent at a time."""
        new = {request.allocation_id: request for request in requests}
        causes = {request.allocation_id: request.cause for request in new.values()}
        return replace(self, requests=self.requests.update(new), wanted=self.wanted.put_all(causes, due))

    def requested(self, allocation_id: str) -> SlotPool:
        """RequestSlot was sent."""
        request = self.requests.get(allocation_id)
        if request is None:
            return self
        pool = replace(self, wanted=self.wanted.remove(allocation_id))
        if request.step is _PENDING:
            return pool
        said = replace(request, step=check_transition(request.step, _PENDING))
        return replace(pool, requests=pool.requests.set(allocation_id, said))

    def ask_again(self, cause: int) -> SlotPool:
        """PENDING requests may have been assigned a lost slot: RequestSlot is sent again."""
        again = {
            each.allocation_id: cause
            for each in self.requests.values()
            if each.step is _PENDING and each.allocation_id not in self.wanted
        }
        return replace(self, wanted=self.wanted.put_all(again, 0)) if again else self

    def accept_offer(self, offers: Iterable[SlotOffer], resource_id: str, cause: int) -> SlotPool:
        """A TaskExecutor offers slots for PENDING requests: they are allocated. Raises KeyError."""
        requests, slots = self.requests.mutate(), self.slots.mutate()
        of_resource, wanted = self.of_resource.get(resource_id, _NO_SLOTS).mutate(), self.wanted
        for offer in offers:
            allocation_id = offer.allocation_id
            request = requests.pop(allocation_id)
            wanted = wanted.remove(allocation_id)
            slots[allocation_id] = AllocatedSlot(
                allocation_id=allocation_id,
                resource_id=resource_id,
                slot_number=offer.slot_number,
                profile=offer.resource_profile,
                step=check_transition(request.step, _ALLOCATED),
                slot=request.slot,
                cause=cause,
            )
            of_resource[allocation_id] = None
        return replace(
            self,
            requests=requests.finish(),
            slots=slots.finish(),
            wanted=wanted,
            of_resource=self.of_resource.set(resource_id, of_resource.finish()),
        )

    def cancel_request(self, allocation_id: str) -> SlotPool:
        """Removes the request."""
        if allocation_id not in self.requests:
            return self
        return replace(
            self, requests=self.requests.delete(allocation_id), wanted=self.wanted.remove(allocation_id)
        )

    def available(self, allocation_id: str, free_at: Time, cause: int) -> SlotPool:
        """Nothing runs in the slot any more; it is freed at `free_at` unless it is reused."""
        slot = self.slots.get(allocation_id)
        if slot is None:
            return self
        idle = replace(slot, step=check_transition(slot.step, _AVAILABLE), slot=None)
        return replace(
            self,
            slots=self.slots.set(allocation_id, idle),
            idle=self.idle.put(allocation_id, round_up_time(free_at), cause),
        )

    def allocate_available(self, allocation_id: str, slot: SlotKey) -> SlotPool:
        """Reuses an available slot. Raises KeyError."""
        found = self.slots[allocation_id]
        used = replace(found, step=check_transition(found.step, _ALLOCATED), slot=slot)
        return replace(self, slots=self.slots.set(allocation_id, used), idle=self.idle.remove(allocation_id))

    def idle_slots(self) -> list[AllocatedSlot]:
        """The available slots, the longest idle first."""
        return sorted(
            (self.slots[each] for each in self.idle.times),
            key=lambda slot: (self.idle.times[slot.allocation_id], slot.allocation_id),
        )

    def remove_task_executor(self, allocation_id: str) -> SlotPool:
        """Removes a slot that was lost or returned."""
        slot = self.slots.get(allocation_id)
        if slot is None:
            return self
        check_transition(slot.step, _GONE)
        left = self.of_resource[slot.resource_id].delete(allocation_id)
        return replace(
            self,
            slots=self.slots.delete(allocation_id),
            idle=self.idle.remove(allocation_id),
            of_resource=self.of_resource.set(slot.resource_id, left)
            if left
            else self.of_resource.delete(slot.resource_id),
        )

    def give_back(self, allocation_id: str, reason: str, cause: int) -> SlotPool:
        """Removes a slot or request, and sends FreeSlot, or CancelSlotRequest for a request that was sent."""
        slot = self.slots.get(allocation_id)
        if slot is not None:
            check_transition(slot.step, _RETURNING)
            return self.remove_task_executor(allocation_id).returns(
                allocation_id, slot.resource_id, reason, cause
            )
        request = self.requests.get(allocation_id)
        if request is None:
            return self
        pool = self.cancel_request(allocation_id)
        if request.step is _WANTED:
            return pool
        check_transition(request.step, _RETURNING)
        return pool.returns(allocation_id, None, reason, cause)

    def give_back_all(self, reason: str, cause: int) -> SlotPool:
        """As `give_back`, for everything in the pool."""
        returning = {
            slot.allocation_id: SlotReturn(slot.allocation_id, slot.resource_id, reason, cause)
            for slot in self.slots.values()
        }
        for request in self.requests.values():
            if request.step is _PENDING:
                returning[request.allocation_id] = SlotReturn(request.allocation_id, None, reason, cause)
        return SlotPool(returning=self.returning.update(returning), generation=self.generation)

    def returns(self, allocation_id: str, resource_id: str | None, reason: str, cause: int) -> SlotPool:
        """Adds a pending FreeSlot or, without a TaskExecutor, CancelSlotRequest."""
        returning = SlotReturn(allocation_id, resource_id, reason, cause)
        return replace(self, returning=self.returning.set(allocation_id, returning))

    def finish_return(self, allocation_id: str) -> SlotPool:
        """FreeSlot or CancelSlotRequest was sent, or is not needed any more."""
        if allocation_id not in self.returning:
            return self
        return replace(self, returning=self.returning.delete(allocation_id))

    def forget(self, resource_id: str) -> SlotPool:
        """Drops pending returns to this TaskExecutor."""
        returning = self.returning
        for each in self.returning.values():
            if each.resource_id == resource_id:
                returning = returning.delete(each.allocation_id)
        return replace(self, returning=returning) if returning is not self.returning else self

    def at(self, resource_id: str) -> list[AllocatedSlot]:
        """The job's slots at a TaskExecutor, by number."""
        found = [self.slots[each] for each in self.of_resource.get(resource_id, _NO_SLOTS)]
        return sorted(found, key=lambda slot: (slot.slot_number, slot.allocation_id))


def best_matching(
    available: Iterable[AllocatedSlot], profile: ResourceProfile | None
) -> AllocatedSlot | None:
    """The first available slot that offers enough."""
    return next((each for each in available if matches(each.profile, profile)), None)


_NO_SLOTS: Map[str, None] = Map()
