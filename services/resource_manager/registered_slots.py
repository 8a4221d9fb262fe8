"""The slots of all registered TaskExecutors, with the indexes for cheap placement and queries.

Slots are stored by TaskExecutor, free ones are counted by profile and TaskExecutor: a change of a slot touches only the
entries of its TaskExecutor, however many others there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from immutables import Map
from msgspec.structs import replace

from ...schemas.types import ResourceProfile
from ..core.immutable_maps import delete_key
from ..core.resource_profile import ProfileKey
from ..core.time_index import FifoTimeIndex
from .task_manager_slot import SlotKey, SlotState, TaskManagerSlot

# Cached members: Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md), and these are
# needed often.
_FREE: Final = SlotState.FREE


class WorkerSlots(msgspec.Struct, frozen=True):
    """The slots of a TaskExecutor by number; `free`: the numbers of free slots, in order."""

    slots: Map[int, TaskManagerSlot]
    free: tuple[int, ...]
    changed: int
    """The offset of the last event that changed the ResourceManager's state of any of them."""
    releasable: bool = False
    """Whether the TaskExecutor is stopped when none of its slots has been used for a while."""
    withdrawn: bool = False
    """Whether its free slots must not be assigned: it may be lost."""
    excluded: bool = False
    """Whether its free slots must not be assigned: it is quarantined."""

    @property
    def is_assignable(self) -> bool:
        """Whether its free slots may be assigned."""
        return not (self.withdrawn or self.excluded)

    @property
    def idle(self) -> bool:
        """Whether all slots are free."""
        return len(self.free) == len(self.slots)


class RegisteredProfile(msgspec.Struct, frozen=True):
    """The number of slots with a profile."""

    profile: ResourceProfile
    count: int


class RegisteredSlots(msgspec.Struct, frozen=True):
    """The slots of all TaskExecutors. The fields after `workers` are indexes."""

    workers: Map[str, WorkerSlots] = Map()
    profiles: Map[ProfileKey, RegisteredProfile] = Map()
    free: Map[ProfileKey, Map[str, int]] = Map()
    """Profile -> ResourceID -> the number of free slots of that profile that may be assigned."""
    count: int = 0
    free_count: int = 0
    """The number of FREE slots, including those that must not be assigned."""
    idle: FifoTimeIndex = FifoTimeIndex()
    """Releasable TaskExecutors whose slots are all free, by the time since when they are."""
    shrunk: int = 0
    """The time at which slots were last lost."""
    excluded: Map[str, None] = Map()
    """The TaskExecutors that are quarantined."""

    def get(self, key: SlotKey) -> TaskManagerSlot | None:
        """Returns the slot, if it is registered."""
        worker = self.workers.get(key[0])
        return None if worker is None else worker.slots.get(key[1])

    def slots_of(self, resource_id: str) -> Iterator[tuple[SlotKey, TaskManagerSlot]]:
        """Returns the slots of a TaskExecutor, by number."""
        worker = self.workers.get(resource_id)
        if worker is not None:
            for number in sorted(worker.slots):
                yield (resource_id, number), worker.slots[number]

    def total(self) -> Iterator[tuple[SlotKey, TaskManagerSlot]]:
        """Returns all slots, by TaskExecutor and number."""
        for resource_id in sorted(self.workers):
            yield from self.slots_of(resource_id)

    def put(self, key: SlotKey, slot: TaskManagerSlot, time: int) -> RegisteredSlots:
        """Returns the slots with a changed state of a registered slot; its profile stays."""
        resource_id, number = key
        before = self.workers[resource_id]
        was_free = before.slots[number].state is _FREE
        is_free = slot.state is _FREE
        numbers = before.free
        if was_free and not is_free:
            place = bisect_left(numbers, number)
            numbers = numbers[:place] + numbers[place + 1 :]
        elif is_free and not was_free:
            place = bisect_left(numbers, number)
            numbers = (*numbers[:place], number, *numbers[place:])
        after = WorkerSlots(
            before.slots.set(number, slot),
            numbers,
            slot.changed,
            before.releasable,
            before.withdrawn,
            before.excluded,
        )
        workers = self.workers.set(resource_id, after)
        if was_free == is_free:
            return replace(self, workers=workers)
        change = 1 if is_free else -1
        return replace(
            self,
            workers=workers,
            free=_update_count(self.free, slot.key, resource_id, change)
            if before.is_assignable
            else self.free,
            free_count=self.free_count + change,
            idle=_update_idle(self.idle, resource_id, after, time) if before.releasable else self.idle,
        )

    def register(
        self,
        resource_id: str,
        slots: Mapping[int, TaskManagerSlot],
        changed: int,
        time: int,
        *,
        releasable: bool,
        excluded: bool = False,
    ) -> RegisteredSlots:
        """Returns the slots with exactly these slots for a TaskExecutor."""
        before = self.workers.get(resource_id)
        others = self.without(resource_id, time)
        free = tuple(sorted(number for number, slot in slots.items() if slot.state is _FREE))
        worker = WorkerSlots(Map(slots), free, changed, releasable, excluded=excluded)
        profiles = others.profiles
        for slot in slots.values():
            known = profiles.get(slot.key)
            count = known.count + 1 if known else 1
            profiles = profiles.set(slot.key, RegisteredProfile(slot.profile, count))
        index = others.free
        for number in () if excluded else free:
            index = _update_count(index, slots[number].key, resource_id, 1)
        return replace(
            others,
            workers=others.workers.set(resource_id, worker),
            profiles=profiles,
            free=index,
            count=others.count + len(slots),
            free_count=others.free_count + len(free),
            idle=_update_idle(others.idle, resource_id, worker, time) if releasable else others.idle,
            shrunk=time if before is not None and len(slots) < len(before.slots) else self.shrunk,
            excluded=others.excluded.set(resource_id, None) if excluded else others.excluded,
        )

    def without(self, resource_id: str, time: int) -> RegisteredSlots:
        """Returns the slots without the TaskExecutor and its slots."""
        worker = self.workers.get(resource_id)
        if worker is None:
            return self
        others = self.withdraw(resource_id)
        profiles = self.profiles
        for slot in worker.slots.values():
            known = profiles[slot.key]
            left = known.count - 1
            profiles = (
                profiles.set(slot.key, replace(known, count=left)) if left else profiles.delete(slot.key)
            )
        return replace(
            others,
            workers=self.workers.delete(resource_id),
            profiles=profiles,
            count=self.count - len(worker.slots),
            free_count=self.free_count - len(worker.free),
            shrunk=time,
            excluded=delete_key(self.excluded, resource_id),
        )

    def withdraw(self, resource_id: str) -> RegisteredSlots:
        """Returns the slots so that none of the TaskExecutor is allocated until it has reported its slots again."""
        worker = self.workers.get(resource_id)
        if worker is None or worker.withdrawn:
            return self
        slots = self._replace(resource_id, replace(worker, withdrawn=True, releasable=False))
        return replace(slots, idle=self.idle.remove(resource_id))

    def exclude(self, resource_id: str, *, is_excluded: bool) -> RegisteredSlots:
        """Returns the slots after the quarantine of a TaskExecutor has begun or ended."""
        worker = self.workers.get(resource_id)
        if worker is None or worker.excluded == is_excluded:
            return self
        slots = self._replace(resource_id, replace(worker, excluded=is_excluded))
        excluded = self.excluded
        excluded = excluded.set(resource_id, None) if is_excluded else excluded.delete(resource_id)
        return replace(slots, excluded=excluded)

    def _replace(self, resource_id: str, after: WorkerSlots) -> RegisteredSlots:
        """Returns the slots with a TaskExecutor whose free slots may or may not be assigned now."""
        before, free = self.workers[resource_id], self.free
        change = after.is_assignable - before.is_assignable
        for number in before.free if change else ():
            free = _update_count(free, before.slots[number].key, resource_id, change)
        return replace(self, workers=self.workers.set(resource_id, after), free=free)


def _update_idle(idle: FifoTimeIndex, resource_id: str, worker: WorkerSlots, time: int) -> FifoTimeIndex:
    return idle.add(resource_id, time) if worker.idle else idle.remove(resource_id)


def _update_count(
    free: Map[ProfileKey, Map[str, int]], key: ProfileKey, resource_id: str, change: int
) -> Map[ProfileKey, Map[str, int]]:
    counts: Map[str, int] | None = free.get(key)
    if counts is None:
        counts = Map()
    count = counts.get(resource_id, 0) + change
    counts = counts.set(resource_id, count) if count else counts.delete(resource_id)
    return free.set(key, counts) if counts else free.delete(key)
