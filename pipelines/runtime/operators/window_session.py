"""Session windows: the records of a key that are no further apart than the gap, which may be that of each record.

A record begins a session [time, time + gap) of its own, which is merged with those that it overlaps or touches (Flink's
TimeWindow). So the sessions are the same for any order of the records. Records that are stored unaggregated belong to
the session of their time: they do not move when sessions are merged.

The sessions of a key do not overlap, so they are in order by their starts and by their ends. The session of a record or
a time is found by bisection; so are the records of a session.

An index of each key says where they are (session_index.py). It schedules the next time at which one of the key's
sessions fires or is removed. If that time has moved later meanwhile, it is scheduled again when the old time comes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from ...functions.window import TimeWindow
from ...types import Scalar, TupleOf
from ..common.failures import format_key
from ..records.batch import Batch
from .operator import OperatorSetup
from .session_index import KeySessions, SessionIndex
from .user_functions import OrderedCalls, user_code
from .window_assigner import Ints, SessionAssigner
from .windowing import WindowOperator, create_gap

_INT: Final = Scalar("int")
_NOTHING: Final = b""


class SessionWindows(WindowOperator):
    """The sessions of each key: start -> (end, accumulator)."""

    def __init__(self, setup: OperatorSetup, assigner: SessionAssigner) -> None:
        super().__init__(setup)
        self._gap = create_gap(assigner, self._gap_function)
        folded_type = Scalar("bytes") if self._folding is None else self._folded_type
        self._sessions = self.backend.map_table("~sessions", _INT, TupleOf((_INT, folded_type)))
        # (time, number) -> record; the number distinguishes the records of a key, and gives their order.
        self._records = (
            None
            if self._folding is not None
            else self.backend.map_table("~records", TupleOf((_INT, _INT)), self._record_type)
        )
        self._index = SessionIndex(self.backend.store)

    def open(self) -> None:
        super().open()
        for key in self._sessions.all_keys():
            sessions = self._sessions.get(key)
            known = KeySessions(sorted(sessions))
            if self._records is not None:
                known.items = sorted(self._records.get(key))
                known.next_number = 1 + max((number for _, number in known.items), default=-1)
            self._schedule_next(key, known, sessions, self._reached_for(key))

    def _take(self, batch: Batch, times: Ints) -> None:
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            keys = self._keys.select(records)
            for key, time, timestamp, value in zip(
                keys, times.tolist(), batch.timestamps, records, strict=True
            ):
                self._take_one(key, time, timestamp, value)

    def _take_one(self, key: Any, time: int, timestamp: int, value: Any) -> None:
        sessions: Mapping[int, tuple[int, Any]] = self._sessions.get(key)
        known = self._index.get(key)
        starts = known.starts
        start, end = time, time + self._gap(value)
        first = stop = bisect_right(starts, end)
        while first and sessions[starts[first - 1]][0] >= time:
            first -= 1
        met = starts[first:stop]
        if met:
            start, end = min(start, met[0]), max(end, sessions[met[-1]][0])
        last, reached = end - 1, self._reached_for(key)
        if last + self._lateness <= reached:
            self._is_too_late(timestamp, value, reached)
            return
        folded = self._fold([sessions[s][1] for s in met], value)
        for s in met:
            if s != start:
                self._sessions.remove(key, s)
        starts[first:stop] = (start,)
        self._sessions.put(key, start, (end, folded))
        if self._records is not None:
            item = time, known.next_number
            known.next_number += 1
            insort(known.items, item)
            self._records.put(key, item, value)
        self._index.schedule(key, known, last + self._lateness if last <= reached else last)
        if last <= reached:
            window = TimeWindow(start, end)
            self._emit_result(key, window, self._elements(key, known, window, folded))

    def _fold(self, met: Sequence[Any], value: Any) -> Any:
        """Combines the contents of sessions, the earlier one first, and then the record."""
        folding = self._folding
        if folding is None:
            return _NOTHING
        if not met:
            return folding.first(value)
        folded = met[0]
        for later in met[1:]:
            folded = folding.merge(folded, later)
        return folding.add(folded, value)

    def _elements(self, key: Any, known: KeySessions, window: TimeWindow, folded: Any) -> Sequence[Any]:
        if self._folding is not None:
            return self._own_copies((self._folding.result(folded),))
        assert self._records is not None
        records, items = self._records.get(key), known.items
        first, stop = _between(items, window)
        return self._own_copies(
            [records[item] for item in sorted(items[first:stop], key=lambda item: item[1])]
        )

    @property
    def _next_due(self) -> int:
        return self._index.next_time

    def _advance(self, before: int, reached: int) -> None:
        while (due := self._index.pop_due(reached)) is not None:
            time, key = due
            known = self._index.get(key)
            with user_code(self._config, place=partial(self._session_place, key, time)):
                self._come_to(key, known, time, before)
            self._schedule_next(key, known, self._sessions.get(key), time)
            if self._gathering.has_many:
                self._gathering.send(self.output)

    def _come_to(self, key: Any, known: KeySessions, time: int, before: int) -> None:
        """Fires and removes what is due for a key at this time."""
        known.scheduled = None
        sessions, starts = self._sessions.get(key), known.starts
        place = bisect_right(starts, time) - 1
        if time > before and place >= 0 and sessions[starts[place]][0] - 1 == time:
            end, folded = sessions[starts[place]]
            window = TimeWindow(starts[place], end)
            self._emit_result(key, window, self._elements(key, known, window, folded))
        done = 0  # later than the allowed lateness
        while done < len(starts) and sessions[starts[done]][0] - 1 + self._lateness <= time:
            start = starts[done]
            window = TimeWindow(start, sessions[start][0])
            self._clear_function(key, window)
            self._forget(key, known, window)
            self._sessions.remove(key, start)
            done += 1
        del starts[:done]

    def _session_place(self, key: Any, time: int) -> str:
        """Returns the description of the session that fires at this time, for errors."""
        return f"the session that ends at {time + 1}, key {format_key(key)}"

    def _forget(self, key: Any, known: KeySessions, window: TimeWindow) -> None:
        if self._records is not None:
            first, stop = _between(known.items, window)
            for item in known.items[first:stop]:
                self._records.remove(key, item)
            del known.items[first:stop]

    def _schedule_next(self, key: Any, known: KeySessions, sessions: Mapping[int, Any], reached: int) -> None:
        starts = known.starts
        if not starts:
            self._index.forget(key)
            return
        fired = bisect_right(starts, reached, key=lambda start: sessions[start][0] - 1)
        times = [sessions[starts[0]][0] - 1 + self._lateness] if fired else []
        if fired < len(starts):
            times.append(sessions[starts[fired]][0] - 1)
        self._index.schedule(key, known, min(times))


def _between(items: Sequence[tuple[int, int]], window: TimeWindow) -> tuple[int, int]:
    """Returns the range of the records of a window."""
    return bisect_left(items, (window.start, -1)), bisect_left(items, (window.end, -1))
