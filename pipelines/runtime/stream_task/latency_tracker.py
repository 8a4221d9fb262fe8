"""The latencies of one attempt (Flink's LatencyStats): when its source emits a marker, and how old markers are that
arrive.

A subtask has at most MAX_LATENCY_HISTOGRAMS histograms; markers of more sources are forwarded and not counted. Markers
from the time before the attempt are ignored: the attempt may read them again, or they waited for it to start.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ...graph.job_options import LatencyGranularity
from ...graph.limits import MAX_LATENCY_HISTOGRAMS
from ..common.latencies import BOUNDS_MS, LatencyHistogram
from ..records.latency_markers import LatencyMarker

HISTORY_SIZE: Final = 128
"""The number of latencies that statistics are computed from: Flink's metrics.latency.history-size, with its default."""
_QUANTILES: Final = {"p75": 0.75, "p90": 0.9, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}

_Key = tuple[str, int | None]
"""The source and its subtask, as far as the granularity divides them."""


class LatencyTracker:
    """Used by the task thread only. `source_subtask`: None if the subtask is not of a source."""

    def __init__(
        self,
        *,
        operator_id: str,
        source_subtask: int | None,
        interval_ms: int,
        granularity: LatencyGranularity,
        wall_clock: Callable[[], int],
    ) -> None:
        self._operator_id = operator_id
        self._source_subtask = source_subtask
        self._interval_ms = interval_ms
        self._granularity = granularity
        self._wall_clock = wall_clock
        self._began = wall_clock()
        self._histograms: dict[_Key, _Histogram] = {}
        self.next_marker = None if source_subtask is None else self._began
        """When the source emits the next marker, by the wall clock (ms); None: never."""
        self.has_news = False
        """Whether there are latencies that were not reported."""

    def take_due(self) -> LatencyMarker | None:
        """Returns a marker of the source if one is due. After a pause there is one, not all that were missed."""
        if self.next_marker is None or self._source_subtask is None:
            return None
        now = self._wall_clock()
        if now < self.next_marker:
            return None
        self.next_marker = now + self._interval_ms
        return LatencyMarker(now, self._operator_id, self._source_subtask)

    def on_marker(self, marker: LatencyMarker) -> bool:
        """Measures a marker that has arrived. Returns whether it is to be forwarded."""
        if marker.created < self._began:
            return False
        key = self._key(marker)
        found = self._histograms.get(key)
        if found is None and len(self._histograms) < MAX_LATENCY_HISTOGRAMS:
            found = self._histograms[key] = _Histogram()
        if found is not None:
            # Clocks of machines differ.
            found.add(max(0, self._wall_clock() - marker.created))
            self.has_news = True
        return True

    def report(self) -> tuple[LatencyHistogram, ...]:
        """Returns all histograms."""
        self.has_news = False
        return tuple(
            LatencyHistogram(
                source_id,
                source_subtask,
                self._operator_id,
                tuple(each.counts),
                each.sum_ms,
                summarize(each.recent),
            )
            for (source_id, source_subtask), each in self._histograms.items()
        )

    def _key(self, marker: LatencyMarker) -> _Key:
        match self._granularity:
            case LatencyGranularity.SINGLE:
                return "", None
            case LatencyGranularity.OPERATOR:
                return marker.source_id, None
            case LatencyGranularity.SUBTASK:
                return marker.source_id, marker.source_subtask


class _Histogram:
    __slots__ = ("counts", "recent", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0
        self.recent: deque[int] = deque(maxlen=HISTORY_SIZE)

    def add(self, latency_ms: int) -> None:
        self.counts[bisect_left(BOUNDS_MS, latency_ms)] += 1
        self.sum_ms += latency_ms
        self.recent.append(latency_ms)


def summarize(latencies: Sequence[int] | deque[int]) -> dict[str, float]:
    """Returns the statistics of at least one latency, by Flink's names."""
    ordered = sorted(latencies)
    last = len(ordered) - 1
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": statistics.fmean(ordered),
        "median": statistics.median(ordered),
        "stddev": statistics.stdev(ordered) if last else 0.0,
        **{name: ordered[min(last, int(len(ordered) * part))] for name, part in _QUANTILES.items()},
    }
