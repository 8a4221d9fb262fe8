"""The SlotManager: slots that are registered, free, pending or allocated, and the requests for them.

The reports of a TaskExecutor about its slots are authoritative, and may be old: an event from before a slot was
requested does not take the slot back, and an answer about a slot that the request no longer waits for does not affect
the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from ...schemas.types import SlotStatus
from ..core.resource_profile import ProfileKey, profile_key
from .registered_slots import RegisteredSlots
from .slot_requests import SlotRequest, SlotRequests
from .task_manager_slot import SlotKey, SlotState, TaskManagerSlot

Keep = Callable[[TaskManagerSlot], bool]
"""Whether a slot stays unchanged although its TaskExecutor reports it: the report is older."""

# Cached members: Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md), and these are
# needed often.
_FREE: Final = SlotState.FREE
_PENDING: Final = SlotState.PENDING
_ALLOCATED: Final = SlotState.ALLOCATED


class SlotManager(msgspec.Struct, frozen=True):
    """All slots and requests. Offsets and times are those of the applied event."""

    slots: RegisteredSlots = RegisteredSlots()
    requests: SlotRequests = SlotRequests()

    def report(
        self,
        resource_id: str,
        statuses: Iterable[SlotStatus],
        keep: Keep,
        offset: int,
        time: int,
        *,
        releasable: bool = False,
        excluded: bool = False,
    ) -> SlotManager:
        """Sets exactly these slots for a TaskExecutor. Requests whose slots are missing are unchanged."""
        worker = self.slots.workers.get(resource_id)
        known = worker.slots if worker else {}
        # Slots mostly share one profile, and free slots are equal: each is stored once.
        alike: dict[ProfileKey, TaskManagerSlot] = {}
        slots, requests = {}, self.requests
        for status in statuses:
            number = status.slot_id.slot_number
            before = known.get(number)
            if before is not None and keep(before):
                slots[number] = before
                continue
            key = profile_key(status.resource_profile)
            free = alike.get(key)
            if free is None:
                free = alike[key] = TaskManagerSlot(status.resource_profile, key, changed=offset)
            if status.allocation_id is None:
                slots[number] = free
                continue
            slots[number] = free.transition(_ALLOCATED, offset, status.allocation_id, status.job_id)
            requests = requests.fulfil(status.allocation_id, (resource_id, number))
        registered = self.slots.register(
            resource_id, slots, offset, time, releasable=releasable, excluded=excluded
        )
        return SlotManager(registered, requests)

    def without(self, resource_id: str, time: int) -> SlotManager:
        """Returns the state without the TaskExecutor and its slots; requests are unchanged."""
        return replace(self, slots=self.slots.without(resource_id, time))

    def allocations_of(self, resource_id: str) -> dict[str, SlotKey]:
        """Returns AllocationID -> slot, for a TaskExecutor's slots that are not free."""
        held = ((slot.allocation_id, key) for key, slot in self.slots.slots_of(resource_id))
        return {allocation_id: key for allocation_id, key in held if allocation_id is not None}

    def is_for(self, allocation_id: str, key: SlotKey) -> bool:
        """Returns whether the request, if known, was assigned this slot."""
        request = self.requests.known.get(allocation_id)
        return request is None or request.slot == key

    def request(self, request: SlotRequest) -> SlotManager:
        """Adds a request; a known one changes nothing."""
        return replace(self, requests=self.requests.add(request))

    def pend(self, allocation_id: str, key: SlotKey, job_id: str, offset: int, time: int) -> SlotManager:
        """Records that the slot was requested from its TaskExecutor."""
        slot = self.slots.get(key)
        if slot is None:
            # The TaskExecutor left between the decision and its place in the log: the request continues to wait.
            return self
        slots = self.slots
        if slot.state is _FREE:
            slots = slots.put(key, slot.transition(_PENDING, offset, allocation_id, job_id), time)
        # Otherwise another allocation was found in it meanwhile: the answer will report it.
        return SlotManager(slots, self.requests.ask(allocation_id, key))

    def allocate(self, allocation_id: str, key: SlotKey, offset: int, time: int) -> SlotManager:
        """Records that the TaskExecutor has allocated the slot: the request is fulfilled."""
        slot = self.slots.get(key)
        if slot is None:
            return self
        request = self.requests.known.get(allocation_id)
        job_id = request.job_id if request else slot.job_id if slot.allocation_id == allocation_id else None
        held = slot.transition(_ALLOCATED, offset, allocation_id, job_id)
        return SlotManager(self.slots.put(key, held, time), self.requests.fulfil(allocation_id, key))

    def reject(self, allocation_id: str, key: SlotKey, offset: int, time: int) -> SlotManager:
        """Records that the TaskExecutor refused: another allocation holds the slot, and the TaskExecutor will report
        its end."""
        slots, slot = self.slots, self.slots.get(key)
        if slot is not None and slot.state is _PENDING and slot.allocation_id == allocation_id:
            slots = slots.put(key, slot.transition(_ALLOCATED, offset), time)
        return SlotManager(slots, self.requests.retry(allocation_id, key, offset, time))

    def release(self, key: SlotKey, allocation_id: str, offset: int, time: int) -> SlotManager:
        """Ends the allocation: the slot is free, unless another allocation holds it by now."""
        slots, slot = self.slots, self.slots.get(key)
        held = slot is not None and slot.state is not _FREE
        if slot is not None and held and slot.allocation_id in (None, allocation_id):
            slots = slots.put(key, slot.transition(_FREE, offset), time)
        request = self.requests.known.get(allocation_id)
        if request is None or request.slot != key:
            return replace(self, slots=slots)
        return SlotManager(slots, self.requests.forget(allocation_id))

    def forget(self, allocation_id: str) -> SlotManager:
        """Removes the request."""
        return replace(self, requests=self.requests.forget(allocation_id))
