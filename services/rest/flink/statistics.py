"""Flink's summary of figures: minimum, maximum, average and quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

Quantile = float | Literal["NaN"]


class Statistics(msgspec.Struct, frozen=True):
    """Flink's StatsSummaryDto."""

    min: int
    max: int
    avg: int
    p50: Quantile
    p90: Quantile
    p95: Quantile
    p99: Quantile
    p999: Quantile

    @classmethod
    def of(cls, values: Sequence[int]) -> Statistics:
        """Returns the summary of the values; without values it has zeros and NaN, as in Flink."""
        if not values:
            return cls(0, 0, 0, "NaN", "NaN", "NaN", "NaN", "NaN")
        ordered = sorted(values)

        def quantile(fraction: float) -> float:
            position = fraction * (len(ordered) + 1) - 1
            low = min(len(ordered) - 1, max(0, int(position)))
            high = min(len(ordered) - 1, low + 1)
            share = min(1.0, max(0.0, position - low))
            return ordered[low] + share * (ordered[high] - ordered[low])

        return cls(
            ordered[0],
            ordered[-1],
            sum(ordered) // len(ordered),
            *(quantile(fraction) for fraction in (0.5, 0.9, 0.95, 0.99, 0.999)),
        )
