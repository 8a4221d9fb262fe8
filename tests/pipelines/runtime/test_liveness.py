"""Event time advances in an unbounded job, with any lost ticks and restarts."""

from __future__ import annotations

import re

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import (
    Formats,
    KafkaSource,
    KeyedContext,
    KeyedProcessFunction,
    StartingOffsets,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from tailrace.pipelines.checkpoint.compatibility import incompatibilities
from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.pipelines.runtime.common.failures import UserCodeError
from tailrace.pipelines.testing.memory.checkpoints import Plan
from tailrace.pipelines.testing.memory.cluster import (
    CLUSTER,
    JOB,
    MemoryCluster,
    MemoryKafka,
    Message,
    give_uids,
)
from tailrace.schemas.types import JobGraph

from ..checkpoint_storage import storage

STEPS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair: pair[1])


def busy_and_silent(parallelism: int, hops: int) -> JobGraph:
    """Returns windows over an active stream and one that emits a record and is silent afterwards."""
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
    """Returns how many windows have fired."""
    return len(kafka.log(output_topic(CLUSTER, JOB), 0))


@given(st.integers(1, 2), st.integers(0, 1), st.integers(0, 1 << 32), st.integers(0, 4))
@settings(max_examples=example_count(15))
def test_windows_fire_despite_lost_ticks_and_restarts(
    parallelism: int, hops: int, seed: int, crashes: int
) -> None:
    cluster = MemoryCluster(busy_and_silent(parallelism, hops), {}, seed)
    cluster.run(crashes, patience=1_000, crash_rate=0.01, until=lambda kafka: fired(kafka) >= 60)


def few_partitions(parallelism: int, place: str) -> JobGraph:
    """Returns windows over an unbounded topic with more subtasks than partitions. `place`: the place of the
    strategy."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    env.configure("execution.checkpointing.interval", "1 s")
    source = KafkaSource("numbers", Formats.text(), StartingOffsets.earliest())
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(int)
    if place == "source":
        numbers = env.from_source(source, strategy)
    else:
        numbers = env.from_source(source).map(lambda text: text, str)
        if place == "another vertex":
            numbers = numbers.start_new_chain()
        numbers = numbers.assign_timestamps_and_watermarks(strategy)
    pairs = numbers.map(lambda text: (int(text) // 10 % 3, 1), tuple[int, int]).rebalance()
    counted = pairs.map(lambda pair: pair, tuple[int, int]).key_by(0)
    counted.window(TumblingEventTimeWindows.of(milliseconds=10)).sum(1).print()
    give_uids(env)
    return env.get_job_graph("endless")


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(["source", "chained", "another vertex"]),
    st.integers(0, 1 << 32),
    st.integers(0, 3),
)
@settings(max_examples=8)
def test_windows_fire_with_subtasks_without_partition(
    parallelism: int, other: int, place: str, seed: int, crashes: int
) -> None:
    def logs(count: int) -> dict[str, list[list[Message]]]:
        return {
            "numbers": [
                [Message(str(index).encode()) for index in range(part, count, 2)] for part in range(2)
            ]
        }

    if place == "another vertex":
        parallelism = max(
            2, parallelism
        )  # each of its subtasks has one partition at most: records are in order
    with storage(seed) as directory:
        job = MemoryCluster(
            few_partitions(parallelism, place), logs(200), seed, directory=directory, plan=Plan(rate=0.05)
        )
        job.run(crashes, crash_rate=0.01, until=lambda kafka: fired(kafka) >= 19)
        graph = few_partitions(other, place)
        for checkpoint in job.taken[-1:]:
            if incompatibilities(checkpoint.metadata, graph) or place == "another vertex":
                continue
            # Event time begins again with the next records.
            again = MemoryCluster(graph, logs(300), seed + 1, job_id="again", restored=checkpoint)
            again.run(crashes, crash_rate=0.01, until=lambda _, job=again: len(job.given) >= 29)
            assert sorted(row["record"] for row in again.given) == sorted(
                [number % 3, 10] for number in range(29)
            )


class WakeUp(KeyedProcessFunction[str, str, str]):
    """Registers a timer in event time."""

    def process_element(self, value: str, context: KeyedContext[str]) -> None:
        context.timer_service.register_event_time_timer(1_000)


def test_timer_held_back_by_stream_without_watermarks_is_rejected() -> None:
    env = StreamExecutionEnvironment()
    earliest = StartingOffsets.earliest()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    orders = env.from_source(KafkaSource("orders", Formats.text(), earliest), strategy)
    prices = env.from_source(KafkaSource("prices", Formats.text(), earliest))
    orders.union(prices).key_by(lambda text: text, str).process(WakeUp(), str).print()
    logs = {"orders": [[Message(b"a")]], "prices": [[Message(b"b")]]}
    cluster = MemoryCluster(env.get_job_graph("held"), logs, 1)
    with pytest.raises(UserCodeError) as caught:
        cluster.run(until=lambda _: False)
    why = str(caught.value.__cause__)
    assert re.search(r"Source: Kafka prices \(.*test_liveness.py:\d+\), which has no watermark strategy", why)
