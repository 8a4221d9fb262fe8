"""A heap of the times at which the roles of a process decide again, even if no event arrives.

The heap is lazy: an old entry stays in it and is skipped when it comes to the top. Moving a deadline costs O(log n),
where n is the number of addresses that the process leads.
"""

from __future__ import annotations

import heapq

from .role import Time


class DeadlineHeap:
    """Holds at most one deadline for each address."""

    def __init__(self) -> None:
        self._by_address: dict[str, Time] = {}
        self._heap: list[tuple[Time, str]] = []

    def set(self, role_address: str, deadline: Time | None) -> None:
        """Replaces the deadline of the address; None removes it."""
        if deadline is None:
            self._by_address.pop(role_address, None)
        elif self._by_address.get(role_address) != deadline:
            self._by_address[role_address] = deadline
            heapq.heappush(self._heap, (deadline, role_address))

    def earliest(self) -> Time | None:
        """Returns the earliest deadline, or None."""
        heap = self._heap
        while heap:
            deadline, role_address = heap[0]
            if self._by_address.get(role_address) == deadline:
                return deadline
            heapq.heappop(heap)
        return None

    def pop_expired(self, now: Time) -> list[str]:
        """Removes all deadlines up to and including `now`; returns their addresses, the earliest first."""
        found = []
        while (earliest := self.earliest()) is not None and earliest <= now:
            role_address = heapq.heappop(self._heap)[1]
            del self._by_address[role_address]
            found.append(role_address)
        return found
