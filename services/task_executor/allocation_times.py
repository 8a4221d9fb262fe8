"""Since when slots wait for a JobMaster to take them: a queue, oldest first.

A queue will do, because slots begin to wait in the order of the log; where its times go back (another process, another
clock), the later entry waits from the time of the one before it. Whoever leaves the queue leaves a gap, which is passed
over once.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from immutables import Map
from msgspec.structs import replace

from ..roles import Time


class AllocationTimes(msgspec.Struct, frozen=True):
    """AllocationIDs, each with the time since which it waits; `oldest` costs nothing."""

    queue: Map[int, tuple[str, Time]] = Map()
    """Place in the queue -> (AllocationID, since)."""
    places: Map[str, int] = Map()
    first: int = 0
    """The oldest one's place."""
    end: int = 0
    """The next one's place."""
    latest: Time = 0
    """Since when the youngest waits."""

    @property
    def oldest(self) -> Time | None:
        """Since when the oldest waits."""
        return self.queue[self.first][1] if self.queue else None

    def add(self, allocation_id: str, now: Time) -> AllocationTimes:
        """It begins to wait; one that waits already goes on waiting."""
        if allocation_id in self.places:
            return self
        since = max(now, self.latest)
        return replace(
            self,
            queue=self.queue.set(self.end, (allocation_id, since)),
            places=self.places.set(allocation_id, self.end),
            end=self.end + 1,
            latest=since,
        )

    def remove(self, allocation_id: str) -> AllocationTimes:
        """It does not wait any more."""
        place = self.places.get(allocation_id)
        if place is None:
            return self
        queue = self.queue.delete(place)
        if not queue:
            return AllocationTimes()
        first = self.first
        while first not in queue:
            first += 1
        return replace(self, queue=queue, places=self.places.delete(allocation_id), first=first)

    def until(self, time: Time) -> list[str]:
        """Those that wait since then or longer, the oldest first."""
        found = []
        for allocation_id, since in self._in_order():
            if since > time:
                break
            found.append(allocation_id)
        return found

    def again(self, now: Time) -> AllocationTimes:
        """All of them, waiting since now."""
        times = AllocationTimes()
        for allocation_id, _ in self._in_order():
            times = times.add(allocation_id, now)
        return times

    def _in_order(self) -> Iterator[tuple[str, Time]]:
        return (self.queue[place] for place in range(self.first, self.end) if place in self.queue)
