"""Keys with a due time and a value each, found by time.

Finding the earliest time, or all keys that are due, does not look at the others. The index is fast for few distinct
times: callers with many nearly equal times round them first (`round_up_time`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from immutables import Map

from .role import Time

_GRAIN = 62_500
"""A sixteenth of a second."""


class DueIndex(msgspec.Struct, frozen=True):
    """Keys at their times; `times` finds the time of a key."""

    by_time: Map[Time, Map[str, int]] = Map()
    times: Map[str, Time] = Map()
    earliest: Time | None = None

    def __bool__(self) -> bool:
        return self.earliest is not None

    def __len__(self) -> int:
        return len(self.times)

    def __contains__(self, key: str) -> bool:
        return key in self.times

    def value(self, key: str) -> int:
        """What was put with the key. Raises KeyError."""
        return self.by_time[self.times[key]][key]

    def put(self, key: str, time: Time, value: int) -> DueIndex:
        """With the key at this time, wherever it was before."""
        agenda = self.remove(key) if key in self.times else self
        earliest = agenda.earliest
        return DueIndex(
            agenda.by_time.set(time, agenda.by_time.get(time, _NOTHING).set(key, value)),
            agenda.times.set(key, time),
            time if earliest is None or time < earliest else earliest,
        )

    def put_all(self, values: Mapping[str, int], time: Time) -> DueIndex:
        """With all these keys, none of which was there, at one time."""
        if not values:
            return self
        earliest = self.earliest
        return DueIndex(
            self.by_time.set(time, self.by_time.get(time, _NOTHING).update(values)),
            self.times.update(dict.fromkeys(values, time)),
            time if earliest is None or time < earliest else earliest,
        )

    def remove(self, key: str) -> DueIndex:
        """Without the key, if it is there."""
        time = self.times.get(key)
        if time is None:
            return self
        left = self.by_time[time].delete(key)
        if left:
            return DueIndex(self.by_time.set(time, left), self.times.delete(key), self.earliest)
        by_time = self.by_time.delete(time)
        earliest = self.earliest if time != self.earliest else min(by_time, default=None)
        return DueIndex(by_time, self.times.delete(key), earliest)

    def due(self, now: Time) -> list[tuple[str, int]]:
        """(key, value) of all whose time has come, in no particular order."""
        if self.earliest is None or self.earliest > now:
            return []
        return [pair for time, keys in self.by_time.items() if time <= now for pair in keys.items()]


def round_up_time(time: Time) -> Time:
    """At most a sixteenth of a second later."""
    return -(-time // _GRAIN) * _GRAIN


_NOTHING: Map[str, int] = Map()
