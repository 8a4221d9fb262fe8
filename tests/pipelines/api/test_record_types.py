"""The record types of streams: by type hints, by declaration, or pickled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from operator import methodcaller
from typing import Any, Generic, NamedTuple, TypeVar

import pytest

from tailrace.pipelines.api import (
    AggregateFunction,
    CoMapFunction,
    Context,
    DataStream,
    FlatMapFunction,
    Formats,
    KafkaSource,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TumblingProcessingTimeWindows,
    Types,
    WindowContext,
)
from tailrace.pipelines.types import RecordType

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Word:
    text: str
    count: int


class Point(NamedTuple):
    x: int
    y: float


def length(line: str) -> int:
    return len(line)


def words(line: str) -> Iterator[Word]:
    yield from (Word(word, 1) for word in line.split())


def add(a: Word, b: Word) -> Word:
    return Word(a.text, a.count + b.count)


class Splitter:
    def open(self, context: object) -> None: ...

    def __call__(self, line: str) -> list[str]:
        return line.split()


class Hinted(MapFunction[str, Any]):
    def map(self, value: str) -> Point:
        return Point(1, 2.0)


class ByBase(MapFunction[str, Point]):
    def map(self, value):  # type: ignore[no-untyped-def]
        return Point(1, 2.0)


class Middle(MapFunction[T, list[U]], Generic[U, T]):
    def map(self, value: T) -> list[U]:
        return []


class ByGrandparent(Middle[int, str]):
    pass


class Unsaid(MapFunction):  # type: ignore[type-arg]
    def map(self, value):  # type: ignore[no-untyped-def]
        return value


class Flat(FlatMapFunction[str, int]):
    def flat_map(self, value: str) -> Iterable[int]:
        return []


class Maybe(ProcessFunction[str, Any]):
    def process_element(self, value: str, context: Context) -> Iterable[Word] | None:
        return None


class WithTimers(KeyedProcessFunction[str, str, Point]):
    def process_element(self, value, context):  # type: ignore[no-untyped-def]
        return None


class OnlyTimers(KeyedProcessFunction[str, str, Point]):
    def process_element(self, value: str, context: Context) -> None:
        return None


class Agreeing(CoMapFunction[str, int, Any]):
    def map1(self, value: str) -> int:
        return 1

    def map2(self, value: int) -> int:
        return 2


class Disagreeing(Agreeing):
    def map2(self, value: int) -> str:  # type: ignore[override]
        return ""


class Mean(AggregateFunction[Word, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Word, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return 0.0

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a


class Fired(ProcessWindowFunction[Any, str, str]):
    def process(self, key: str, context: WindowContext, elements: Iterable[Any]) -> Iterator[str]:
        yield key


def fired(key: str, context: WindowContext, elements: Iterable[Word]) -> list[Point]:
    return []


FIVE_SECONDS = TumblingProcessingTimeWindows.of(seconds=5)


def windowed(stream: DataStream[str]) -> Any:
    return stream.flat_map(words).key_by("text").window(FIVE_SECONDS)


TYPES: dict[str, tuple[Callable[[DataStream[str]], DataStream[Any]], object]] = {
    "map by hint": (lambda s: s.map(length), int),
    "map by class": (lambda s: s.map(int), int),
    "map by lambda": (lambda s: s.map(lambda x: 1), None),
    "map declared": (lambda s: s.map(lambda x: 1, output_type=int), int),
    "map declared as PyFlink does": (lambda s: s.map(lambda x: 1, Types.LONG()), int),
    "map by builtin": (lambda s: s.map(len), None),
    "map by partial": (lambda s: s.map(functools.partial(length)), int),
    "map by the hint of a MapFunction's method": (lambda s: s.map(Hinted()), Point),
    "map by the type argument of a MapFunction": (lambda s: s.map(ByBase()), Point),
    "map by a type argument further up": (lambda s: s.map(ByGrandparent()), list[int]),
    "map by nothing": (lambda s: s.map(Unsaid()), None),
    "returns": (lambda s: s.map(lambda x: (x, 1)).returns(tuple[str, int]), tuple[str, int]),
    "flat_map by Iterator": (lambda s: s.flat_map(words), Word),
    "flat_map by object": (lambda s: s.flat_map(Splitter()), str),
    "flat_map by method": (lambda s: s.flat_map(str.split), None),
    "flat_map declared": (lambda s: s.flat_map(methodcaller("split"), str), str),
    "flat_map by FlatMapFunction": (lambda s: s.flat_map(Flat()), int),
    "filter keeps": (lambda s: s.map(length).filter(bool), int),
    "process by elements that may be none": (lambda s: s.process(Maybe()), Word),
    "keyed process by type argument": (lambda s: s.key_by(str.lower).process(WithTimers()), Point),
    "keyed process whose timers alone give": (lambda s: s.key_by(str.lower).process(OnlyTimers()), Point),
    "rich map on a keyed stream": (lambda s: s.key_by(str.lower).map(Hinted()), Point),
    "running reduce keeps": (lambda s: s.flat_map(words).key_by("text").reduce(add), Word),
    "sum keeps": (lambda s: s.flat_map(words).key_by(lambda w: w.text).sum("count"), Word),
    "partitioning keeps": (lambda s: s.map(length).rebalance(), int),
    "union keeps": (lambda s: s.map(length).union(s.map(length)), int),
    "co-map whose methods agree": (lambda s: s.connect(s.map(length)).map(Agreeing()), int),
    "co-map whose methods disagree": (lambda s: s.connect(s.map(length)).map(Disagreeing()), None),
    "co-map by two functions": (lambda s: s.connect(s).map(length, length), int),
    "a side output": (lambda s: s.process(Maybe()).get_side_output(OutputTag("x", int)), int),
    "a side output that says nothing": (lambda s: s.process(Maybe()).get_side_output(OutputTag("x")), None),
    "window reduce": (lambda s: windowed(s).reduce(add), Word),
    "window reduce and function": (lambda s: windowed(s).reduce(add, fired), Point),
    "window aggregate": (lambda s: windowed(s).aggregate(Mean()), float),
    "window aggregate and class": (lambda s: windowed(s).aggregate(Mean(), Fired()), str),
    "window process": (lambda s: windowed(s).process(Fired()), str),
    "window process declared": (lambda s: windowed(s).process(lambda k, c, e: [k], str), str),
    "map_batches keeps": (lambda s: s.map_batches(lambda batch: batch), str),
    "map_batches declared": (lambda s: s.map_batches(lambda batch: batch, Point), Point),
}


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment()


@pytest.mark.parametrize(("program", "expected"), TYPES.values(), ids=list(TYPES))
def test_record_types_follow_hints_and_declarations(
    env: StreamExecutionEnvironment,
    program: Callable[[DataStream[str]], DataStream[Any]],
    expected: object,
) -> None:
    assert program(env.socket_text_stream("localhost", 1)).record_type == RecordType.of(expected)


def test_accumulator_has_own_type(env: StreamExecutionEnvironment) -> None:
    lines = env.socket_text_stream("localhost", 1)
    hinted, declared = windowed(lines).aggregate(Mean()), windowed(lines).aggregate(Mean(), None, int)
    assert hinted._operator.accumulator_type == RecordType.of(tuple[int, int])
    assert declared._operator.accumulator_type == RecordType.of(int)


def test_hints_of_local_classes_are_resolved(env: StreamExecutionEnvironment) -> None:
    @dataclass
    class Local:
        x: int

    def local(line: str) -> Iterable[Local]:
        return [Local(1)]

    def one(line: str) -> Local:
        return Local(1)

    lines = env.socket_text_stream("localhost", 1)
    assert lines.flat_map(local).record_type == lines.map(one).record_type == RecordType.of(Local)


COLLECTIONS: list[tuple[list[Any], object]] = [
    ([1, 2], int),
    (["a"], str),
    ([True, False], bool),
    ([1.5], float),
    ([(1, "a"), (2, "b")], tuple[int, str]),
    ([((1, 2), None), ((3, 4), None)], Types.TUPLE([tuple[int, int], Types.PICKLED_BYTE_ARRAY()])),
    ([Word("a", 1)], Word),
    ([Point(1, 2.0)], Point),
    ([], None),
    ([1, 2.0], None),
    ([1, True], None),
    ([None, None], None),
    ([1, 2**70], None),
    ([(1,), (1, 2)], None),
    ([Word("a", "wrong")], None),  # type: ignore[arg-type]
    ([{"a": 1}], None),
    ([Decimal(1)], None),
]


@pytest.mark.parametrize(("items", "expected"), COLLECTIONS, ids=[repr(items) for items, _ in COLLECTIONS])
def test_collection_has_common_type_of_its_items(
    env: StreamExecutionEnvironment, items: list[Any], expected: object
) -> None:
    assert env.from_collection(items).record_type == RecordType.of(expected)


SOURCES: dict[str, tuple[Callable[[StreamExecutionEnvironment], DataStream[Any]], object]] = {
    "generate": (lambda env: env.generate(lambda i: Point(i, 1.0)), None),
    "generate by class": (lambda env: env.generate(str), str),
    "text file": (lambda env: env.read_text_file("a"), str),
    "avro file": (lambda env: env.read_avro("a"), None),
    "parquet file, declared": (lambda env: env.read_parquet("a", output_type=Point), Point),
    "kafka text": (lambda env: env.from_source(KafkaSource("a")), str),
    "kafka bytes": (lambda env: env.from_source(KafkaSource("a", Formats.raw())), bytes),
    "kafka json": (lambda env: env.from_source(KafkaSource("a", Formats.json())), None),
    "kafka avro, declared": (
        lambda env: env.from_source(KafkaSource("a", Formats.avro(), output_type=Word)),
        Word,
    ),
}


@pytest.mark.parametrize(("program", "expected"), SOURCES.values(), ids=list(SOURCES))
def test_sources_have_record_types(
    env: StreamExecutionEnvironment,
    program: Callable[[StreamExecutionEnvironment], DataStream[Any]],
    expected: object,
) -> None:
    assert program(env).record_type == RecordType.of(expected)
