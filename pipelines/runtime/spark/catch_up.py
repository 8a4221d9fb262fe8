"""Decides when a Kafka source is read in bulk, and when in real time.

Real-time mode delivers each record within milliseconds, up to about 10,000 per second. Bulk mode delivers ten times as
many, a second late. So a backlog is processed in bulk. Real time starts when little is left and no more arrives than it
can carry, and ends when it has fallen far behind. The two thresholds are far enough apart that one change does not
cause the next. After each return to bulk, it waits longer before the next attempt.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .query import QueryMode

CAUGHT_UP: Final = 10_000
"""The backlog per partition at which real-time mode may start: about a second of its work."""
FAR_BEHIND: Final = 100_000
"""The backlog per partition at which real-time mode ends."""
CARRIES: Final = 10_000.0
"""The arriving records per second and partition up to which real-time mode may start."""
MIN_BULK_DURATION_S: Final = 10.0
"""How long bulk mode lasts after real-time mode fell behind for the first time; doubled each time."""
MAX_BULK_DURATION_S: Final = 600.0


class SourceLag(msgspec.Struct, frozen=True):
    """How far a deployment's source is behind the ends of its partitions."""

    records: int
    arriving: float
    """Records per second that are written to the partitions."""
    partitions: int


class CatchUpPolicy(msgspec.Struct, frozen=True):
    """How a source is read. Times are those of a monotonic clock, in seconds."""

    pace: QueryMode
    since: float
    fallbacks: int = 0

    @classmethod
    def initial(cls, lag: SourceLag, now: float) -> CatchUpPolicy:
        """Returns the policy to begin with."""
        behind = lag.records > CAUGHT_UP * lag.partitions
        return cls(QueryMode.BULK if behind else QueryMode.REAL_TIME, now)

    def next_policy(self, lag: SourceLag, now: float) -> CatchUpPolicy:
        """Returns the policy to continue with: this one, or one with the other mode."""
        if self.pace is QueryMode.REAL_TIME:
            if lag.records <= FAR_BEHIND * lag.partitions:
                return self
            return CatchUpPolicy(QueryMode.BULK, now, self.fallbacks + 1)
        if lag.records > CAUGHT_UP * lag.partitions or lag.arriving > CARRIES * lag.partitions:
            return self
        if self.fallbacks and now - self.since < self._bulk_duration_s:
            return self
        return CatchUpPolicy(QueryMode.REAL_TIME, now, self.fallbacks)

    @property
    def _bulk_duration_s(self) -> float:
        return min(MAX_BULK_DURATION_S, MIN_BULK_DURATION_S * 2.0 ** min(self.fallbacks - 1, 10))
