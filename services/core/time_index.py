"""An immutable queue of keys ordered by time (or offset); keys of equal time stay in insertion order.

The first key is found in constant time. Deadlines and queues are built on it. The index assumes that times almost never
go back. If another machine's clock is ahead, a key with an earlier time is inserted before the keys with a later one: a
wrong clock affects its own keys only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from immutables import Map


class FifoTimeIndex(msgspec.Struct, frozen=True):
    """Keys by position; `places` maps a key to its position. Removed keys leave holes between `head` and `tail`."""

    entries: Map[int, tuple[str, int]] = Map()
    """Position -> key and time."""
    places: Map[str, int] = Map()
    head: int = 0
    """The position of the first key, if there is any."""
    tail: int = 0
    """The position after the last key."""
    latest: int = 0
    """The latest time of any key added since the index was last empty."""

    def __len__(self) -> int:
        return len(self.places)

    def __bool__(self) -> bool:
        return len(self.places) > 0

    def __contains__(self, key: str) -> bool:
        return key in self.places

    def __iter__(self) -> Iterator[str]:
        """Iterates over the keys, first to last."""
        entries = self.entries
        for place in range(self.head, self.tail):
            entry = entries.get(place)
            if entry is not None:
                yield entry[0]

    @property
    def first(self) -> tuple[str, int] | None:
        """Returns the first key and its time, or None."""
        return self.entries.get(self.head)

    def until(self, time: int) -> Iterator[str]:
        """Iterates over the keys with a time of at most `time`, first to last."""
        entries = self.entries
        for place in range(self.head, self.tail):
            entry = entries.get(place)
            if entry is None:
                continue
            if entry[1] > time:
                return
            yield entry[0]

    def add(self, key: str, time: int) -> FifoTimeIndex:
        """Inserts the key after all keys with the same or an earlier time. An existing key keeps its position and
        time."""
        if key in self.places:
            return self
        place, later = self.tail, list[tuple[str, int]]()
        while place > self.head:
            entry = self.entries.get(place - 1)
            if entry is not None:
                if entry[1] <= time:
                    break
                later.append(entry)
            place -= 1
        if not later:
            entries, places = self.entries.set(place, (key, time)), self.places.set(key, place)
            return FifoTimeIndex(entries, places, self.head, place + 1, max(self.latest, time))
        return self._with(place, [(key, time), *reversed(later)])

    def _with(self, start: int, last: Sequence[tuple[str, int]]) -> FifoTimeIndex:
        """Returns the index with these as the last keys, from the position `start` on."""
        tail = start + len(last)
        entries, places = self.entries.mutate(), self.places.mutate()
        for place, entry in enumerate(last, start):
            entries[place] = entry
            places[entry[0]] = place
        for place in range(tail, self.tail):
            entries.pop(place, None)
        return FifoTimeIndex(entries.finish(), places.finish(), self.head, tail, self.latest)

    def move_to_end(self, time: int) -> FifoTimeIndex:
        """Returns the same keys in the same order, all with this time."""
        line = _EMPTY
        for key in self:
            line = line.add(key, time)
        return line

    def remove(self, key: str) -> FifoTimeIndex:
        """Returns the index without the key."""
        place = self.places.get(key)
        if place is None:
            return self
        if len(self.places) == 1:
            return _EMPTY
        entries, head, tail = self.entries.delete(place), self.head, self.tail
        while head not in entries:
            head += 1
        while tail - 1 not in entries:
            tail -= 1
        return FifoTimeIndex(entries, self.places.delete(key), head, tail, self.latest)


_EMPTY = FifoTimeIndex()
