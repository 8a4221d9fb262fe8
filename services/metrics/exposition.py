"""Writes the samples of a process in Prometheus' text formats.

`exposition` is the one function for any server. The registry also has the metrics of the process itself: `process_*`,
as all Prometheus clients name them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder

from .samples import Collect, Histogram, Sample
from .table import METRICS, Kind, Metric

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_FAMILIES: Final[Mapping[Kind, Callable[..., Family]]] = {
    Kind.GAUGE: GaugeMetricFamily,
    Kind.COUNTER: CounterMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


class SampleCollector:
    """A collector of prometheus_client that asks for the samples at each scrape."""

    def __init__(self, collect: Collect) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Family]:
        """Yields the families in the order of the table."""
        found: dict[Metric, list[Sample]] = {}
        for sample in self._collect():
            found.setdefault(sample.metric, []).append(sample)
        for metric in METRICS:
            if metric in found:
                family = _family(metric)
                for sample in found[metric]:
                    _add(family, sample)
                yield family

    def describe(self) -> list[Family]:
        """Returns the families without samples, so that a registration collects nothing."""
        return [_family(metric) for metric in METRICS]


def create_registry(collect: Collect) -> CollectorRegistry:
    """Returns a registry of the samples and of this process."""
    registry = CollectorRegistry()
    registry.register(SampleCollector(collect))
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str = "") -> tuple[str, bytes]:
    """Returns the content type and the text for a request with this Accept header: OpenMetrics if it is wanted, else
    Prometheus' text format."""
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)


def _family(metric: Metric) -> Family:
    return _FAMILIES[metric.kind](metric.family, metric.help, labels=metric.labels, unit=metric.unit)


def _add(family: Family, sample: Sample) -> None:
    if not isinstance(family, HistogramMetricFamily):
        family.add_metric(sample.labels, sample.value)
    elif sample.histogram is not None:
        family.add_metric(sample.labels, _buckets(sample.histogram), sample.histogram.total)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Returns bound -> the number of values up to it."""
    bounds = [*map(str, histogram.bounds), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))
