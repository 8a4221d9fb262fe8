"""Decides how a Kafka source is read: in real time, in coalesced real time, or in bulk.

Real time delivers each record within milliseconds, and costs about half a millisecond of CPU for each. Coalesced real
time hands several records over together, for a third of that; a record waits until the next ones have arrived, so all
partitions must have a steady rate. Bulk delivers many times as many, some tenths of a second late.

So a backlog is processed in bulk. Real time starts when little is left and no more arrives than the machine carries,
and ends when the source is some seconds of work behind, at once or for some seconds. The thresholds are far enough
apart that one change does not cause the next. Where real time fell behind, it starts again when only half as much
arrives, or after a pause that is longer each time. docs/notes/paces.md has the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from .query import QueryMode

RECORDS_PER_CORE: Final[Mapping[QueryMode, float]] = {
    QueryMode.REAL_TIME: 1_500.0,
    QueryMode.COALESCED: 6_000.0,
}
"""The records per second that a mode carries for each core of the machine."""
RECORDS_PER_PARTITION: Final[Mapping[QueryMode, float]] = {
    QueryMode.REAL_TIME: 8_000.0,
    QueryMode.COALESCED: 20_000.0,
}
"""The same for each partition: one thread of Spark reads it."""
COALESCED_FROM: Final = 400.0
"""Coalesced real time starts when each partition has received so many records per second ..."""
STEADY_S: Final = 3.0
"""... for this time, or at once if real time does not carry what arrives ..."""
COALESCED_ABOVE: Final = 200.0
"""... and ends when one receives less."""
CAUGHT_UP_S: Final = 3.0
"""Real time may start if its backlog is at most so many seconds of its work. Positions are known once a second, so a
source that keeps up seems to be 1.5 s behind."""
FAR_BEHIND_S: Final = 6.0
"""Real time ends at once above so many seconds of its work ..."""
BEHIND_FOR_S: Final = 5.0
"""... and after so long a time above `CAUGHT_UP_S`."""
MIN_BULK_DURATION_S: Final = 60.0
"""How long bulk lasts after real time fell behind for the first time; doubled each time."""
MAX_BULK_DURATION_S: Final = 600.0
"""Also: after so long in real time, earlier times of falling behind are forgotten."""


class SourceLag(msgspec.Struct, frozen=True):
    """How far a deployment's source is behind the ends of its partitions."""

    records: int
    arriving: float
    """Records per second that are written to the partitions."""
    partitions: int
    cores: int
    slowest: float = 0.0
    """The least of the partitions' records per second."""

    def capacity(self, mode: QueryMode) -> float:
        """Returns the records per second that a mode carries."""
        return min(RECORDS_PER_CORE[mode] * self.cores, RECORDS_PER_PARTITION[mode] * self.partitions)

    def work_s(self, mode: QueryMode) -> float:
        """Returns the seconds that a mode would need for the backlog."""
        return self.records / self.capacity(mode)

    def fits(self, mode: QueryMode) -> bool:
        """Whether little is left, and no more arrives than the mode carries."""
        return self.work_s(mode) <= CAUGHT_UP_S and self.arriving <= self.capacity(mode)


class CatchUpPolicy(msgspec.Struct, frozen=True):
    """How a source is read. Times are those of a monotonic clock, in seconds."""

    pace: QueryMode
    since: float
    fallbacks: int = 0
    """How often real time has fallen behind."""
    overload: float = 0.0
    """The records per second that arrived when it last fell behind."""
    overloaded: QueryMode = QueryMode.REAL_TIME
    """The mode that fell behind."""
    fast_since: float | None = None
    """Since when all partitions have been fast enough for coalesced real time."""
    behind_since: float | None = None
    """Since when the backlog has been above `CAUGHT_UP_S`; None in bulk."""

    @classmethod
    def initial(cls, lag: SourceLag, now: float) -> CatchUpPolicy:
        """Returns the policy to begin with."""
        behind = lag.work_s(QueryMode.REAL_TIME) > CAUGHT_UP_S
        return cls(QueryMode.BULK if behind else QueryMode.REAL_TIME, now)

    def next_policy(self, lag: SourceLag, now: float) -> CatchUpPolicy:
        """Returns the policy to continue with. Its mode differs from this one's if another query must start."""
        measured = self._note(lag, now)
        if self.pace is QueryMode.BULK:
            return measured._after_bulk(lag, now)
        if self.pace is QueryMode.COALESCED and lag.slowest < COALESCED_ABOVE:
            slower = (
                QueryMode.REAL_TIME if lag.arriving <= lag.capacity(QueryMode.REAL_TIME) else QueryMode.BULK
            )
            return measured._change(slower, now)
        if (
            self.pace is QueryMode.REAL_TIME
            and measured._is_steady(lag, now)
            and lag.fits(QueryMode.COALESCED)
        ):
            return measured._change(QueryMode.COALESCED, now)
        return measured._fall_behind(lag, now) if measured._is_behind(lag, now) else measured

    def _note(self, lag: SourceLag, now: float) -> CatchUpPolicy:
        """Returns this policy with the times since when the source is fast, and behind."""
        fast_since = _since(self.fast_since, now, holds=lag.slowest >= COALESCED_FROM)
        is_behind = self.pace is not QueryMode.BULK and lag.work_s(self.pace) > CAUGHT_UP_S
        behind_since = _since(self.behind_since, now, holds=is_behind)
        if (fast_since, behind_since) == (self.fast_since, self.behind_since):
            return self
        return msgspec.structs.replace(self, fast_since=fast_since, behind_since=behind_since)

    def _is_behind(self, lag: SourceLag, now: float) -> bool:
        if lag.work_s(self.pace) > FAR_BEHIND_S:
            return True
        return self.behind_since is not None and now - self.behind_since >= BEHIND_FOR_S

    def _after_bulk(self, lag: SourceLag, now: float) -> CatchUpPolicy:
        pace = QueryMode.COALESCED if self._is_steady(lag, now) else QueryMode.REAL_TIME
        if not lag.fits(pace):
            return self
        carries_more = lag.capacity(pace) > lag.capacity(self.overloaded)
        is_lighter = lag.arriving <= self.overload / 2
        waits = self.fallbacks and not (carries_more or is_lighter)
        return self if waits and now - self.since < self._bulk_duration_s else self._change(pace, now)

    def _fall_behind(self, lag: SourceLag, now: float) -> CatchUpPolicy:
        before = self.fallbacks if now - self.since < MAX_BULK_DURATION_S else 0
        return CatchUpPolicy(QueryMode.BULK, now, before + 1, lag.arriving, self.pace, self.fast_since)

    def _change(self, pace: QueryMode, now: float) -> CatchUpPolicy:
        return msgspec.structs.replace(self, pace=pace, since=now, behind_since=None)

    def _is_steady(self, lag: SourceLag, now: float) -> bool:
        if self.fast_since is None:
            return False
        return now - self.fast_since >= STEADY_S or lag.arriving > lag.capacity(QueryMode.REAL_TIME)

    @property
    def _bulk_duration_s(self) -> float:
        return min(MAX_BULK_DURATION_S, MIN_BULK_DURATION_S * 2.0 ** min(self.fallbacks - 1, 10))


def _since(before: float | None, now: float, *, holds: bool) -> float | None:
    """Returns since when a condition holds; None if it does not."""
    if not holds:
        return None
    return now if before is None else before
