"""The assignment of slots to requests: a pure function, so that a decision can be inspected and repeated.

A slot serves a request whose ResourceProfile it matches. *pack* fills TaskExecutors that are already in use, those with
the fewest free slots first, and takes the largest of the others when it must: the fewest TaskExecutors are in use, and
whole ones stay free. *spread* takes the TaskExecutor with the lowest load, the fraction of its slots that is in use, so
that equal ones differ by one slot at most (Flink's `cluster.evenly-spread-out-slots`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from ..core.resource_profile import ProfileKey, matches
from .registered_slots import RegisteredSlots
from .slot_requests import SlotRequest
from .task_manager_slot import SlotKey

PlacedRequest = tuple[SlotRequest, SlotKey, str]
"""A request, its slot, and the reason of the choice."""
_Rank = tuple[float, int, str]


class Placement(StrEnum):
    """The policy of slot placement."""

    PACK = "pack"
    SPREAD = "spread"


def place(
    slots: RegisteredSlots, queues: Mapping[ProfileKey, Iterable[SlotRequest]], placement: Placement
) -> list[PlacedRequest]:
    """Returns a free slot for each request that matches one.

    `queues` holds the requests by profile, in order; between queues the older request goes first. It reads no more of a
    queue than can be placed, plus one request. Costs O((placed + TaskExecutors with free slots) * log TaskExecutors),
    times the number of requested profiles.
    """
    floor = _FreeSlots(slots, placement)
    heads: list[tuple[int, str, ProfileKey, SlotRequest, Iterator[SlotRequest]]] = []

    def advance(key: ProfileKey, queue: Iterator[SlotRequest]) -> None:
        request = next(queue, None)
        if request is not None and floor.fits(request):
            heapq.heappush(heads, (request.cause, request.allocation_id, key, request, queue))

    for key, requests in queues.items():
        advance(key, iter(requests))
    placed: list[PlacedRequest] = []
    while heads:
        _, _, key, request, queue = heapq.heappop(heads)
        found = floor.take(key)
        if found is not None:
            placed.append((request, *found))
            advance(key, queue)
    return placed


class _FreeSlots:
    """The free slots during a placement: a heap of TaskExecutors for each requested profile."""

    def __init__(self, slots: RegisteredSlots, placement: Placement) -> None:
        self._slots = slots
        self._spread = placement is Placement.SPREAD
        self._uniform = len(slots.profiles) == 1
        self._left: dict[str, int] = {}
        """ResourceID -> the number of remaining free slots, if some were assigned."""
        self._unused: dict[tuple[str, ProfileKey], list[int]] = {}
        self._offers: dict[ProfileKey, tuple[ProfileKey, ...]] = {}
        self._heaps: dict[ProfileKey, list[_Rank]] = {}

    def fits(self, request: SlotRequest) -> bool:
        """Returns whether a slot for such a request may be free; prepares for `take`."""
        key = request.key
        if key not in self._heaps:
            slots = self._slots
            # The smallest sufficient profile goes first: larger ones may be requested later.
            offers = sorted(
                key for key in slots.free if matches(slots.profiles[key].profile, request.profile)
            )
            hosts = dict.fromkeys(resource_id for offer in offers for resource_id in slots.free[offer])
            heap = [self._rank(resource_id) for resource_id in hosts]
            heapq.heapify(heap)
            self._offers[key], self._heaps[key] = tuple(offers), heap
        return bool(self._heaps[key])

    def take(self, key: ProfileKey) -> tuple[SlotKey, str] | None:
        """Takes a slot for a request with this profile; returns it with the reason of the choice."""
        heap = self._heaps[key]
        while heap:
            rank = heapq.heappop(heap)
            resource_id = rank[2]
            if rank != self._rank(resource_id):
                # Its slots have been assigned since: it is in the heap a second time, at its current place.
                continue
            number = self._number(resource_id, key)
            if number is None:
                continue
            reason = self._reason(resource_id)
            worker = self._slots.workers[resource_id]
            self._left[resource_id] = self._left.get(resource_id, len(worker.free)) - 1
            now = self._rank(resource_id)
            for others in self._heaps.values():
                # It is skipped if it has no sufficient slot.
                heapq.heappush(others, now)
            return (resource_id, number), reason
        return None

    def _number(self, resource_id: str, key: ProfileKey) -> int | None:
        for offer in self._offers[key]:
            numbers = self._unused.get((resource_id, offer))
            if numbers is None:
                worker = self._slots.workers[resource_id]
                numbers = [
                    number
                    for number in reversed(worker.free)
                    if self._uniform or worker.slots[number].key == offer
                ]
                self._unused[(resource_id, offer)] = numbers
            if numbers:
                return numbers.pop()
        return None

    def _rank(self, resource_id: str) -> _Rank:
        worker = self._slots.workers[resource_id]
        total = len(worker.slots)
        left = self._left.get(resource_id, -1)
        if left < 0:
            left = len(worker.free)
        if self._spread:
            return (total - left) / total, -total, resource_id
        return (0, left, resource_id) if left < total else (1, -left, resource_id)

    def _reason(self, resource_id: str) -> str:
        worker = self._slots.workers[resource_id]
        total, left = len(worker.slots), self._left.get(resource_id, len(worker.free))
        if self._spread:
            return f"spread: {resource_id} has the lowest load ({total - left} of {total} slots)"
        if left < total:
            return f"pack: {resource_id} is in use and has the fewest free slots ({left} of {total})"
        return f"pack: {resource_id} has the most slots of those that nobody uses ({total})"
