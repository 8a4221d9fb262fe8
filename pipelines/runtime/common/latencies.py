"""Latencies that a subtask has measured: a histogram with fixed bounds for each source, and statistics of the last
ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
"""The upper bounds of the buckets, inclusive. The last bucket has none."""


class LatencyHistogram(msgspec.Struct, frozen=True, array_like=True):
    """The latencies from a source to an operator, of one attempt."""

    source_id: str
    """The operator id of the source; empty: of all sources."""
    source_subtask: int | None
    """None: of all its subtasks."""
    operator_id: str
    counts: tuple[int, ...]
    """The number of latencies in each bucket."""
    sum_ms: int
    recent: Mapping[str, float]
    """The statistics of the last latencies, in milliseconds, by Flink's names."""
