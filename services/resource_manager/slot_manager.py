"""The SlotManager: which slots are registered, free, pending or allocated, and which requests wait for one.

A slot request is known by its AllocationID: sent again, by the same JobMaster or by its successor, it is not
fulfilled twice (document 004). A slot is PENDING from the request to its TaskExecutor until the answer.

What a TaskExecutor says of its slots is what counts, and may be old: a report that was decided before the slot was
asked for does not take the slot back, and an answer about a slot that the request no longer waits for does not
concern the request.
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
    asked: int = -1
    """The offset at which its TaskExecutor was asked for it, while it is PENDING."""


class SlotRequest(msgspec.Struct, frozen=True):
    """A JobMaster's request; `slot` is the slot that it was given, `since` the time at which it was made."""

    allocation_id: str
    job_id: str
    profile: ResourceProfile | None
    cause: int
    since: int
    slot: SlotKey | None = None


class SlotManager(msgspec.Struct, frozen=True):
    """All slots and requests. `numbers`, `free`, `waiting` and `unfulfilled` index them."""

    slots: Map[SlotKey, TaskManagerSlot] = Map()
    numbers: Map[str, tuple[int, ...]] = Map()
    """ResourceID -> the numbers of its slots."""
    free: Map[str, tuple[int, ...]] = Map()
    """ResourceID -> the numbers of its free slots."""
    requests: Map[str, SlotRequest] = Map()
    waiting: Map[str, int] = Map()
    """AllocationID -> offset of the request, or of what made it wait again: no slot was found yet."""
    unfulfilled: Map[str, int] = Map()
    """AllocationID -> time of the request: no TaskExecutor has allocated the slot yet."""
    times: Map[int, int] = Map()
    """Time of request -> how many of `unfulfilled` were made then; requests that are made together share their time."""

    @property
    def oldest(self) -> int | None:
        """The time of the oldest request that is not fulfilled."""
        return min(self.times, default=None)

    def report(self, resource_id: str, statuses: tuple[SlotStatus, ...], decided_at: int) -> SlotManager:
        """The slots of a TaskExecutor were exactly these when it had folded the log up to `decided_at`."""
        manager = self.without(resource_id)
        numbers = tuple(sorted(status.slot_id.slot_number for status in statuses))
        manager = replace(manager, numbers=manager.numbers.set(resource_id, numbers))
        for status in statuses:
            key = (resource_id, status.slot_id.slot_number)
            before = self.slots.get(key)
            if status.allocation_id is not None:
                manager = manager._hold(key, status.resource_profile, status.allocation_id, status.job_id)
            elif before is not None and before.state is SlotState.PENDING and before.asked > decided_at:
                manager = manager._put(key, before)
            else:
                manager = manager._put(key, TaskManagerSlot(status.resource_profile))
        return manager

    def without(self, resource_id: str) -> SlotManager:
        """The TaskExecutor and its slots are gone."""
        slots = self.slots
        for key in self.keys_of(resource_id):
            slots = slots.delete(key)
        free = self.free.delete(resource_id) if resource_id in self.free else self.free
        numbers = self.numbers.delete(resource_id) if resource_id in self.numbers else self.numbers
        return replace(self, slots=slots, free=free, numbers=numbers)

    def keys_of(self, resource_id: str) -> list[SlotKey]:
        """The slots of a TaskExecutor, by number."""
        return [(resource_id, number) for number in self.numbers.get(resource_id, ())]

    def allocations_of(self, resource_id: str) -> dict[str, SlotKey]:
        """AllocationID -> slot, of a TaskExecutor's slots that are not free."""
        held = ((self.slots[key].allocation_id, key) for key in self.keys_of(resource_id))
        return {allocation_id: key for allocation_id, key in held if allocation_id is not None}

    def is_for(self, allocation_id: str, key: SlotKey) -> bool:
        """Whether the request, if it is known, was given this slot and no other."""
        request = self.requests.get(allocation_id)
        return request is None or request.slot == key

    def request(self, request: SlotRequest) -> SlotManager:
        """A request is made; one that is known already changes nothing."""
        if request.allocation_id in self.requests:
            return self
        return replace(
            self,
            requests=self.requests.set(request.allocation_id, request),
            waiting=self.waiting.set(request.allocation_id, request.cause),
        )._unfulfil(request)

    def pend(self, allocation_id: str, key: SlotKey, asked: int) -> SlotManager:
        """The slot's TaskExecutor is asked for it, at offset `asked`."""
        manager = self
        request = self.requests.get(allocation_id)
        if request is not None:
            manager = replace(
                self,
                requests=self.requests.set(allocation_id, replace(request, slot=key)),
                waiting=_without(self.waiting, allocation_id),
            )
        slot = self.slots.get(key)
        if slot is None:
            return manager
        job_id = request.job_id if request else None
        return manager._put(
            key, TaskManagerSlot(slot.profile, SlotState.PENDING, allocation_id, job_id, asked)
        )

    def allocate(self, allocation_id: str, key: SlotKey, job_id: str | None) -> SlotManager:
        """The TaskExecutor has allocated the slot: the request is fulfilled."""
        slot = self.slots.get(key)
        return self if slot is None else self._hold(key, slot.profile, allocation_id, slot.job_id or job_id)

    def reject(self, allocation_id: str, key: SlotKey, cause: int) -> SlotManager:
        """The TaskExecutor does not give the slot: something else holds it, and it will say when that ends."""
        manager = self
        slot = self.slots.get(key)
        if slot is not None and slot.state is SlotState.PENDING and slot.allocation_id == allocation_id:
            manager = self._put(key, TaskManagerSlot(slot.profile, SlotState.ALLOCATED))
        return manager.retry(allocation_id, key, cause)

    def retry(self, allocation_id: str, key: SlotKey, cause: int) -> SlotManager:
        """The slot was refused or is gone: the request, if it was given this one, waits again."""
        request = self.requests.get(allocation_id)
        if request is None or request.slot != key:
            return self
        return replace(
            self,
            requests=self.requests.set(allocation_id, replace(request, slot=None)),
            waiting=self.waiting.set(allocation_id, cause),
        )._unfulfil(request)

    def release(self, key: SlotKey, allocation_id: str) -> SlotManager:
        """The slot is free again, unless another allocation holds it by now."""
        slot = self.slots.get(key)
        if slot is None or slot.allocation_id not in (None, allocation_id):
            return self
        manager = self._put(key, TaskManagerSlot(slot.profile))
        return manager.forget(allocation_id) if self.is_for(allocation_id, key) else manager

    def forget(self, allocation_id: str) -> SlotManager:
        """The request is over."""
        return replace(
            self,
            requests=self.requests.delete(allocation_id) if allocation_id in self.requests else self.requests,
            waiting=_without(self.waiting, allocation_id),
        )._fulfil(allocation_id)

    def _unfulfil(self, request: SlotRequest) -> SlotManager:
        if request.allocation_id in self.unfulfilled:
            return self
        return replace(
            self,
            unfulfilled=self.unfulfilled.set(request.allocation_id, request.since),
            times=self.times.set(request.since, self.times.get(request.since, 0) + 1),
        )

    def _fulfil(self, allocation_id: str) -> SlotManager:
        since = self.unfulfilled.get(allocation_id)
        if since is None:
            return self
        left = self.times[since] - 1
        return replace(
            self,
            unfulfilled=self.unfulfilled.delete(allocation_id),
            times=self.times.set(since, left) if left else self.times.delete(since),
        )

    def _hold(
        self, key: SlotKey, profile: ResourceProfile, allocation_id: str, job_id: str | None
    ) -> SlotManager:
        manager = self._put(key, TaskManagerSlot(profile, SlotState.ALLOCATED, allocation_id, job_id))
        request = self.requests.get(allocation_id)
        if request is None or request.slot not in (None, key):
            return manager
        return replace(
            manager,
            requests=self.requests.set(allocation_id, replace(request, slot=key)),
            waiting=_without(self.waiting, allocation_id),
        )._fulfil(allocation_id)

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


def _without(index: Map[str, int], allocation_id: str) -> Map[str, int]:
    return index.delete(allocation_id) if allocation_id in index else index
