"""An immutable index of keys by due time. Each key has one time and one value.

Finding the earliest time and the due keys does not visit keys that are not due. The index is efficient for few distinct
times: round times that differ only slightly with `round_up_time` first.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from immutables import Map

from .role import Time

_GRAIN = 62_500
"""One sixteenth of a second, in microseconds."""


class DueIndex(msgspec.Struct, frozen=True):
    """Keys by their due times; `times` maps a key to its time."""

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
        """Returns the value of the key. Raises KeyError."""
        return self.by_time[self.times[key]][key]

    def put(self, key: str, time: Time, value: int) -> DueIndex:
        """Returns the index with the key at this time; an earlier entry of the key is replaced."""
        index = self.remove(key) if key in self.times else self
        earliest = index.earliest
        return DueIndex(
            index.by_time.set(time, index.by_time.get(time, _NOTHING).set(key, value)),
            index.times.set(key, time),
            time if earliest is None or time < earliest else earliest,
        )

    def put_all(self, values: Mapping[str, int], time: Time) -> DueIndex:
        """Returns the index with all these keys at one time. The index must not contain any of them yet."""
        if not values:
            return self
        earliest = self.earliest
        return DueIndex(
            self.by_time.set(time, self.by_time.get(time, _NOTHING).update(values)),
            self.times.update(dict.fromkeys(values, time)),
            time if earliest is None or time < earliest else earliest,
        )

    def remove(self, key: str) -> DueIndex:
        """Returns the index without the key; the same object if the key is absent."""
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
        """Returns (key, value) of all keys that are due at `now`, in no particular order."""
        if self.earliest is None or self.earliest > now:
            return []
        return [pair for time, keys in self.by_time.items() if time <= now for pair in keys.items()]


def round_up_time(time: Time) -> Time:
    """Returns the next multiple of 1/16 s: at most that much later than `time`."""
    return -(-time // _GRAIN) * _GRAIN


_NOTHING: Map[str, int] = Map()
