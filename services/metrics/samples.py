"""Samples of metrics, and the limit of their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .table import Metric


class Sample(NamedTuple):
    """The value of one time series; `labels` are the values of the metric's labels, in order. `per_second`: by how much
    a counter has grown a second in the last seconds; None if that is not measured."""

    metric: Metric
    labels: tuple[str, ...]
    value: float
    per_second: float | None = None


Collect = Callable[[], Iterable[Sample]]
"""Returns the present samples; called for each request, on a thread of the server."""


def limit_series(groups: Iterable[Sequence[Sample]], most: int) -> tuple[list[Sample], int]:
    """Returns the samples of the first groups that have at most `most` in sum, and the number of all others.

    A group is complete or left out; the caller puts what lasts longest first, so that the kept series stay.
    """
    kept: list[Sample] = []
    omitted = 0
    for group in groups:
        if omitted or len(kept) + len(group) > most:
            omitted += len(group)
        else:
            kept.extend(group)
    return kept, omitted
