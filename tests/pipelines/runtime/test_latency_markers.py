"""Latency markers: they reach every vertex, measure what they should, and no result depends on them."""

from __future__ import annotations

import random

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import Formats, KafkaSource, StartingOffsets, StreamExecutionEnvironment
from tailrace.pipelines.graph.job_options import LatencyGranularity
from tailrace.pipelines.graph.limits import MAX_LATENCY_HISTOGRAMS
from tailrace.pipelines.runtime.common.latencies import BOUNDS_MS
from tailrace.pipelines.runtime.records.latency_markers import LatencyMarker
from tailrace.pipelines.runtime.stream_task.latency_tracker import HISTORY_SIZE, LatencyTracker
from tailrace.pipelines.testing.memory.cluster import MemoryCluster, Message, run
from tailrace.schemas.types import JobGraph

from .test_any_interleaving import PROGRAMS, Pair, Program, inputs, printed

INTERVAL = "metrics.latency.interval"
GRANULARITY = "metrics.latency.granularity"


def graph_of(program: Program, pairs: list[Pair], parallelism: int, interval: str) -> JobGraph:
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    env.configure(INTERVAL, interval)
    program(env, pairs)
    return env.get_job_graph("program")


@given(
    st.sampled_from(list(PROGRAMS)),
    inputs,
    st.integers(1, 3),
    st.integers(1, 20),
    st.integers(0, 1 << 32),
    st.integers(0, 4),
)
@settings(max_examples=example_count(15))
def test_output_is_independent_of_markers(
    name: str, pairs: list[Pair], parallelism: int, interval_ms: int, seed: int, crashes: int
) -> None:
    without = run(graph_of(PROGRAMS[name], pairs, 1, "0"))
    marked = run(
        graph_of(PROGRAMS[name], pairs, parallelism, f"{interval_ms} ms"), seed=seed, crashes=crashes
    )
    assert printed(marked) == printed(without)
    assert marked.accumulators == without.accumulators


def idle_job(granularity: LatencyGranularity, interval: str = "10 ms") -> JobGraph:
    """Returns a job with a Kafka source whose topic may be empty, and an edge of each kind."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(2)
    env.configure(INTERVAL, interval)
    env.configure(GRANULARITY, granularity.value)
    lines = env.from_source(KafkaSource("lines", Formats.text(), StartingOffsets.earliest()))
    words = lines.rebalance().flat_map(str.split, str).map(lambda word: (word, 1), tuple[str, int])
    words.key_by(0).sum(1).print()
    words.broadcast().map(str, str).shuffle().map(str.upper, str).rescale().print()
    return env.get_job_graph("idle")


def measured(cluster: MemoryCluster) -> dict[tuple[str, int], set[tuple[str, int | None]]]:
    """Returns the sources that each subtask has measured latencies from."""
    return {
        place: {(each.source_id, each.source_subtask) for each in attempt.task.latencies.report()}
        for place, attempt in cluster._attempts.items()
        if attempt.task.latencies is not None
    }


@pytest.mark.parametrize("granularity", LatencyGranularity)
@pytest.mark.parametrize("lines", [[], ["to be or", "not to be"]], ids=["idle", "records"])
@pytest.mark.parametrize("seed", [None, 7])
def test_markers_reach_every_vertex(
    granularity: LatencyGranularity, lines: list[str], seed: int | None
) -> None:
    graph = idle_job(granularity)
    source = graph.vertices[0]
    source_id = source.operators[0].operator_id
    of: dict[LatencyGranularity, set[tuple[str, int | None]]] = {
        LatencyGranularity.SINGLE: {("", None)},
        LatencyGranularity.OPERATOR: {(source_id, None)},
        LatencyGranularity.SUBTASK: {(source_id, 0), (source_id, 1)},
    }
    topic = [[Message(line.encode()) for line in lines], []]
    cluster = MemoryCluster(graph, {"lines": topic}, seed)
    behind = [
        (vertex.vertex_id, i)
        for vertex in graph.vertices
        if vertex.vertex_id != source.vertex_id
        for i in range(vertex.parallelism)
    ]
    assert len(behind) >= 8

    def has_all(_: object) -> bool:
        known = measured(cluster)
        return all(known[place] == of[granularity] for place in behind)

    cluster.run(until=has_all)
    known = measured(cluster)
    assert all(not sources for place, sources in known.items() if place not in behind)


def test_job_without_interval_measures_and_sends_nothing() -> None:
    cluster = MemoryCluster(idle_job(LatencyGranularity.OPERATOR, "0"), {"lines": [[]]}, None)
    cluster.run(until=lambda _: cluster.steps == 50)
    assert measured(cluster) == {}
    assert not any(
        header_flags(message.value) & 128
        for partitions in cluster.kafka.logs.values()
        for messages in partitions.values()
        for message in messages
    )


def header_flags(data: bytes) -> int:
    return data[1] if len(data) > 1 else 0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


def tracker(
    clock: Clock,
    granularity: LatencyGranularity = LatencyGranularity.OPERATOR,
    source_subtask: int | None = None,
) -> LatencyTracker:
    return LatencyTracker(
        operator_id="operator",
        source_subtask=source_subtask,
        interval_ms=100,
        granularity=granularity,
        wall_clock=clock,
    )


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=2 * HISTORY_SIZE))
@settings(max_examples=example_count(20))
def test_histogram_counts_each_latency_in_its_bucket(latencies: list[int]) -> None:
    clock = Clock()
    measuring = tracker(clock)
    for latency in latencies:
        clock.now = 1_000 + latency
        assert measuring.on_marker(LatencyMarker(1_000, "source", 0))
    (histogram,) = measuring.report()
    assert histogram.sum_ms == sum(latencies)
    for i, bound in enumerate(BOUNDS_MS):
        assert sum(histogram.counts[: i + 1]) == sum(latency <= bound for latency in latencies)
    assert sum(histogram.counts) == len(latencies)
    last = latencies[-HISTORY_SIZE:]
    assert histogram.recent["min"] == min(last)
    assert histogram.recent["max"] == max(last)
    quantiles = [histogram.recent[name] for name in ("p75", "p90", "p95", "p98", "p99", "p999")]
    assert quantiles == sorted(quantiles)
    assert set(quantiles) <= set(last)


def test_histograms_of_subtask_are_bounded() -> None:
    measuring = tracker(Clock(), LatencyGranularity.SUBTASK)
    subtasks = list(range(2 * MAX_LATENCY_HISTOGRAMS))
    random.Random(1).shuffle(subtasks)
    assert all(measuring.on_marker(LatencyMarker(1_000, "source", i)) for i in subtasks)
    assert len(measuring.report()) == MAX_LATENCY_HISTOGRAMS


def test_marker_from_before_attempt_is_ignored() -> None:
    measuring = tracker(Clock())
    assert not measuring.on_marker(LatencyMarker(999, "source", 0))
    assert not measuring.has_news
    assert measuring.report() == ()


def test_source_emits_one_marker_after_pause() -> None:
    clock = Clock()
    source = tracker(clock, source_subtask=3)
    assert source.take_due() == LatencyMarker(1_000, "operator", 3)
    assert source.take_due() is None
    clock.now = 1_099
    assert source.take_due() is None
    clock.now = 5_000
    assert source.take_due() == LatencyMarker(5_000, "operator", 3)
    assert source.next_marker == 5_100
    assert tracker(clock).take_due() is None
