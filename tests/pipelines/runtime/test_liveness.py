"""Event time goes on in a job without an end, whatever ticks are lost and whoever is restarted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import StreamExecutionEnvironment, TumblingEventTimeWindows, WatermarkStrategy
from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.schemas.types import JobGraph

from ..memory_cluster import CLUSTER, JOB, MemoryCluster, MemoryKafka

STEPS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair: pair[1])


def busy_and_silent(parallelism: int, hops: int) -> JobGraph:
    """Windows over a stream that goes on and one that brings a record and is silent from then on."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    strategy = STEPS.with_idleness(milliseconds=200)
    busy = env.generate(lambda index: ("busy", index * 10), rate_per_second=200.0)
    silent = env.generate(lambda index: ("silent", index), rate_per_second=0.0001)
    both = busy.map(lambda pair: pair, tuple[str, int]).assign_timestamps_and_watermarks(strategy)
    both = both.union(
        silent.map(lambda pair: pair, tuple[str, int]).assign_timestamps_and_watermarks(strategy)
    )
    for _ in range(hops):
        both = both.rebalance().map(lambda pair: pair, tuple[str, int])
    both.key_by(0).window(TumblingEventTimeWindows.of(milliseconds=100)).sum(1).print()
    return env.get_job_graph("endless")


def fired(kafka: MemoryKafka) -> int:
    """How many windows."""
    return len(kafka.log(output_topic(CLUSTER, JOB), 0))


@given(st.integers(1, 2), st.integers(0, 1), st.integers(0, 1 << 32), st.integers(0, 4))
@settings(max_examples=25)
def test_windows_fire_though_ticks_get_lost_and_subtasks_are_restarted(
    parallelism: int, hops: int, seed: int, crashes: int
) -> None:
    cluster = MemoryCluster(busy_and_silent(parallelism, hops), {}, seed)
    cluster.run(crashes, patience=1_000, crash_rate=0.01, until=lambda kafka: fired(kafka) >= 60)
