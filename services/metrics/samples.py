"""Samples of metrics, and the limit of their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from .table import Metric


class Histogram(msgspec.Struct, frozen=True, array_like=True):
    """The distribution of a quantity. `bounds`: of the buckets, inclusive; the last bucket has none."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """The number of values in each bucket."""
    total: float
    """The sum of all values."""
    recent: Mapping[str, float] = {}
    """Statistics of the last values, by Flink's names."""

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)


class Sample(NamedTuple):
    """The value of one time series; `labels` are the values of the metric's labels, in order. `per_second`: by how much
    a counter has grown a second in the last seconds; None if that is not measured. `histogram`: of a histogram, whose
    value is the number of its values."""

    metric: Metric
    labels: tuple[str, ...]
    value: float
    per_second: float | None = None
    histogram: Histogram | None = None

    @property
    def series(self) -> int:
        """The number of time series: of a histogram the buckets, the sum and the count."""
        return 1 if self.histogram is None else len(self.histogram.counts) + 2


Collect = Callable[[], Iterable[Sample]]
"""Returns the present samples; called for each request, on a thread of the server."""


def limit_series(groups: Iterable[Sequence[Sample]], most: int) -> tuple[list[Sample], int]:
    """Returns the samples of the first groups that have at most `most` time series in sum, and the number of all
    others.

    A group is complete or left out; the caller puts what lasts longest first, so that the same series stay.
    """
    included: list[Sample] = []
    used = omitted = 0
    for group in groups:
        size = sum(sample.series for sample in group)
        if omitted or used + size > most:
            omitted += size
        else:
            used += size
            included.extend(group)
    return included, omitted
