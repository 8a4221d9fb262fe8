"""Which slot a request gets: a pure function, so that a decision can be looked at and repeated.

A slot fits a request when it offers at least what is wanted in every dimension (Flink's ResourceProfile.isMatching);
a request without a profile (UNKNOWN) fits any slot. Among those that fit, slots of TaskExecutors with the fewest free
slots go first, so that whole TaskExecutors stay free for as long as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...schemas.types import ResourceProfile
from .slot_manager import SlotKey, SlotManager, SlotRequest

_DIMENSIONS = (
    "cpu_cores",
    "heap_memory_mb",
    "direct_memory_mb",
    "native_memory_mb",
    "network_memory_mb",
    "managed_memory_mb",
)


def fits(offered: ResourceProfile, wanted: ResourceProfile | None) -> bool:
    """Whether a slot with this profile can serve the request."""
    if wanted is None:
        return True
    if any(getattr(offered, dimension) < getattr(wanted, dimension) for dimension in _DIMENSIONS):
        return False
    return all(
        offered.extended_resources.get(name, 0.0) >= amount
        for name, amount in wanted.extended_resources.items()
    )


def place(manager: SlotManager, requests: Iterable[SlotRequest]) -> list[tuple[SlotRequest, SlotKey, str]]:
    """(request, slot, reason) for each request that a free slot fits, in the order of the requests."""
    free = {resource_id: list(numbers) for resource_id, numbers in sorted(manager.free.items())}
    placed = []
    for request in requests:
        key = _first_fit(manager, free, request.profile)
        if key is None:
            continue
        resource_id, number = key
        left = len(free[resource_id])
        free[resource_id].remove(number)
        placed.append((request, key, f"pack: {resource_id} fits and has the fewest free slots ({left})"))
    return placed


def _first_fit(
    manager: SlotManager, free: Mapping[str, list[int]], wanted: ResourceProfile | None
) -> SlotKey | None:
    for resource_id in sorted(
        (each for each in free if free[each]), key=lambda each: (len(free[each]), each)
    ):
        for number in free[resource_id]:
            if fits(manager.slots[(resource_id, number)].profile, wanted):
                return resource_id, number
    return None
