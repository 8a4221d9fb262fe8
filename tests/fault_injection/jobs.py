"""The job under fault injection: a running count per key, and a sum per window and key.

Record i has the key i mod KEYS, the value i and the event time i ms, so the right result is known without a run: per
key the counts 1, 2, 3, ... up to its number of records, once each, and one sum per window and key. A record that is
lost or counted twice, or a duplicate result, shows in the multiset of the results.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from tailrace.pipelines.api import (
    Formats,
    KafkaSink,
    KafkaSource,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from tailrace.schemas.types import JobGraph

_BATCH_SIZE = 200
"""So many records are read without a pause."""


Pair = tuple[str, int]


class Item(NamedTuple):
    """A record."""

    key: str
    window: int
    value: int


@dataclasses.dataclass(frozen=True)
class Shape:
    """The size of the job. `rate`: records per second; None: as fast as possible."""

    records: int
    keys: int = 10
    window_ms: int = 1_000
    parallelism: int = 2
    rate: float | None = None

    def item(self, index: int) -> Item:
        """Returns record number `index`."""
        return Item(f"k{index % self.keys}", index // self.window_ms, index)

    def slow_item(self, text: str) -> Item:
        """Returns a record of the topic, no faster than the rate. Otherwise the job has read the topic before a
        fault happens."""
        index = int(text)
        if self.rate is not None and index // self.parallelism % _BATCH_SIZE == 0:
            time.sleep(_BATCH_SIZE * self.parallelism / self.rate)
        return self.item(index)

    def counts(self) -> Counter[str]:
        """Returns the expected content of the topic of counts."""
        number, more = divmod(self.records, self.keys)
        return Counter(
            f"k{key} {count}" for key in range(self.keys) for count in range(1, number + (key < more) + 1)
        )

    def sums(self) -> Counter[str]:
        """Returns the expected content of the topic of sums."""
        sums: dict[tuple[str, int], int] = {}
        for index in range(self.records):
            key, window, value = self.item(index)
            sums[key, window] = sums.get((key, window), 0) + value
        return Counter(f"{key} {window} {total}" for (key, window), total in sums.items())


def counting(shape: Shape, counts: str, configuration: Mapping[str, str]) -> JobGraph:
    """Returns the graph of a running count without event time, from a generator: two vertices at any parallelism."""
    env = _environment_of_vertices(shape)
    _count(env.generate(shape.item, count=shape.records, rate_per_second=shape.rate), counts)
    return _with_options(env.get_job_graph("counting"), configuration)


def relaying(
    shape: Shape, port: int, counts: str, configuration: Mapping[str, str], relay: Callable[[Item], Item]
) -> JobGraph:
    """Returns the same graph from indexes as text of a local port, with a vertex between, whose function runs in Spark:
    three vertices."""
    env = _environment_of_vertices(shape)
    items = env.socket_text_stream("127.0.0.1", port).map(
        lambda text: shape.item(int(text)), output_type=Item
    )
    _count(items.rebalance().map(relay, output_type=Item), counts)
    return _with_options(env.get_job_graph("relaying"), configuration)


def fault_injection_job(
    shape: Shape, counts: str, sums: str, configuration: Mapping[str, str], source: str | None = None
) -> JobGraph:
    """Returns the graph of counts and sums, from a generator or from the topic `source`, which has the indexes as
    text."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(shape.parallelism)
    monotonous = WatermarkStrategy.for_monotonous_timestamps()
    if source is None:
        items = env.generate(shape.item, count=shape.records, rate_per_second=shape.rate)
        items = items.assign_timestamps_and_watermarks(monotonous.with_timestamp_assigner("value"))
    else:
        read = KafkaSource(source, Formats.text(), bounded=True)
        numbers = env.from_source(read, monotonous.with_timestamp_assigner(int))
        items = numbers.map(shape.slow_item, output_type=Item)
    _count(items, counts)
    (
        items.key_by(lambda item: item.key, str)
        .window(TumblingEventTimeWindows.of(milliseconds=shape.window_ms))
        .reduce(lambda a, b: Item(a.key, a.window, a.value + b.value))
        .map(lambda item: f"{item.key} {item.window} {item.value}", output_type=str)
        .sink_to(KafkaSink(sums, Formats.text()))
    )
    return _with_options(env.get_job_graph("torture"), configuration)


def catching_up(
    shape: Shape, source: str, counts: str, configuration: Mapping[str, str], cost_s: float, *, is_keyed: bool
) -> JobGraph:
    """Returns the graph of a running count of the topic `source`, which has the indexes as text, and does not end. A
    record takes `cost_s`: in a keyed function, which runs in the StreamTask, or in a stateless one, which runs in
    Spark."""

    def read(text: str) -> Item:
        time.sleep(0 if is_keyed else cost_s)
        return shape.item(int(text))

    def add(before: Pair, one: Pair) -> Pair:
        time.sleep(cost_s if is_keyed else 0)
        return _add(before, one)

    env = StreamExecutionEnvironment()
    env.set_parallelism(shape.parallelism)
    items = env.from_source(KafkaSource(source, Formats.text())).map(read, output_type=Item)
    _count(items, counts, add)
    return _with_options(env.get_job_graph("catching up"), configuration)


def _environment_of_vertices(shape: Shape) -> StreamExecutionEnvironment:
    """Returns an environment whose partitioned records cross channels at parallelism 1, too."""
    env = StreamExecutionEnvironment()
    return env.set_parallelism(shape.parallelism).configure("execution.isolation", "vertex")


def _add(before: Pair, one: Pair) -> Pair:
    return before[0], before[1] + one[1]


def _count(items: Any, counts: str, add: Callable[[Pair, Pair], Pair] = _add) -> None:
    (
        items.map(lambda item: (item.key, 1), output_type=tuple[str, int])
        .key_by(lambda pair: pair[0], str)
        .reduce(add)
        .map(lambda pair: f"{pair[0]} {pair[1]}", output_type=str)
        .sink_to(KafkaSink(counts, Formats.text()))
    )


def _with_options(graph: JobGraph, configuration: Mapping[str, str]) -> JobGraph:
    restarts = {"restart-strategy.type": "exponential-delay"}  # also of what is bounded
    return msgspec.structs.replace(graph, configuration={**graph.configuration, **restarts, **configuration})
