"""What views are made from: the history of a cluster up to an offset, and the time at that offset."""

from __future__ import annotations

from dataclasses import dataclass

from ..history import HistoryProjection
from .live_metrics import NO_METRICS, LiveMetrics


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster after the event at `fold.replica.offset`.

    `now` is the time by which durations are computed, in milliseconds since the epoch: the present, or the time of the
    last event for a moment of the past. `live`: the metrics of TaskExecutors, for endpoints that need them. `lag`: the
    events from there to the end of the log that the server last saw; None for a moment of the past.
    """

    fold: HistoryProjection
    now: int
    live: LiveMetrics = NO_METRICS
    lag: int | None = None

    @property
    def offset(self) -> int:
        """The offset of the last event; -1 before the first."""
        return self.fold.replica.offset
