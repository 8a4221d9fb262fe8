"""Decides when a Kafka source is read in bulk, and when in real time.

Real-time mode delivers each record within milliseconds, and costs about half a millisecond of CPU for each. Bulk mode
delivers many times as many, some tenths of a second late. So a backlog is processed in bulk. Real time starts when
little is left and no more arrives than the machine carries, and ends when the source is some seconds of work behind.
The two thresholds are far enough apart that one change does not cause the next. Where real time fell behind, it starts
again when only half as much arrives, or after a pause that is longer each time.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .query import QueryMode

RECORDS_PER_CORE: Final = 1_500.0
"""The records per second that real-time mode carries for each core of the machine (docs/notes/latency.md)."""
RECORDS_PER_PARTITION: Final = 10_000.0
"""The same for each partition: one thread of Spark reads it."""
CAUGHT_UP_S: Final = 3.0
"""Real-time mode may start if its backlog is at most so many seconds of its work. Positions are known once a second, so
a source that keeps up seems to be 1.5 s behind."""
FAR_BEHIND_S: Final = 6.0
"""Real-time mode ends above so many seconds of its work."""
MIN_BULK_DURATION_S: Final = 10.0
"""How long bulk mode lasts after real-time mode fell behind for the first time; doubled each time."""
MAX_BULK_DURATION_S: Final = 600.0
"""Also: after so long in real time, earlier times of falling behind are forgotten."""


class SourceLag(msgspec.Struct, frozen=True):
    """How far a deployment's source is behind the ends of its partitions."""

    records: int
    arriving: float
    """Records per second that are written to the partitions."""
    partitions: int
    cores: int

    @property
    def capacity(self) -> float:
        """The records per second that real-time mode carries."""
        return min(RECORDS_PER_CORE * self.cores, RECORDS_PER_PARTITION * self.partitions)

    @property
    def work_s(self) -> float:
        """The seconds that real-time mode would need for the backlog."""
        return self.records / self.capacity


class CatchUpPolicy(msgspec.Struct, frozen=True):
    """How a source is read. Times are those of a monotonic clock, in seconds."""

    pace: QueryMode
    since: float
    fallbacks: int = 0
    """How often real-time mode has fallen behind."""
    overload: float = 0.0
    """The records per second that arrived when it last fell behind."""

    @classmethod
    def initial(cls, lag: SourceLag, now: float) -> CatchUpPolicy:
        """Returns the policy to begin with."""
        behind = lag.work_s > CAUGHT_UP_S
        return cls(QueryMode.BULK if behind else QueryMode.REAL_TIME, now)

    def next_policy(self, lag: SourceLag, now: float) -> CatchUpPolicy:
        """Returns the policy to continue with: this one, or one with the other mode."""
        if self.pace is QueryMode.REAL_TIME:
            if lag.work_s <= FAR_BEHIND_S:
                return self
            before = self.fallbacks if now - self.since < MAX_BULK_DURATION_S else 0
            return CatchUpPolicy(QueryMode.BULK, now, before + 1, lag.arriving)
        if lag.work_s > CAUGHT_UP_S or lag.arriving > lag.capacity:
            return self
        is_lighter = lag.arriving <= self.overload / 2
        if self.fallbacks and not is_lighter and now - self.since < self._bulk_duration_s:
            return self
        return CatchUpPolicy(QueryMode.REAL_TIME, now, self.fallbacks, self.overload)

    @property
    def _bulk_duration_s(self) -> float:
        return min(MAX_BULK_DURATION_S, MIN_BULK_DURATION_S * 2.0 ** min(self.fallbacks - 1, 10))
