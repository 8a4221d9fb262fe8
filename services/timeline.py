"""Keys in the order in which they were added, each with a time (or an offset) that is no earlier than the one before.

The first key is found at once, whatever is added or removed: that is what deadlines and queues are made of. A time that
is earlier than its predecessor's, because another machine's clock is behind, counts as its predecessor's.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from immutables import Map


class Timeline(msgspec.Struct, frozen=True):
    """The keys by their places; `places` finds them again. What was removed leaves holes from `head` to `tail`."""

    entries: Map[int, tuple[str, int]] = Map()
    """Place -> key and time."""
    places: Map[str, int] = Map()
    head: int = 0
    """The place of the first key, if there is any."""
    tail: int = 0
    """The place that the next key gets."""
    latest: int = 0

    def __len__(self) -> int:
        return len(self.places)

    def __bool__(self) -> bool:
        return len(self.places) > 0

    def __contains__(self, key: str) -> bool:
        return key in self.places

    def __iter__(self) -> Iterator[str]:
        """The keys, first to last."""
        entries = self.entries
        for place in range(self.head, self.tail):
            entry = entries.get(place)
            if entry is not None:
                yield entry[0]

    @property
    def first(self) -> tuple[str, int] | None:
        """The first key and its time."""
        return self.entries.get(self.head)

    def until(self, time: int) -> Iterator[str]:
        """The keys whose time is at most this, first to last."""
        entries = self.entries
        for place in range(self.head, self.tail):
            entry = entries.get(place)
            if entry is None:
                continue
            if entry[1] > time:
                return
            yield entry[0]

    def add(self, key: str, time: int) -> Timeline:
        """With the key at the end; one that is there keeps its place and time."""
        if key in self.places:
            return self
        time = max(time, self.latest)
        place = self.tail
        entries = self.entries.set(place, (key, time))
        return Timeline(entries, self.places.set(key, place), self.head, place + 1, time)

    def again(self, time: int) -> Timeline:
        """The same keys in the same order, all with this time."""
        line = _EMPTY
        for key in self:
            line = line.add(key, time)
        return line

    def remove(self, key: str) -> Timeline:
        """Without the key, if it is there."""
        place = self.places.get(key)
        if place is None:
            return self
        if len(self.places) == 1:
            return _EMPTY
        entries, head = self.entries.delete(place), self.head
        if place == head:
            head += 1
            while head not in entries:
                head += 1
        return Timeline(entries, self.places.delete(key), head, self.tail, self.latest)


_EMPTY = Timeline()
