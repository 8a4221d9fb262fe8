"""An idle job sends nothing, whatever waits for a time in it, and its timers fire nevertheless."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import (
    BroadcastProcessFunction,
    DataStream,
    Formats,
    KafkaSource,
    KeyedBroadcastProcessFunction,
    KeyedContext,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OnTimerContext,
    ProcessingTimeSessionWindows,
    RuntimeContext,
    StartingOffsets,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WatermarkStrategy,
)
from tailrace.pipelines.checkpoint.compatibility import incompatibilities
from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.pipelines.runtime.common.event_time import event_time_edges
from tailrace.pipelines.runtime.stream_task.output.record_writer import REPEATED_AT_ONCE
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

SETTLED = 300
"""Steps (and milliseconds) after which everything that the records brought has been done."""
EVENT_TIME_REPEATED = 100
"""Steps."""
DELAY_MS = 20
"""Of a timer behind its record."""
RULES = MapStateDescriptor("rules", str, str)
STEPS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(len)


class Plain(KeyedProcessFunction[str, str, str]):
    """A function without timers."""

    def process_element(self, value: str, context: KeyedContext[str]) -> Iterable[str]:
        return [value]


class Delayed(KeyedProcessFunction[str, str, str]):
    """Holds each record until a timer in processing time fires; one more timer is far away."""

    def open(self, context: RuntimeContext) -> None:
        self.waiting = context.get_list_state(ListStateDescriptor[str]("waiting", str))

    def process_element(self, value: str, context: KeyedContext[str]) -> Iterable[str] | None:
        self.waiting.add(value)
        timers = context.timer_service
        now = timers.current_processing_time()
        timers.register_processing_time_timer(now + DELAY_MS)
        timers.register_processing_time_timer(now + 86_400_000)
        return None

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterable[str]:
        assert context.timer_service.current_processing_time() > timestamp
        values = list(self.waiting)
        self.waiting.clear()
        return values


class DelayedOfTwo(Delayed, KeyedCoProcessFunction[str, str, str, str]):
    def process_element1(self, value: str, context: KeyedContext[str]) -> None:
        self.process_element(value, context)

    process_element2 = process_element1


class InEventTime(Delayed):
    """The same with timers in event time, most of which never fire."""

    def process_element(self, value: str, context: KeyedContext[str]) -> Iterable[str]:
        context.timer_service.register_event_time_timer(context.timestamp + 1_000)
        return [value]


class Ruled(BroadcastProcessFunction[str, str, str]):
    def process_element(self, value: str, context: Any) -> Iterable[str]:
        return [value]

    def process_broadcast_element(self, value: str, context: Any) -> None:
        context.get_broadcast_state(RULES)[value] = value


class RuledByKey(Delayed, KeyedBroadcastProcessFunction[str, str, str, str]):
    def process_broadcast_element(self, value: str, context: Any) -> None:
        context.get_broadcast_state(RULES)[value] = value


def first(value: str) -> str:
    return value[:1]


def joined(one: str, other: str) -> str:
    return f"{one},{other}"


KINDS: dict[str, Callable[[DataStream[str], DataStream[str]], DataStream[str]]] = {
    "keyed, without timers": lambda a, b: a.key_by(first).process(Plain(), str),
    "keyed, with timers": lambda a, b: a.key_by(first).process(Delayed(), str),
    "keyed, with timers in event time": lambda a, b: timed(a).key_by(first).process(InEventTime(), str),
    "connected, with timers": lambda a, b: (
        a.key_by(first).connect(b.key_by(first)).process(DelayedOfTwo(), str)
    ),
    "broadcast": lambda a, b: a.connect(b.broadcast(RULES)).process(Ruled(), str),
    "keyed broadcast, with timers": lambda a, b: (
        a.key_by(first).connect(b.broadcast(RULES)).process(RuledByKey(), str)
    ),
    "tumbling windows": lambda a, b: (
        a.key_by(first).window(TumblingProcessingTimeWindows.of(milliseconds=DELAY_MS)).reduce(joined)
    ),
    "sessions": lambda a, b: (
        a.key_by(first).window(ProcessingTimeSessionWindows.with_gap(milliseconds=DELAY_MS)).reduce(joined)
    ),
    "windows in event time": lambda a, b: (
        timed(a).key_by(first).window(TumblingEventTimeWindows.of(milliseconds=1)).reduce(joined)
    ),
    "windows in event time, idleness": lambda a, b: (
        timed(a, idle_after_ms=50)
        .key_by(first)
        .window(TumblingEventTimeWindows.of(milliseconds=1))
        .reduce(joined)
    ),
}


def timed(stream: DataStream[str], idle_after_ms: int | None = None) -> DataStream[str]:
    strategy = STEPS if idle_after_ms is None else STEPS.with_idleness(milliseconds=idle_after_ms)
    return stream.assign_timestamps_and_watermarks(strategy)


def job(kind: str, parallelism: int) -> JobGraph:
    """Returns a job with the operator behind two shuffles and before one, over unbounded topics."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    env.configure("execution.checkpointing.interval", "1 s")
    sources = [
        env.from_source(KafkaSource(name, Formats.text(), StartingOffsets.earliest())) for name in TOPICS
    ]
    a, b = (source.rebalance().map(same, str) for source in sources)
    KINDS[kind](a, b).rebalance().map(same, str).print()
    give_uids(env)
    return env.get_job_graph("idle")


def same(value: str) -> str:
    return value


VALUES = [letter * count for letter in "abcdef" for count in (1, 2, 3)]
TOPICS = {
    "one": [[Message(item.encode()) for item in VALUES[part::4]] for part in range(4)],
    "other": [[Message(f"{part}".encode())] for part in range(4)],
}


def messages(kafka: MemoryKafka) -> int:
    return sum(len(log) for logs in kafka.logs.values() for log in logs.values())


def printed(kafka: MemoryKafka) -> list[str]:
    return [json.loads(message.value)["record"] for message in kafka.log(output_topic(CLUSTER, JOB), 0)]


def idle_messages(kind: str, parallelism: int, idle: int) -> int:
    """Returns how many messages a job sends in so many steps after it is idle."""
    cluster = MemoryCluster(job(kind, parallelism), TOPICS, None)
    counts: dict[int, int] = {}

    def until(kafka: MemoryKafka) -> bool:
        counts[cluster.steps] = messages(kafka)
        return cluster.steps >= SETTLED + idle

    cluster.run(until=until)
    assert counts[SETTLED] > len(VALUES), "it has done something before"
    return counts[SETTLED + idle] - counts[SETTLED]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "event time" not in kind])
def test_idle_job_sends_nothing(kind: str) -> None:
    assert idle_messages(kind, 4, 1_000) == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "event time" in kind])
def test_idle_job_repeats_event_time_to_a_few_receivers_in_turn(kind: str) -> None:
    rounds, parallelism = 2, 10
    edges = len(event_time_edges(job(kind, parallelism)))
    sent = idle_messages(kind, parallelism, rounds * EVENT_TIME_REPEATED)
    assert 0 < sent <= edges * rounds * parallelism * REPEATED_AT_ONCE


BY_THE_CLOCK = [kind for kind in KINDS if kind.endswith((", with timers", "sessions", "tumbling windows"))]


@pytest.mark.parametrize("kind", BY_THE_CLOCK)
def test_processing_time_timer_fires_in_time(kind: str) -> None:
    cluster = MemoryCluster(job(kind, 4), TOPICS, None)
    everything = sorted(VALUES)

    def until(kafka: MemoryKafka) -> bool:
        given = sorted(item for line in printed(kafka) for item in line.split(",") if item.isalpha())
        assert given == everything or cluster.steps < 2 * DELAY_MS + 10, "a millisecond is a step"
        return given == everything

    cluster.run(until=until)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 1 << 32), st.integers(0, 4))
@settings(max_examples=example_count(10))
def test_timers_before_crash_or_savepoint_fire_once_after_it(
    parallelism: int, other: int, seed: int, crashes: int
) -> None:
    kind = "keyed, with timers"
    with storage(seed) as directory:
        before = MemoryCluster(job(kind, parallelism), TOPICS, seed, directory=directory, plan=Plan(rate=0.1))
        before.run(
            crashes, crash_rate=0.02, until=lambda _: len(before.given) >= len(VALUES) or before.steps > 4_000
        )
        assert Counter(row["record"] for row in before.given) == Counter(VALUES)
        for checkpoint in before.taken[:: max(1, len(before.taken) // 2)]:
            graph = job(kind, other)
            if incompatibilities(checkpoint.metadata, graph):
                continue
            after = MemoryCluster(graph, TOPICS, seed + 1, job_id="again", restored=checkpoint)
            after.run(crashes, crash_rate=0.02, until=lambda _, after=after: len(after.given) >= len(VALUES))
            assert Counter(entry["record"] for entry in after.given) == Counter(VALUES)
