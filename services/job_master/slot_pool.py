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
from ..core.outbox import Outbox, round_up_time
from ..core.owed_events import OwedFreeSlot
from ..core.resource_profile import ProfileKey, matches, profile_key
from ..core.role import IllegalTransition, Time
from ..core.time_index import FifoTimeIndex
from .owed_events import OwedCancelSlotRequest, OwedRequestSlot
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


# Cached members: Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md), and these are
# needed often.
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
    """Returns the new step. Raises IllegalTransition if the transition is illegal."""
    if after not in NEXT[before]:
        raise IllegalTransition(f"a slot that is {before.value} can't become {after.value}")
    return after


class PendingRequest(msgspec.Struct, frozen=True):
    """A request for a slot, WANTED or PENDING, for the tree at `slot`. An UNKNOWN profile is None."""

    allocation_id: str
    slot: SlotKey
    profile: ResourceProfile | None
    cause: int
    step: SlotStep = SlotStep.WANTED
    replaces: str | None = None
    """The slot of the tree from which its tasks move when this one is there; None: the tree has no slot."""
    is_optional: bool = False
    """Whether the slot is for a higher parallelism (rescale/adaptive_scheduler.py)."""


class AllocatedSlot(msgspec.Struct, frozen=True):
    """A PhysicalSlot that the job holds: ALLOCATED to the tree at `slot`, or AVAILABLE."""

    allocation_id: str
    resource_id: str
    slot_number: int
    profile: ResourceProfile
    step: SlotStep
    slot: SlotKey | None
    cause: int
    """The offset of the last offer; of an AVAILABLE slot, of the event since which it is."""
    replacement: str | None = None
    """The request for a slot to which its tasks move."""


SlotReturn = OwedFreeSlot | OwedCancelSlotRequest


class SlotPool(msgspec.Struct, frozen=True):
    """The slots and requests of a job, by AllocationID. `of_resource`, `wanted` and `idle` are indexes."""

    requests: Map[str, PendingRequest] = Map()
    slots: Map[str, AllocatedSlot] = Map()
    of_resource: Map[str, Map[str, None]] = Map()
    """ResourceID -> its slots."""
    wanted: Outbox[OwedRequestSlot] = Outbox()
    """Requests to send, by the time from which they are sent. None is sent before the JobMaster is registered."""
    idle: FifoTimeIndex = FifoTimeIndex()
    """Available slots, by the time since when they are."""
    profile_numbers: Map[ProfileKey, int] = Map()
    """The profiles that requests have contained, by number: later requests name the number only."""
    generation: int = 0

    @property
    def is_short(self) -> bool:
        """Whether a tree waits for a slot."""
        return any(request.replaces is None for request in self.requests.values())

    def request_replacement(self, request: PendingRequest, old: AllocatedSlot) -> SlotPool:
        """Adds a request for a slot that replaces an allocated one, which stays until then."""
        pool = self.request([request], 0)
        slots = pool.slots.set(old.allocation_id, replace(old, replacement=request.allocation_id))
        return replace(pool, slots=slots, generation=pool.generation + 1)

    def request(self, requests: Iterable[PendingRequest], due: Time) -> SlotPool:
        """Adds requests, to be sent at a time."""
        new = {request.allocation_id: request for request in requests}
        owed = (OwedRequestSlot(request.cause, request.allocation_id) for request in new.values())
        return replace(
            self, requests=self.requests.update(new), wanted=self.wanted.owe_all(owed, due or None)
        )

    def requested(self, allocation_id: str, profile_number: int | None) -> SlotPool:
        """Records that RequestSlot was sent, with the number of its profile."""
        request = self.requests.get(allocation_id)
        if request is None:
            return self
        pool = replace(self, wanted=self.wanted.remove(OwedRequestSlot, allocation_id))
        key = profile_key(request.profile)
        if profile_number is not None and key not in self.profile_numbers:
            pool = replace(pool, profile_numbers=self.profile_numbers.set(key, profile_number))
        if request.step is _PENDING:
            return pool
        said = replace(request, step=check_transition(request.step, _PENDING))
        return replace(pool, requests=pool.requests.set(allocation_id, said))

    def ask_again(self, cause: int) -> SlotPool:
        """Sends RequestSlot again for PENDING requests, which may have been assigned a lost slot."""
        again = [
            OwedRequestSlot(cause, request.allocation_id)
            for request in self.requests.values()
            if request.step is _PENDING and self.wanted.get(OwedRequestSlot, request.allocation_id) is None
        ]
        return replace(self, wanted=self.wanted.owe_all(again)) if again else self

    def accept_offer(self, offers: Iterable[SlotOffer], resource_id: str, cause: int) -> SlotPool:
        """Allocates the slots that a TaskExecutor offers for PENDING requests. Raises KeyError."""
        requests, slots = self.requests.mutate(), self.slots.mutate()
        of_resource, wanted = self.of_resource.get(resource_id, _NO_SLOTS).mutate(), self.wanted
        for offer in offers:
            allocation_id = offer.allocation_id
            request = requests.pop(allocation_id)
            wanted = wanted.remove(OwedRequestSlot, allocation_id)
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
        request = self.requests.get(allocation_id)
        if request is None:
            return self
        slots, old = self.slots, self.slots.get(request.replaces or "")
        if old is not None:
            slots = slots.set(old.allocation_id, replace(old, replacement=None))
        return replace(
            self,
            requests=self.requests.delete(allocation_id),
            slots=slots,
            wanted=self.wanted.remove(OwedRequestSlot, allocation_id),
        )

    def available(self, allocation_id: str, since: Time, cause: int) -> SlotPool:
        """Marks a slot in which nothing runs any more."""
        slot = self.slots.get(allocation_id)
        if slot is None:
            return self
        idle = replace(slot, step=check_transition(slot.step, _AVAILABLE), slot=None, cause=cause)
        return replace(
            self,
            slots=self.slots.set(allocation_id, idle),
            idle=self.idle.add(allocation_id, round_up_time(since)),
        )

    def allocate_available(self, allocation_id: str, slot: SlotKey) -> SlotPool:
        """Reuses an available slot. Raises KeyError."""
        found = self.slots[allocation_id]
        used = replace(found, step=check_transition(found.step, _ALLOCATED), slot=slot)
        idle = self.idle.remove(allocation_id)
        return replace(self, slots=self.slots.set(allocation_id, used), idle=idle)

    def reassign(self, allocation_id: str, slot: SlotKey) -> SlotPool:
        """Assigns an allocated slot to another of the trees that share it."""
        found = self.slots.get(allocation_id)
        if found is None:
            return self
        return replace(self, slots=self.slots.set(allocation_id, replace(found, slot=slot)))

    def idle_slots(self) -> list[AllocatedSlot]:
        """Returns the available slots, the longest idle first."""
        return [self.slots[allocation_id] for allocation_id in self.idle]

    def remove_slot(self, allocation_id: str) -> SlotPool:
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

    def give_back(self, allocation_id: str, reason: str, cause: int) -> tuple[SlotPool, SlotReturn | None]:
        """Removes a slot or request. Returns also FreeSlot, or CancelSlotRequest for a request that was sent."""
        slot, request = self.slots.get(allocation_id), self.requests.get(allocation_id)
        if slot is not None:
            return self.remove_slot(allocation_id), _free_slot(slot, reason, cause)
        owed = None if request is None else _cancel_request(request, reason, cause)
        return self.cancel_request(allocation_id), owed

    def give_back_all(self, reason: str, cause: int) -> tuple[SlotPool, list[SlotReturn]]:
        """Like `give_back`, for everything in the pool."""
        owed = [
            *(_free_slot(slot, reason, cause) for slot in self.slots.values()),
            *(_cancel_request(request, reason, cause) for request in self.requests.values()),
        ]
        return SlotPool(generation=self.generation), [event for event in owed if event is not None]

    def at(self, resource_id: str) -> list[AllocatedSlot]:
        """Returns the job's slots at a TaskExecutor, by number."""
        found = [self.slots[each] for each in self.of_resource.get(resource_id, _NO_SLOTS)]
        return sorted(found, key=lambda slot: (slot.slot_number, slot.allocation_id))


def best_matching(
    available: Iterable[AllocatedSlot], profile: ResourceProfile | None
) -> AllocatedSlot | None:
    """Returns the first available slot that offers enough."""
    return next((each for each in available if matches(each.profile, profile)), None)


def _free_slot(slot: AllocatedSlot, reason: str, cause: int) -> SlotReturn:
    check_transition(slot.step, _RETURNING)
    return OwedFreeSlot(cause, slot.allocation_id, slot.resource_id, reason)


def _cancel_request(request: PendingRequest, reason: str, cause: int) -> SlotReturn | None:
    if request.step is _WANTED:
        return None
    check_transition(request.step, _RETURNING)
    return OwedCancelSlotRequest(cause, request.allocation_id, reason)


_NO_SLOTS: Map[str, None] = Map()
