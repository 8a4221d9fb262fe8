"""Makes the times of recorded events distinct, so that a simulation keeps the order of the log."""

from __future__ import annotations

from ...core.role import Time


class DistinctClock:
    """`now` grows with each event, by a microsecond more where the event's own time does not."""

    def __init__(self, start: Time) -> None:
        self._latest = self.now = start

    @property
    def offset(self) -> Time:
        """By how much `now` is later than the latest time of an event."""
        return self.now - self._latest

    def make_distinct(self, time: Time) -> Time:
        """The next event has that time; returns the one that counts."""
        ahead = self.offset if time > self._latest else self.offset + 1
        self._latest = max(self._latest, time)
        self.now = self._latest + ahead
        return self.now
