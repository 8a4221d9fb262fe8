"""Session windows: the records of a key that are no further apart than the gap.

A record begins a session [time, time + gap) of its own, which becomes one with those that it overlaps or touches
(Flink's TimeWindow); so the sessions are the same whatever the order of the records. Records that are kept as they are
belong to the session that their time lies in: nothing of them is moved when sessions become one.

For each key, the next time at which one of its sessions fires or is done with is scheduled, once; what has moved to a
later time in between is scheduled anew when that time comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

from ...functions.window import TimeWindow
from ...graph.key_groups import key_bytes
from ...types import Scalar, TupleOf
from ..batch import Batch
from .functions import user_code
from .operator import Setup
from .window_assigner import Ints, SessionAssigner
from .windowing import Windowing

_INT: Final = Scalar("int")
_NOTHING: Final = b""


class SessionWindows(Windowing):
    """Sessions of each key: start -> (end, what its records were folded to)."""

    def __init__(self, setup: Setup, assigner: SessionAssigner) -> None:
        super().__init__(setup)
        self._gap = assigner.gap
        folded_type = Scalar("bytes") if self._folding is None else self._folded_type
        self._sessions = self.backend.map_table("~sessions", _INT, TupleOf((_INT, folded_type)))
        # (time, number) -> record; the number tells records of one time apart, and keeps their order.
        self._records = (
            None
            if self._folding is not None
            else self.backend.map_table("~records", TupleOf((_INT, _INT)), self._record_type)
        )
        self._number = count()
        self._due: list[tuple[int, bytes, int, Any]] = []
        self._scheduled: dict[Any, int] = {}
        self._tie = count()

    def open(self) -> None:
        super().open()
        for key in self._sessions.all_keys():
            self._schedule_next(key, self._reached)
        if self._records is not None:
            numbers = [number for key in self._records.all_keys() for _, number in self._records.get(key)]
            self._number = count(max(numbers, default=-1) + 1)

    def _take(self, batch: Batch, times: Ints) -> None:
        with user_code(self._config):
            keys = self._keys.of(batch)
            for key, time, timestamp, value in zip(
                keys, times.tolist(), batch.timestamps, batch.values, strict=True
            ):
                self._take_one(key, time, timestamp, value)

    def _take_one(self, key: Any, time: int, timestamp: int, value: Any) -> None:
        sessions: Mapping[int, tuple[int, Any]] = self._sessions.get(key)
        start, end = time, time + self._gap
        met = [s for s, (e, _) in sessions.items() if s <= end and e >= time] if sessions else ()
        for s in met:
            start, end = min(start, s), max(end, sessions[s][0])
        last, reached = end - 1, self._reached
        if last + self._lateness <= reached:
            self._too_late(timestamp, value)
            return
        folded = self._fold([sessions[s][1] for s in sorted(met)], value)
        for s in met:
            if s != start:
                self._sessions.remove(key, s)
        self._sessions.put(key, start, (end, folded))
        if self._records is not None:
            self._records.put(key, (time, next(self._number)), value)
        if last <= reached:
            self._schedule(key, last + self._lateness)
            window = TimeWindow(start, end)
            self._give(key, window, self._elements(key, window, folded))
        elif key not in self._scheduled or last < self._scheduled[key]:
            self._schedule(key, last)

    def _fold(self, met: Sequence[Any], value: Any) -> Any:
        """What sessions hold, the earlier one first, and then the record."""
        folding = self._folding
        if folding is None:
            return _NOTHING
        if not met:
            return folding.first(value)
        folded = met[0]
        for later in met[1:]:
            folded = folding.merge(folded, later)
        return folding.add(folded, value)

    def _elements(self, key: Any, window: TimeWindow, folded: Any) -> Sequence[Any]:
        if self._folding is not None:
            return (self._folding.result(folded),)
        assert self._records is not None
        inside = [
            (number, record)
            for (time, number), record in self._records.get(key).items()
            if window.start <= time < window.end
        ]
        return [record for _, record in sorted(inside, key=lambda each: each[0])]

    def _advance(self, before: int, reached: int) -> None:
        due = self._due
        while due and due[0][0] <= reached:
            time, _, _, key = heapq.heappop(due)
            if self._scheduled.get(key) == time:
                del self._scheduled[key]
                with user_code(self._config):
                    self._come_to(key, time, before)
                self._schedule_next(key, time)
                if self._gathering.much:
                    self._gathering.send(self.output)

    def _come_to(self, key: Any, time: int, before: int) -> None:
        """Fires and removes what is due for a key at this time."""
        due = [(s, e, folded) for s, (e, folded) in self._sessions.get(key).items() if e - 1 <= time]
        for start, end, folded in due:  # one that fires, and others that have been late long enough
            window, last = TimeWindow(start, end), end - 1
            if last == time and last > before:
                self._give(key, window, self._elements(key, window, folded))
            if last + self._lateness <= time:
                self._sessions.remove(key, start)
                self._forget(key, window)

    def _forget(self, key: Any, window: TimeWindow) -> None:
        if self._records is not None:
            for item in [item for item in self._records.get(key) if window.start <= item[0] < window.end]:
                self._records.remove(key, item)

    def _schedule_next(self, key: Any, reached: int) -> None:
        times = []
        for end, _ in self._sessions.get(key).values():
            times.append(end - 1 if end - 1 > reached else end - 1 + self._lateness)
        if times:
            self._schedule(key, min(times))

    def _schedule(self, key: Any, time: int) -> None:
        known = self._scheduled.get(key)
        if known is None or time < known:
            self._scheduled[key] = time
            heapq.heappush(self._due, (time, key_bytes(key), next(self._tie), key))
