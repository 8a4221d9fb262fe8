"""The output of a bounded program does not depend on the order of steps, on batch boundaries or on crashes.

Each program runs in order and without a crash first, which gives the expected output; then with any seed and crashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import (
    BroadcastContext,
    BroadcastOnTimerContext,
    BroadcastProcessFunction,
    CoMapFunction,
    FilterFunction,
    Formats,
    KafkaSource,
    KeyedBroadcastContext,
    KeyedBroadcastProcessFunction,
    KeyedContext,
    KeyedProcessFunction,
    KeyedReadOnlyBroadcastContext,
    MapFunction,
    MapStateDescriptor,
    OnTimerContext,
    OutputTag,
    ProcessFunction,
    ReadOnlyBroadcastContext,
    RuntimeContext,
    StartingOffsets,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from tailrace.pipelines.testing.memory.cluster import BEGIN_MS, Message, Outcome, give_uids, run
from tailrace.schemas.types import JobGraph

Pair = tuple[str, int]
Program = Callable[[StreamExecutionEnvironment, list[Pair]], None]

ODD = OutputTag("odd", tuple[str, int])
EVENTS = WatermarkStrategy.for_bounded_out_of_orderness(milliseconds=1000).with_timestamp_assigner(
    lambda pair: pair[1]
)


def add(a: Pair, b: Pair) -> Pair:
    """Adds two values of one key."""
    return a[0], a[1] + b[1]


def words(env: StreamExecutionEnvironment, pairs: list[Pair]) -> None:
    """Returns a shuffle, and a running sum that emits each step."""
    lines = env.from_collection(pairs, tuple[str, int]).rebalance()
    lines.map(lambda pair: (pair[0], 1), tuple[str, int]).key_by(0).sum(1).print()


class Split(ProcessFunction[Pair, Pair]):
    """Sends odd numbers to a side output."""

    def process_element(self, value: Pair, context: Any) -> Iterable[Pair] | None:
        if value[1] % 2:
            context.output(ODD, value)
            return None
        return [value]


class Own(FilterFunction[Pair]):
    """Keeps this subtask's share of broadcast records: each record once, if each subtask sees all."""

    def open(self, context: RuntimeContext) -> None:
        self.subtask, self.parallelism = context.subtask_index, context.parallelism

    def filter(self, value: Pair) -> bool:
        return value[1] % self.parallelism == self.subtask


class Turns:
    """A partitioner that gives a key another partition each time."""

    def __init__(self) -> None:
        self.turn = 0

    def __call__(self, key: int, count: int) -> int:
        self.turn += 1
        return (key + self.turn) % count


def tree(env: StreamExecutionEnvironment, pairs: list[Pair]) -> None:
    """Returns an output with several consumers, chained and not; side outputs; a union; every kind of partitioning."""
    numbers = env.from_collection(pairs, tuple[str, int]).rebalance().process(Split(), tuple[str, int])
    numbers.print("even")
    numbers.get_side_output(ODD).map(lambda pair: ("odd", pair[1]), tuple[str, int]).print("chained")
    both = numbers.union(numbers.get_side_output(ODD).filter(lambda pair: pair[1] > 3))
    both.rescale().map(str).shuffle().filter(lambda text: "a" in text).print("shuffled")
    both.partition_custom(lambda key, count: key % count, lambda pair: pair[1]).map(str).print("custom")
    both.partition_custom(Turns(), lambda pair: pair[1]).map(str).print("in turns")
    own = both.broadcast().filter(Own())
    own.map(lambda pair: pair[1]).global_().filter(lambda number: number < 50).print("all to all")


def event_time(env: StreamExecutionEnvironment, pairs: list[Pair]) -> None:
    """Returns windows in event time, in which nothing is late."""
    rising = [(word, 700 * i + number) for i, (word, number) in enumerate(pairs)]
    stream = env.from_collection(rising, tuple[str, int]).assign_timestamps_and_watermarks(EVENTS)
    counted = stream.key_by(0).window(TumblingEventTimeWindows.of(milliseconds=2000)).reduce(add)
    counted.map(lambda pair: (pair[0], 1), tuple[str, int]).key_by(0).sum(1).print()
    counted.print()


def processing_time(env: StreamExecutionEnvironment, pairs: list[Pair]) -> None:
    """Returns windows in processing time, of which only the totals are certain."""
    stream = env.from_collection(pairs, tuple[str, int]).rebalance()
    stream.key_by(0).window(TumblingProcessingTimeWindows.of(milliseconds=20)).reduce(add).print()


class CountAndTell(KeyedProcessFunction[str, Pair, Pair]):
    """Counts by key, and emits at the end of time."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", int, 0))

    def process_element(self, value: Pair, context: KeyedContext[str]) -> None:
        self.count.update((self.count.value() or 0) + 1)
        context.timer_service.register_event_time_timer(1 << 62)

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterable[Pair]:
        return [(context.current_key, self.count.value() or 0)]


def timers(env: StreamExecutionEnvironment, pairs: list[Pair]) -> None:
    """Returns keyed state and timers that fire at the end."""
    env.from_collection(pairs, tuple[str, int]).key_by(0).process(CountAndTell(), tuple[str, int]).print()


class Share(CoMapFunction[Pair, str, str]):
    """Keeps this subtask's share of broadcast records; of the other stream, all."""

    def open(self, context: RuntimeContext) -> None:
        self.own = Own()
        self.own.open(context)

    def map1(self, value: Pair) -> str:
        return f"own {value}" if self.own.filter(value) else "another's"

    def map2(self, value: str) -> str:
        return f"all {value}"


def broadcast(env: StreamExecutionEnvironment, pairs: list[Pair]) -> None:
    """Returns subtasks with a broadcast input and a partitioned one; the same in a union."""
    numbers = env.from_collection(pairs, tuple[str, int]).rebalance().map(CountingMap(), tuple[str, int])
    texts = env.from_collection([word for word, _ in pairs], str).rebalance()
    shares = numbers.broadcast().connect(texts).map(Share(), output_type=str)
    shares.filter(lambda text: text != "another's").print("shares")
    none = numbers.rebalance().filter(lambda pair: pair[1] < 0)
    numbers.broadcast().union(none).filter(Own()).shuffle().map(str).print("all to all")


RULES = MapStateDescriptor[int, int]("rules", int, int)


class Ruled(KeyedBroadcastProcessFunction[str, Pair, Pair, str]):
    """Counts by key. At the end, each key emits its count, and the rules, of which all even ones were removed.

    The effects of rules are independent of each other, so their order does not matter. Some are applied to keyed state.
    """

    def open(self, context: RuntimeContext) -> None:
        self.descriptor = ValueStateDescriptor("count", int, 0)
        self.count = context.get_state(self.descriptor)

    def process_element(self, value: Pair, context: KeyedReadOnlyBroadcastContext[str]) -> None:
        self.count.update((self.count.value() or 0) + 1)
        context.timer_service.register_event_time_timer(1 << 62)

    def process_broadcast_element(self, value: Pair, context: KeyedBroadcastContext[str]) -> None:
        rules = context.get_broadcast_state(RULES)
        if value[1] not in rules:
            rules[value[1]] = rules[value[1] + 1000] = value[1] * 2
            if value[1] % 2:
                del rules[value[1]]
        context.apply_to_keyed_state(self.descriptor, lambda key, count: count.update(count.value()))

    def on_timer(self, timestamp: int, context: BroadcastOnTimerContext[str]) -> Iterable[str]:
        rules = sorted(context.get_broadcast_state(RULES).items())
        yield f"{context.current_key} {self.count.value()} {rules}"


class CountRules(BroadcastProcessFunction[int, Pair, str]):
    """Counts rules of each kind, and emits each count of the kinds of this subtask.

    One state exists only to be cleared.
    """

    def open(self, context: RuntimeContext) -> None:
        self.subtask, self.parallelism = context.subtask_index, context.parallelism

    def process_element(self, value: int, context: ReadOnlyBroadcastContext) -> Iterable[str]:
        assert all(context.get_broadcast_state(RULES).values())
        yield f"number {value}"

    def process_broadcast_element(self, value: Pair, context: BroadcastContext) -> Iterable[str]:
        rules, cleared = context.get_broadcast_state(RULES), context.get_broadcast_state(CLEARED)
        cleared[value[0]] = value
        if value[1] % 3 == 0:
            cleared.clear()
        kind = value[1] % 4
        rules[kind] = rules.get(kind, 0) + 1
        if kind % self.parallelism == self.subtask:
            yield f"rule {kind} {rules[kind]}"


CLEARED = MapStateDescriptor[str, Pair]("cleared", str, tuple[str, int])


def ruled(env: StreamExecutionEnvironment, pairs: list[Pair]) -> None:
    """Returns broadcast state with and without keys; rules of several senders."""
    numbers = env.from_collection(pairs, tuple[str, int])
    rules = numbers.rebalance().filter(lambda pair: pair[1] < 80)
    numbers.key_by(0).connect(rules.broadcast(RULES)).process(Ruled()).print("keyed")
    values = numbers.rebalance().map(lambda pair: pair[1], int)
    values.connect(rules.broadcast(RULES, CLEARED)).process(CountRules()).print("unkeyed")


class Sides(CoMapFunction[Pair, str, str]):
    """Marks the input of each record."""

    def map1(self, value: Pair) -> str:
        return f"left {value}"

    def map2(self, value: str) -> str:
        return f"right {value}"


def connected(env: StreamExecutionEnvironment, pairs: list[Pair]) -> None:
    """Returns two inputs with different functions."""
    stream = env.from_collection(pairs, tuple[str, int])
    right = env.from_collection([word for word, _ in pairs], str)
    stream.connect(right).map(Sides()).print()


def joined(env: StreamExecutionEnvironment, pairs: list[Pair]) -> None:
    """Returns joins of a stream with a part of itself, whose times differ."""
    stream = env.from_collection(list(dict.fromkeys(pairs)), tuple[str, int])
    left = stream.rebalance().assign_timestamps_and_watermarks(EVENTS)
    right = stream.filter(lambda pair: pair[1] % 3 == 0).assign_timestamps_and_watermarks(EVENTS)
    windows = TumblingEventTimeWindows.of(milliseconds=20)
    left.join(right).where(0).equal_to(0).window(windows).apply(add, tuple[str, int]).print("window")
    x, y = left.key_by(0), right.key_by(0)
    near = x.interval_join(y).between(lower_milliseconds=-30, upper_milliseconds=5)
    near.process(lambda a, b, context: [(a, b[1])], tuple[Pair, int]).print("interval")
    x.temporal_join(y, "left").apply(lambda a, b: (a, b), tuple[Pair, Pair | None]).print("temporal")


class CountingMap(MapFunction[Pair, Pair]):
    """Counts its records in an accumulator."""

    def open(self, context: RuntimeContext) -> None:
        self.seen = context.accumulator("seen")

    def map(self, value: Pair) -> Pair:
        self.seen.inc(value[1])
        return value


def counting(env: StreamExecutionEnvironment, pairs: list[Pair]) -> None:
    """Returns an accumulator on both sides of a shuffle."""
    stream = env.from_collection(pairs, tuple[str, int]).map(CountingMap(), tuple[str, int]).rebalance()
    stream.map(CountingMap(), tuple[str, int]).print()


PROGRAMS: dict[str, Program] = {
    function.__name__: function
    for function in (words, tree, broadcast, ruled, event_time, timers, connected, joined, counting)
}

inputs = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 100)), max_size=25)


ISOLATIONS = st.sampled_from(["slot", "slot", "vertex"])


def graph_of(
    program: Program,
    pairs: list[Pair],
    parallelism: int,
    chaining: bool = True,
    *,
    isolation: str = "slot",
    uids: bool = False,
) -> JobGraph:
    """`uids`: operators keep their ids at any parallelism and chaining, and later checkpoints refer to earlier ones."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism).configure("execution.isolation", isolation)
    if not chaining:
        env.disable_operator_chaining()
    program(env, pairs)
    if uids:
        give_uids(env)
        env.configure("execution.checkpointing.interval", "1 s")
    return env.get_job_graph("program")


def printed(outcome: Outcome) -> Counter[tuple[str | None, str]]:
    return Counter((message["identifier"], message["text"]) for message in outcome.printed)


@pytest.mark.parametrize("name", PROGRAMS)
@given(inputs, st.integers(1, 3), st.booleans(), ISOLATIONS, st.integers(0, 1 << 32), st.integers(0, 4))
@settings(max_examples=example_count(10))
def test_output_is_independent_of_interleaving(
    name: str, pairs: list[Pair], parallelism: int, chaining: bool, isolation: str, seed: int, crashes: int
) -> None:
    in_order = run(graph_of(PROGRAMS[name], pairs, 1))
    graph = graph_of(PROGRAMS[name], pairs, parallelism, chaining, isolation=isolation)
    anyhow = run(graph, seed=seed, crashes=crashes)
    assert printed(anyhow) == printed(in_order)
    assert anyhow.accumulators == in_order.accumulators


@given(inputs, st.integers(1, 3), st.integers(0, 1 << 32), st.integers(0, 4))
@settings(max_examples=example_count(10))
def test_processing_time_windows_count_each_record_once(
    pairs: list[Pair], parallelism: int, seed: int, crashes: int
) -> None:
    outcome = run(graph_of(processing_time, pairs, parallelism), seed=seed, crashes=crashes)
    totals: Counter[str] = Counter()
    for word, number in outcome.records:
        totals[word] += number
    expected: Counter[str] = Counter()
    for word, number in pairs:
        expected[word] += number
    assert totals == expected


@given(
    st.lists(st.lists(st.text(alphabet="ab ", max_size=5), max_size=9), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(0, 1 << 32),
    st.integers(0, 4),
)
@settings(max_examples=example_count(10))
def test_each_message_of_topic_counts_once(
    partitions: list[list[str]], parallelism: int, seed: int, crashes: int
) -> None:
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    source = KafkaSource("lines", Formats.text(), StartingOffsets.earliest(), bounded=True)
    env.from_source(source).flat_map(str.split, str).map(lambda word: (word, 1), tuple[str, int]).key_by(
        0
    ).sum(1).print()
    topic = [
        [Message(line.encode(), timestamp_ms=BEGIN_MS + i) for i, line in enumerate(lines)]
        for lines in partitions
    ]
    outcome = run(env.get_job_graph("kafka"), topics={"lines": topic}, seed=seed, crashes=crashes)
    counts = Counter(word for lines in partitions for line in lines for word in line.split())
    assert Counter(map(tuple, outcome.records)) == Counter(
        (word, i + 1) for word, count in counts.items() for i in range(count)
    )


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=9), min_size=1, max_size=4),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 1 << 32),
    st.integers(0, 4),
)
@settings(max_examples=example_count(10))
def test_no_record_is_late_if_partitions_are_in_order(
    steps: list[list[int]], parallelism: int, given_to_source: bool, seed: int, crashes: int
) -> None:
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    source = KafkaSource("lines", Formats.text(), StartingOffsets.earliest(), bounded=True)
    in_order = WatermarkStrategy.for_monotonous_timestamps()
    if given_to_source:
        lines = env.from_source(source, in_order)
    else:
        lines = env.from_source(source).filter(bool).assign_timestamps_and_watermarks(in_order)
    counted = lines.map(lambda line: (line, 1), tuple[str, int]).key_by(0)
    counted.window(TumblingEventTimeWindows.of(milliseconds=20)).sum(1).print()
    topic = [
        [Message(b"a", timestamp_ms=BEGIN_MS + at) for at in accumulate(partition)] for partition in steps
    ]
    outcome = run(env.get_job_graph("ordered"), topics={"lines": topic}, seed=seed, crashes=crashes)
    expected = Counter((message.timestamp_ms - BEGIN_MS) // 20 for part in topic for message in part)
    assert sorted(count for _, count in outcome.records) == sorted(expected.values())
