"""The error of a failing function names the position of the record, also after shuffles, in each attempt.

The test looks up the named record in the log of the channel, at its offset and number. The next attempt fails with the
same message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import (
    AggregateFunction,
    BroadcastContext,
    BroadcastProcessFunction,
    CoMapFunction,
    EventTimeSessionWindows,
    FilterFunction,
    FlatMapFunction,
    Formats,
    KafkaSink,
    KafkaSource,
    KeyedBroadcastContext,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    OnTimerContext,
    ProcessFunction,
    ProcessWindowFunction,
    ReadOnlyBroadcastContext,
    StartingOffsets,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    WindowContext,
)
from tailrace.pipelines.functions import CoFlatMapFunction, CoProcessFunction, KeyedCoProcessFunction
from tailrace.pipelines.graph.chain import edge_type
from tailrace.pipelines.graph.physical_plan import channel_topic
from tailrace.pipelines.runtime.common.failures import RecordError, describe_failure
from tailrace.pipelines.runtime.records.buffers import BufferCodec
from tailrace.pipelines.testing.memory.cluster import CLUSTER, JOB, MemoryCluster, Message
from tailrace.services.core.failure_repetition import describe_repetition

Pair = tuple[str, int]
PAIR = tuple[str, int]
BAD = 13
RULES = MapStateDescriptor[int, int]("rules", int, int)
EVENTS = WatermarkStrategy.for_bounded_out_of_orderness(milliseconds=1000).with_timestamp_assigner(
    lambda pair: pair[1]
)


def checked(value: Pair) -> Pair:
    """The function that fails."""
    if value[1] == BAD:
        raise ValueError(f"no such number, says {object()}")
    return value


def last_checked(a: Pair, b: Pair) -> Pair:
    """A reduce that keeps every invalid number, in any order."""
    return a if a[1] == BAD else checked(b)


class Same(MapFunction[Pair, Pair], FlatMapFunction[Pair, Pair], FilterFunction[Pair]):
    """Rich functions, which run in the StreamTask."""

    def map(self, value: Pair) -> Pair:
        return checked(value)

    def flat_map(self, value: Pair) -> Iterable[Pair]:
        yield checked(value)

    def filter(self, value: Pair) -> bool:
        return bool(checked(value))


class Unfit(MapFunction[Pair, object]):
    """Returns a value without a JSON form."""

    def map(self, value: Pair) -> object:
        return object() if value[1] == BAD else value[1]


class Unchanged(ProcessFunction[Pair, Pair], MapFunction[Pair, Pair]):
    """Returns everything unchanged."""

    def map(self, value: Pair) -> Pair:
        return value

    def process_element(self, value: Pair, context: Any) -> Iterable[Pair]:
        yield value


class Odd(FilterFunction[Pair]):
    def filter(self, value: Pair) -> bool:
        return value[1] % 2 == 1


class Twice(FlatMapFunction[Pair, Pair]):
    def flat_map(self, value: Pair) -> list[Pair]:
        return [value] * (value[1] % 3)


class Check(ProcessFunction[Pair, Pair]):
    def process_element(self, value: Pair, context: Any) -> Iterable[Pair]:
        yield checked(value)


class Keyed(KeyedProcessFunction[str, Pair, Pair]):
    def process_element(self, value: Pair, context: Any) -> Iterable[Pair]:
        yield checked(value)


class Mapped(CoMapFunction[Pair, Pair, Pair]):
    def map1(self, value: Pair) -> Pair:
        return checked(value)

    def map2(self, value: Pair) -> Pair:
        return value


class FlatMapped(CoFlatMapFunction[Pair, Pair, Pair]):
    def flat_map1(self, value: Pair) -> list[Pair]:
        return []

    def flat_map2(self, value: Pair) -> list[Pair]:
        return [checked(value)]


class Two(CoProcessFunction[Pair, Pair, Pair]):
    def process_element1(self, value: Pair, context: Any) -> None:
        return None

    def process_element2(self, value: Pair, context: Any) -> Iterable[Pair]:
        yield checked(value)


class KeyedTwo(KeyedCoProcessFunction[str, Pair, Pair, Pair]):
    def process_element1(self, value: Pair, context: Any) -> Iterable[Pair]:
        yield checked(value)

    def process_element2(self, value: Pair, context: Any) -> None:
        return None


class Ruled(BroadcastProcessFunction[Pair, Pair, Pair]):
    def process_element(self, value: Pair, context: ReadOnlyBroadcastContext) -> None:
        return None

    def process_broadcast_element(self, value: Pair, context: BroadcastContext) -> None:
        checked(value)


class KeyedRuled(KeyedBroadcastProcessFunction[str, Pair, Pair, Pair]):
    def process_element(self, value: Pair, context: Any) -> None:
        return None

    def process_broadcast_element(self, value: Pair, context: KeyedBroadcastContext[str]) -> None:
        checked(value)


class Sum(AggregateFunction[Pair, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Pair, accumulator: int) -> int:
        return accumulator + checked(value)[1]

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, first: int, second: int) -> int:
        return first + second


Program = Callable[[Any, Any], Any]
"""Of a stream of pairs that every operator receives through a channel, and a second one."""
DAY = TumblingEventTimeWindows.of(seconds=86_400)
PROGRAMS: dict[str, Program] = {
    "map": lambda s, _: s.map(Same(), PAIR),
    "flat_map": lambda s, _: s.flat_map(Same(), PAIR),
    "filter": lambda s, _: s.filter(Same()),
    "map behind a filter": lambda s, _: s.filter(Odd()).map(Same(), PAIR),
    "map behind a flat_map": lambda s, _: s.flat_map(Twice(), PAIR).map(Same(), PAIR),
    "map behind a process": lambda s, _: s.process(Unchanged(), PAIR).map(Same(), PAIR),
    "map behind a reduce": lambda s, _: s.key_by(0).reduce(lambda a, b: b).map(Same(), PAIR),
    "process": lambda s, _: s.process(Check(), PAIR),
    "foreach": lambda s, _: s.filter(Odd()).foreach(checked),
    "timestamps": lambda s, _: s.filter(Odd()).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair: checked(pair)[1])
    ),
    "key of a sink": lambda s, _: s.sink_to(KafkaSink("out", Formats.json(), key=lambda p: checked(p)[0])),
    "format of a sink": lambda s, _: s.map(Unfit(), object).sink_to(KafkaSink("out", Formats.json())),
    "key of a partition": lambda s, _: (
        s.filter(Odd())
        .partition_custom(lambda key, count: 0, lambda pair: checked(pair)[1])
        .map(Unchanged(), PAIR)
    ),
    "co_map": lambda s, t: s.connect(t).map(Mapped(), output_type=PAIR),
    "co_flat_map": lambda s, t: t.connect(s).flat_map(FlatMapped(), output_type=PAIR),
    "co_process": lambda s, t: t.connect(s).process(Two(), PAIR),
    "broadcast": lambda s, t: t.connect(s.broadcast(RULES)).process(Ruled(), PAIR),
    "keyed process": lambda s, _: s.key_by(0).process(Keyed(), PAIR),
    "keyed co_process": lambda s, t: s.key_by(0).connect(t.key_by(0)).process(KeyedTwo(), PAIR),
    "keyed broadcast": lambda s, t: t.key_by(0).connect(s.broadcast(RULES)).process(KeyedRuled(), PAIR),
    "reduce": lambda s, _: s.key_by(0).reduce(last_checked),
    "window reduce": lambda s, _: s.key_by(0).window(DAY).reduce(last_checked),
    "window aggregate": lambda s, _: s.key_by(0).window(DAY).aggregate(Sum()),
    "session": lambda s, _: (
        s.key_by(0).window(EventTimeSessionWindows.with_gap(milliseconds=5)).aggregate(Sum())
    ),
}
INEXACT = {"map behind a process", "window reduce"}
"""What fails was made of several records, or of one that is not known any more."""
ORDERED = {"reduce", "window reduce"}
"""What fails is the second record of its key or a later one: one sender keeps their order."""
KEYED = {"keyed process", "keyed co_process", "reduce", "window aggregate", "session"}
PLACE = re.compile(
    r", at topic (\S+) \[(\d+)\] offset (\d+)(?:, (?:record (\d+)|one) of (\d+)(?: behind '\w+')?)?(?:, key '(\w+)')?$"
)


def cluster_of(
    build: Callable[[StreamExecutionEnvironment], Any],
    parallelism: int,
    seed: int | None = None,
    topics: dict[str, list[list[Message]]] | None = None,
    isolation: str = "vertex",
) -> MemoryCluster:
    """Returns a memory cluster of a program."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism).configure("execution.isolation", isolation)
    stream = build(env)
    if hasattr(stream, "print"):
        stream.print()
    return MemoryCluster(env.get_job_graph("fails"), topics or {}, seed, topics_end=True)


def failures(cluster: MemoryCluster, attempts: int = 2) -> list[str]:
    """Returns the first lines of the errors of so many attempts in a row."""
    lines = []
    for _ in range(attempts):
        with pytest.raises(RecordError) as raised:
            cluster.run()
        lines.append(describe_failure(raised.value).splitlines()[0])
    return lines


def at(cluster: MemoryCluster, topic: str, partition: int, offset: int) -> list[Any]:
    """Returns the records of the buffer at the position."""
    edge = next(
        edge for edge in cluster.graph.edges if channel_topic(CLUSTER, JOB, edge.data_set_id) == topic
    )
    _, batch = BufferCodec(edge_type(cluster.graph, edge)).decode(
        cluster.kafka.log(topic, partition)[offset].value
    )
    return batch.values


@pytest.mark.parametrize("name", PROGRAMS)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99).filter(BAD.__ne__)), max_size=12),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99).filter(BAD.__ne__)), max_size=3),
    st.sampled_from("abc"),
    st.integers(1, 3),
    st.integers(0, 1 << 32),
)
@settings(max_examples=6)
def test_failure_names_record_in_its_channel(
    name: str, before: list[Pair], behind: list[Pair], key: str, parallelism: int, seed: int
) -> None:
    pairs = [("a", 0), ("b", 0), ("c", 0), *before, (key, BAD), *behind]

    def build(env: StreamExecutionEnvironment) -> Any:
        source = env.from_collection(pairs, PAIR)
        stream = source.assign_timestamps_and_watermarks(EVENTS)
        if name in ORDERED:
            source.set_parallelism(1)
            stream.set_parallelism(1)
        return PROGRAMS[name](stream.rebalance(), env.from_collection([("a", 1)], PAIR).rebalance())

    cluster = cluster_of(build, parallelism, seed)
    lines = failures(cluster)
    matches = [PLACE.search(line) for line in lines]
    assert all(matches), lines
    for topic, partition, offset, number, count, named in (match.groups() for match in matches if match):
        records = at(cluster, topic, int(partition), int(offset))
        assert len(records) == int(count or 1)
        assert (key, BAD) in records
        if name not in INEXACT:
            assert count is None or records[int(number) - 1] == (key, BAD)
            assert named == (key if name in KEYED else None)
    if len({match.group(2) for match in matches if match}) == 1:  # of a broadcast, each subtask has a copy
        assert describe_repetition(lines).startswith("fails again at the same position, topic ")


class Timed(KeyedProcessFunction[str, Pair, Pair]):
    """Fails when a timer fires."""

    def process_element(self, value: Pair, context: Any) -> None:
        context.timer_service.register_event_time_timer(value[1] + 100)

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterable[Pair]:
        yield checked((context.current_key, timestamp - 100))


class Fired(ProcessWindowFunction[Pair, Pair, str]):
    """Fails when its window fires."""

    def process(self, key: str, context: WindowContext, elements: Iterable[Pair]) -> Iterable[Pair]:
        return map(checked, elements)


class Half(AggregateFunction[Pair, int, int]):
    """Fails when its result is requested."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Pair, accumulator: int) -> int:
        return max(accumulator, value[1])

    def get_result(self, accumulator: int) -> int:
        return checked(("", accumulator))[1]

    def merge(self, first: int, second: int) -> int:
        return max(first, second)


TEN = TumblingEventTimeWindows.of(milliseconds=10)


@pytest.mark.parametrize(
    ("program", "place"),
    [
        (lambda s: s.key_by(0).process(Timed(), PAIR), "the event-time timer 113, key 'b'"),
        (lambda s: s.key_by(0).window(TEN).process(Fired(), PAIR), "the window [10, 20), key 'b'"),
        (lambda s: s.key_by(0).window(TEN).aggregate(Half()), "the window [10, 20), key 'b'"),
        (
            lambda s: s.key_by(0).window(TEN).reduce(lambda a, b: a).map(Same(), PAIR),
            "a result of the window [10, 20)",
        ),
        (
            lambda s: (
                s.key_by(0).window(EventTimeSessionWindows.with_gap(milliseconds=3)).process(Fired(), PAIR)
            ),
            "the session that ends at 16, key 'b'",
        ),
    ],
)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_failure_names_timer_or_window(program: Any, place: str, seed: int | None) -> None:
    pairs = [("a", 1), ("a", 11), ("b", BAD), ("c", 18), ("a", 50)]

    def build(env: StreamExecutionEnvironment) -> Any:
        return program(env.from_collection(pairs, PAIR).assign_timestamps_and_watermarks(EVENTS))

    lines = failures(cluster_of(build, 2, seed))
    assert all(line.endswith(f", at {place}") for line in lines), lines
    assert describe_repetition(lines) == f"fails again at the same position, {place}, for the 2nd time"


def test_failure_in_keyed_operator_of_chain_names_record_of_source() -> None:
    def build(env: StreamExecutionEnvironment) -> Any:
        return env.from_collection([("a", 1), ("b", BAD)], PAIR).key_by(0).process(Keyed(), PAIR)

    lines = failures(cluster_of(build, 1, isolation="slot"))
    assert all(line.endswith(", at index 1 of the collection, key 'b'") for line in lines), lines


def lines_of(numbers: Iterable[int], directory: Path) -> Path:
    """Returns a text file with a number in each line."""
    path = directory / "numbers.txt"
    path.write_text("".join(f"{number}\n" for number in numbers))
    return path


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize(
    "source", ["collection", "generator", "failing generator", "file", "parts of a file"]
)
def test_failure_names_record_of_source(
    source: str, seed: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [*range(100, 140), BAD, *range(200, 220)]

    def build(env: StreamExecutionEnvironment) -> Any:
        match source:
            case "collection":
                stream = env.from_collection(numbers, int)
            case "generator":
                stream = env.generate(lambda index: numbers[index], len(numbers), output_type=int)
            case "failing generator":
                return env.generate(
                    lambda index: checked(("", numbers[index]))[1], len(numbers), output_type=int
                )
            case _:
                stream = env.read_text_file(str(lines_of(numbers, tmp_path))).map(int, int)
        return stream.map(lambda number: checked(("", number))[1], int).process(Unchanged(), int)

    expected = {
        "collection": "index 40 of the collection",
        "generator": "index 40 of the generator",
        "failing generator": "index 40 of the generator",
        "file": f"{tmp_path}/numbers.txt, line 41",
        "parts of a file": f"{tmp_path}/numbers.txt, line 15 behind byte 100",
    }[source]
    if source == "parts of a file":
        monkeypatch.setattr("tailrace.pipelines.runtime.operators.files.file_reader.SPLIT_BYTES", 100)
    lines = failures(cluster_of(build, 1 if source == "collection" else 2, seed))
    assert all(line.endswith(f", at {expected}") for line in lines), lines


@given(st.lists(st.integers(0, 99).filter(BAD.__ne__), max_size=9), st.integers(0, 1 << 32), st.booleans())
@settings(max_examples=10)
def test_failure_names_message_of_topic(numbers: list[int], seed: int, alone: bool) -> None:
    log = [Message(b"%d" % number) for number in [*numbers, BAD, *numbers]]
    source = KafkaSource("numbers", Formats.json(), StartingOffsets.earliest(), bounded=True, output_type=int)

    def build(env: StreamExecutionEnvironment) -> Any:
        stream = env.from_source(source)
        if not alone:
            stream = stream.filter(lambda number: True)
        return stream.process(Numbers(), int)

    lines = failures(cluster_of(build, 1, seed, {"numbers": [log]}))
    for line in lines:
        match = re.search(r", at topic numbers \[0\] offsets? (\d+)(?: to (\d+))?$", line)
        assert match, line
        first, last = int(match[1]), int(match[2] or match[1])
        assert first <= len(numbers) <= last
        assert first == last or not alone


class Numbers(ProcessFunction[int, int]):
    """A source of numbers that fails at one."""

    def process_element(self, value: int, context: Any) -> Iterable[int]:
        yield checked(("", value))[1]
