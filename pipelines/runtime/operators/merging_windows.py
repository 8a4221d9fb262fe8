"""The sessions of each key of an operator with a trigger, and where their contents are (Flink's MergingWindowSet).

The contents of a session stay at the place of its first record when it grows: so a record never moves other records,
unless it joins sessions.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ...functions.window import TimeWindow
from ...types import Scalar, TupleOf
from ..state_backend.keyed_state_backend import KeyedStateBackend
from ..state_backend.window_key import WindowKey

_INT: Final = Scalar("int")


class Merge(NamedTuple):
    """The session of a new record."""

    window: TimeWindow
    """With the record."""
    place: WindowKey
    """Where its contents are."""
    merged: tuple[TimeWindow, ...]
    """The sessions that it replaces, in order; none if there is one that has not changed."""
    others: tuple[WindowKey, ...]
    """The places of contents to move to `place`."""


class MergingWindows:
    """The sessions of each key: start -> (end, start and end of the place)."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._table = backend.map_table("~merging", _INT, TupleOf((_INT, _INT, _INT)))

    def find(self, key: Any, window: TimeWindow) -> Merge:
        """Returns the session that a record of this window belongs to. Changes nothing."""
        met = sorted(
            (TimeWindow(start, end), WindowKey(key, first, last))
            for start, (end, first, last) in self._table.get(key).items()
            if start <= window.end and window.start <= end
        )
        if not met:
            return Merge(window, WindowKey(key, window.start, window.end), (), ())
        start = min(window.start, met[0][0].start)
        end = max(window.end, met[-1][0].end)
        grown = TimeWindow(start, end)
        if grown == met[0][0]:
            return Merge(grown, met[0][1], (), ())
        windows, places = zip(*met, strict=True)
        return Merge(grown, places[0], windows, places[1:])

    def put(self, key: Any, merge: Merge) -> None:
        """Stores the session in place of those that it replaces."""
        for window in merge.merged:
            if window.start != merge.window.start:
                self._table.remove(key, window.start)
        place = merge.place
        entry = merge.window.end, place.start, place.end
        if self._table.get(key).get(merge.window.start) != entry:
            self._table.put(key, merge.window.start, entry)

    def place(self, key: Any, window: TimeWindow) -> WindowKey:
        """Returns where the contents of a session are."""
        _, first, last = self._table.get(key)[window.start]
        return WindowKey(key, first, last)

    def remove(self, key: Any, window: TimeWindow) -> None:
        """Removes a session."""
        self._table.remove(key, window.start)
