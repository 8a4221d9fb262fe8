"""When each address has to decide again although no event arrives.

A heap with lazy deletion: an entry is valid only while it is the last one that its address set. Moving a deadline costs
O(log n), however many addresses a process leads.
"""

from __future__ import annotations

import heapq

from .role import Time


class DeadlineHeap:
    """At most one deadline for each address."""

    def __init__(self) -> None:
        self._of: dict[str, Time] = {}
        self._heap: list[tuple[Time, str]] = []

    def set(self, role_address: str, deadline: Time | None) -> None:
        """The address's deadline in place of the one that it had; None: it has none."""
        if deadline is None:
            self._of.pop(role_address, None)
        elif self._of.get(role_address) != deadline:
            self._of[role_address] = deadline
            heapq.heappush(self._heap, (deadline, role_address))

    def get(self, role_address: str) -> Time | None:
        """That of one address."""
        return self._of.get(role_address)

    def earliest(self) -> Time | None:
        """The first of them."""
        heap = self._heap
        while heap:
            deadline, role_address = heap[0]
            if self._of.get(role_address) == deadline:
                return deadline
            heapq.heappop(heap)
        return None

    def pop_expired(self, now: Time) -> list[str]:
        """Takes out all that are not later than `now`; returns their addresses, the earliest first."""
        found = []
        while (earliest := self.earliest()) is not None and earliest <= now:
            role_address = heapq.heappop(self._heap)[1]
            del self._of[role_address]
            found.append(role_address)
        return found
