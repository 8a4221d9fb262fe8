"""Timers: for each key, the times at which its function is called.

They fire in the order of (time, canonical form of the key): the same order in every process and after every restore.
Two timers of one key and time are one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from ...graph.key_groups import key_bytes
from ...types import RecordType
from ..records.buffers import MAX_WATERMARK
from .changelog import ChangeKind, StateChange
from .table import INT, StateTable, TableLayout
from .type_coverage import Taking

Timer = tuple[int, Any]
"""Time (ms) and key."""


class TimerTable(StateTable):
    """The timers of one time domain."""

    def __init__(self, name: str, key_type: RecordType, max_parallelism: int) -> None:
        super().__init__(name, "timer", key_type, max_parallelism)
        self._entries = self._keyed_layout([*self._key_columns(), ("time", INT)])
        self._timers: set[Timer] = set()
        # The entry of a deleted timer stays in the heap until its time comes or the heap is rebuilt. The number
        # prevents a comparison of keys.
        self._heap: list[tuple[int, bytes, int, Any]] = []
        self._number = count()
        self._touched: dict[Timer, None] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def register(self, key: Any, time: int) -> bool:
        """Adds a timer; returns False if it exists. Raises UnstableKey."""
        timer = time, key
        if timer in self._timers:
            return False
        self._add(timer)
        self._touched[timer] = None
        return True

    def delete(self, key: Any, time: int) -> None:
        """Removes a timer, if it exists."""
        timer = time, key
        if timer in self._timers:
            self._timers.remove(timer)
            self._touched[timer] = None
            if len(self._heap) > 2 * len(self._timers) + 64:
                self._sweep()

    def pop_due(self, time: int) -> Timer | None:
        """Removes and returns the first timer that is not after this time; None if there is none."""
        heap = self._heap
        while heap and heap[0][0] <= time:
            at, _, _, key = heapq.heappop(heap)
            timer = at, key
            if timer in self._timers:
                self._timers.remove(timer)
                self._touched[timer] = None
                return timer
        return None

    @property
    def next_time(self) -> int:
        """Returns when the first timer is due (ms); END_OF_TIME if there is none."""
        heap = self._heap
        while heap and (heap[0][0], heap[0][3]) not in self._timers:
            heapq.heappop(heap)
        return heap[0][0] if heap else MAX_WATERMARK

    def clear(self) -> None:
        """Removes all timers."""
        self._touched.update(dict.fromkeys(self._timers))
        self._timers.clear()
        self._heap.clear()

    def take_changes(self) -> Iterator[StateChange]:
        touched, self._touched = self._touched, {}
        for kind, timers in (
            (ChangeKind.REMOVE, [timer for timer in touched if timer not in self._timers]),
            (ChangeKind.PUT, [timer for timer in touched if timer in self._timers]),
        ):
            if timers:
                times, keys = map(list, zip(*timers, strict=True))
                yield StateChange(kind, self._entries.encode([self._groups(keys), keys, times]))

    def apply(
        self,
        kind: ChangeKind,
        payload: bytes,
        taking: Taking | None = None,
        written: RecordType | None = None,
    ) -> None:
        _, keys, times = self._entries.decode(payload, taking)
        timers = list(zip(times, keys, strict=True))
        match kind:
            case ChangeKind.PUT:
                for timer in timers:
                    if timer not in self._timers:
                        self._add(timer)
            case ChangeKind.REMOVE:
                self._timers.difference_update(timers)
                if len(self._heap) > 2 * len(self._timers) + 64:
                    self._sweep()
            case _:
                raise self._refuse(kind)

    def _rows(self, section: range | None = None) -> Iterator[Timer]:
        return iter(self._timers)

    def _put_columns(self, rows: Iterable[Timer]) -> tuple[TableLayout, list[Sequence[Any]]]:
        timers = list(rows)
        keys = [key for _, key in timers]
        return self._entries, [self._groups(keys), keys, [time for time, _ in timers]]

    def snapshot(self) -> set[Timer]:
        """Returns (time, key) of each timer."""
        return set(self._timers)

    def _add(self, timer: Timer) -> None:
        time, key = timer
        heapq.heappush(self._heap, (time, key_bytes(key), next(self._number), key))
        self._timers.add(timer)

    def _sweep(self) -> None:
        kept: dict[Timer, tuple[int, bytes, int, Any]] = {}
        for entry in self._heap:
            timer = entry[0], entry[3]
            if timer in self._timers:
                kept[timer] = entry
        self._heap = list(kept.values())
        heapq.heapify(self._heap)
