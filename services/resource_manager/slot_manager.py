"""The SlotManager: which slots are registered, free, pending or allocated, and which requests wait for one.

A slot request is known by its AllocationID: sent again, by the same JobMaster or by its successor, it is not
fulfilled twice (document 004). A slot is PENDING from the request to its TaskExecutor until the answer.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.types import ResourceProfile, SlotStatus

SlotKey = tuple[str, int]
"""(ResourceID, slot number): a SlotID that sorts."""


class SlotState(StrEnum):
    """The states of a TaskManagerSlot."""

    FREE = "FREE"
    PENDING = "PENDING"
    ALLOCATED = "ALLOCATED"


class TaskManagerSlot(msgspec.Struct, frozen=True):
    """A slot as the ResourceManager sees it."""

    profile: ResourceProfile
    state: SlotState = SlotState.FREE
    allocation_id: str | None = None
    job_id: str | None = None


class SlotRequest(msgspec.Struct, frozen=True):
    """A JobMaster's request; `slot` is the slot that it was given, `since` the time at which it was made."""

    allocation_id: str
    job_id: str
    profile: ResourceProfile | None
    cause: int
    since: int
    slot: SlotKey | None = None


class SlotManager(msgspec.Struct, frozen=True):
    """All slots and requests. `free` and `waiting` index them: slots and requests that may be matched."""

    slots: Map[SlotKey, TaskManagerSlot] = Map()
    free: Map[str, tuple[int, ...]] = Map()
    requests: Map[str, SlotRequest] = Map()
    waiting: Map[str, int] = Map()
    """AllocationID -> offset of the request."""

    def report(self, resource_id: str, statuses: tuple[SlotStatus, ...]) -> SlotManager:
        """The slots of a TaskExecutor are exactly these."""
        manager = self.without(resource_id)
        for status in statuses:
            state = SlotState.FREE if status.allocation_id is None else SlotState.ALLOCATED
            slot = TaskManagerSlot(status.resource_profile, state, status.allocation_id, status.job_id)
            manager = manager._put((resource_id, status.slot_id.slot_number), slot)
        return manager

    def without(self, resource_id: str) -> SlotManager:
        """The TaskExecutor and its slots are gone."""
        slots = self.slots
        for key in self.keys_of(resource_id):
            slots = slots.delete(key)
        free = self.free.delete(resource_id) if resource_id in self.free else self.free
        return replace(self, slots=slots, free=free)

    def keys_of(self, resource_id: str) -> list[SlotKey]:
        """The slots of a TaskExecutor, by number; numbers have no gaps."""
        keys: list[SlotKey] = []
        while (key := (resource_id, len(keys))) in self.slots:
            keys.append(key)
        return keys

    def allocations_of(self, resource_id: str) -> dict[str, TaskManagerSlot]:
        """AllocationID -> slot, of a TaskExecutor's slots that are not free."""
        slots = [self.slots[key] for key in self.keys_of(resource_id)]
        return {slot.allocation_id: slot for slot in slots if slot.allocation_id is not None}

    def request(self, request: SlotRequest) -> SlotManager:
        """A request is made; one that is known already changes nothing."""
        if request.allocation_id in self.requests:
            return self
        return replace(
            self,
            requests=self.requests.set(request.allocation_id, request),
            waiting=self.waiting.set(request.allocation_id, request.cause),
        )

    def pend(self, allocation_id: str, key: SlotKey) -> SlotManager:
        """The slot's TaskExecutor is asked for it."""
        manager = self
        request = self.requests.get(allocation_id)
        if request is not None:
            manager = replace(
                self,
                requests=self.requests.set(allocation_id, replace(request, slot=key)),
                waiting=self.waiting.delete(allocation_id) if allocation_id in self.waiting else self.waiting,
            )
        slot = self.slots.get(key)
        if slot is None:
            return manager
        job_id = request.job_id if request else None
        return manager._put(key, TaskManagerSlot(slot.profile, SlotState.PENDING, allocation_id, job_id))

    def allocate(self, allocation_id: str, key: SlotKey, job_id: str | None) -> SlotManager:
        """The TaskExecutor has allocated the slot: the request is fulfilled."""
        slot = self.slots.get(key)
        if slot is None:
            return self
        allocated = TaskManagerSlot(slot.profile, SlotState.ALLOCATED, allocation_id, slot.job_id or job_id)
        return self._put(key, allocated)

    def retry(self, allocation_id: str, cause: int) -> SlotManager:
        """The request's slot was refused or is gone: it waits again."""
        request = self.requests.get(allocation_id)
        if request is None:
            return self
        return replace(
            self,
            requests=self.requests.set(allocation_id, replace(request, slot=None)),
            waiting=self.waiting.set(allocation_id, cause),
        )

    def release(self, key: SlotKey, allocation_id: str) -> SlotManager:
        """The slot is free again, unless another allocation holds it by now."""
        slot = self.slots.get(key)
        if slot is None or slot.allocation_id not in (None, allocation_id):
            return self
        return self._put(key, TaskManagerSlot(slot.profile)).forget(allocation_id)

    def forget(self, allocation_id: str) -> SlotManager:
        """The request is over."""
        return replace(
            self,
            requests=self.requests.delete(allocation_id) if allocation_id in self.requests else self.requests,
            waiting=self.waiting.delete(allocation_id) if allocation_id in self.waiting else self.waiting,
        )

    def _put(self, key: SlotKey, slot: TaskManagerSlot) -> SlotManager:
        resource_id, number = key
        before = self.free.get(resource_id, ())
        after = tuple(each for each in before if each != number)
        if slot.state is SlotState.FREE:
            after = tuple(sorted((*after, number)))
        free = self.free
        if after:
            free = free.set(resource_id, after)
        elif resource_id in free:
            free = free.delete(resource_id)
        return replace(self, slots=self.slots.set(key, slot), free=free)
