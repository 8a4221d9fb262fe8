"""The samples of a process in JSON: those that Prometheus gets, and rates beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from ..metrics.samples import Histogram, Sample
from ..metrics.table import METRICS
from .server import JSON, Content, Handler

SAMPLES: Final = "samples"
"""The path."""
_BY_FAMILY: Final = {metric.family: metric for metric in METRICS}


class _Sample(msgspec.Struct, frozen=True, array_like=True):
    family: str
    labels: tuple[str, ...]
    value: float | None
    """None for what is not a number."""
    per_second: float | None
    histogram: Histogram | None = None


def serve_samples(collect: Callable[[], Iterable[Sample]]) -> Handler:
    """Returns what answers with all samples."""
    return lambda _query: Content(JSON, encode(collect()))


def encode(samples: Iterable[Sample]) -> bytes:
    """Returns the samples as JSON."""
    return msgspec.json.encode(
        [
            _Sample(each.metric.family, each.labels, float(each.value), each.per_second, each.histogram)
            for each in samples
        ]
    )


def decode(content: bytes) -> Sequence[Sample]:
    """Returns the samples of metrics that this release knows. Raises ValueError (msgspec.MsgspecError) for other
    content."""
    return [
        Sample(_BY_FAMILY[each.family], each.labels, each.value, each.per_second, each.histogram)
        for each in msgspec.json.decode(content, type=list[_Sample])
        if each.value is not None
        and each.family in _BY_FAMILY
        and len(each.labels) == len(_BY_FAMILY[each.family].labels)
    ]
