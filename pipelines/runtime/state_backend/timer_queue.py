"""The timers of a table, in the order of (time, canonical form of the key)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Any, Protocol

from ...graph.key_groups import key_bytes

Timer = tuple[int, Any]
"""Time (ms) and key."""


class TimerQueue(Protocol):
    """A set of timers that knows the first one. For one thread."""

    def __len__(self) -> int: ...

    def __contains__(self, timer: Timer, /) -> bool: ...

    def __iter__(self) -> Iterator[Timer]: ...

    def read_section(self, key_groups: range) -> Iterator[Timer]:
        """Yields the timers of keys with these key groups; only if the store is on disk."""

    def add(self, timer: Timer) -> bool:
        """Adds a timer; returns False if it exists. Raises UnstableKey."""

    def remove(self, timer: Timer) -> bool:
        """Removes a timer; returns False if it does not exist."""

    def first(self) -> Timer | None:
        """Returns the first timer."""

    def clear(self) -> None:
        """Removes all timers."""


class HeapTimerQueue:
    """Timers in memory."""

    def __init__(self) -> None:
        self._timers: set[Timer] = set()
        # The entry of a removed timer stays in the heap until its time comes or the heap is rebuilt. The number
        # prevents a comparison of keys.
        self._heap: list[tuple[int, bytes, int, Any]] = []
        self._number = count()

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, timer: Timer) -> bool:
        return timer in self._timers

    def __iter__(self) -> Iterator[Timer]:
        return iter(self._timers)

    def read_section(self, key_groups: range) -> Iterator[Timer]:
        raise NotImplementedError("timers in memory have no order of key groups")

    def add(self, timer: Timer) -> bool:
        if timer in self._timers:
            return False
        time, key = timer
        heapq.heappush(self._heap, (time, key_bytes(key), next(self._number), key))
        self._timers.add(timer)
        return True

    def remove(self, timer: Timer) -> bool:
        if timer not in self._timers:
            return False
        self._timers.remove(timer)
        if len(self._heap) > 2 * len(self._timers) + 64:
            self._sweep()
        return True

    def first(self) -> Timer | None:
        heap = self._heap
        while heap:
            timer = heap[0][0], heap[0][3]
            if timer in self._timers:
                return timer
            heapq.heappop(heap)
        return None

    def clear(self) -> None:
        self._timers.clear()
        self._heap.clear()

    def _sweep(self) -> None:
        remaining: dict[Timer, tuple[int, bytes, int, Any]] = {}
        for entry in self._heap:
            timer = entry[0], entry[3]
            if timer in self._timers:
                remaining[timer] = entry
        self._heap = list(remaining.values())
        heapq.heapify(self._heap)
