"""Changes that a function makes to a record are invisible to others, with any chaining and batching."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from tailrace import (
    DataStream,
    EventTimeSessionWindows,
    OutputTag,
    ProcessFunction,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from tailrace.pipelines.functions.process import Context
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.record_copying import copy_record, create_copier
from tailrace.pipelines.testing.memory.cluster import run
from tailrace.pipelines.types import PICKLED, RecordType, Types

TEN_MS = timedelta(milliseconds=10)
seeds = pytest.mark.parametrize("seed", [None, 0, 1, 2])


@dataclass
class Count:
    key: str
    number: int


@dataclass(frozen=True)
class Frozen:
    number: int


@dataclass(frozen=True)
class Holding:
    numbers: list[int]


class Pair(NamedTuple):
    left: int
    right: Frozen


def add(left: Count, right: Count) -> Count:
    left.number += right.number
    return left


def tenfold(count: Count) -> Count:
    count.number *= 10
    return count


def lengthen(numbers: list[int]) -> list[int]:
    numbers.append(0)
    return numbers


class Both(ProcessFunction[Count, Count]):
    def __init__(self, tag: OutputTag[Count]) -> None:
        self.tag = tag

    def process_element(self, value: Count, context: Context) -> Any:
        context.output(self.tag, value)


def texts(
    build: Callable[[StreamExecutionEnvironment], None], seed: int | None, *, chained: bool = True
) -> dict[str | None, list[str]]:
    """Returns the printed texts per identifier, without order."""
    env = StreamExecutionEnvironment()
    if not chained:
        env.disable_operator_chaining()
    build(env)
    result: dict[str | None, list[str]] = {}
    for output in run(env.get_job_graph("copies"), seed=seed, crashes=0 if seed is None else 3).printed:
        result.setdefault(output["identifier"], []).append(output["text"])
    return {identifier: sorted(group) for identifier, group in result.items()}


@seeds
@pytest.mark.parametrize("chained", [True, False])
def test_consumers_of_one_output_do_not_see_changes_of_each_other(seed: int | None, chained: bool) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        counts = env.from_collection([Count("a", n) for n in (1, 2, 3)], Count)
        counts.map(tenfold, Count).map(lambda c: c.number, int).print("tenfold")
        counts.map(lambda c: c.number, int).print("raw")
        counts.rebalance().map(lambda c: c.number, int).print("elsewhere")
        lists = env.from_collection([[1], [2]], list[int])
        lists.map(lengthen, list[int]).print("longer")
        lists.map(lambda numbers: numbers, Types.PICKLED_BYTE_ARRAY()).print("as they were")

    assert texts(build, seed, chained=chained) == {
        "tenfold": ["10", "20", "30"],
        "raw": ["1", "2", "3"],
        "elsewhere": ["1", "2", "3"],
        "longer": ["[1, 0]", "[2, 0]"],
        "as they were": ["[1]", "[2]"],
    }


@seeds
@pytest.mark.parametrize("chained", [True, False])
def test_running_reduce_may_change_its_accumulator(seed: int | None, chained: bool) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        counts = env.from_collection([Count("a", 1)] * 4, Count)
        reduced = counts.key_by(lambda c: c.key).reduce(add)
        reduced.map(tenfold, Count).map(lambda c: c.number, int).print("tenfold")

    assert texts(build, seed, chained=chained) == {"tenfold": ["10", "20", "30", "40"]}


def windowed(counts: DataStream[Count], windows: Any, lateness: int) -> None:
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda c: c.number)
    window = counts.assign_timestamps_and_watermarks(by_time).key_by(lambda c: c.key).window(windows)
    window = window.allowed_lateness(milliseconds=lateness)
    reduced = window.reduce(add)
    reduced.map(tenfold, Count).map(lambda c: c.number, int).print("reduced")
    window.process(lambda key, context, counts: [tenfold(count).number for count in counts], int).print(
        "each"
    )


@seeds
@pytest.mark.parametrize("lateness", [0, 1_000])
@pytest.mark.parametrize(
    ("windows", "reduced", "each"),
    [
        (SlidingEventTimeWindows.of(2 * TEN_MS, TEN_MS), [150, 150], [50] * 6),
        (TumblingEventTimeWindows.of(TEN_MS), [150], [50, 50, 50]),
        (EventTimeSessionWindows.with_gap(milliseconds=5), [150], [50, 50, 50]),
    ],
)  # fmt: skip
def test_windows_do_not_share_records(
    seed: int | None, lateness: int, windows: Any, reduced: list[int], each: list[int]
) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        windowed(env.from_collection([Count("a", 5)] * 3, Count), windows, lateness)

    assert texts(build, seed) == {"reduced": list(map(str, reduced)), "each": list(map(str, each))}


@pytest.mark.parametrize(
    ("of", "immutable"),
    [
        (int, True),
        (tuple[str, int | None], True),
        (Frozen, True),
        (Pair, True),
        (Count, False),
        (Holding, False),
        (list[int], False),
        (tuple[str, list[int]], False),
        (PICKLED, False),
    ],
)
def test_mutable_types_are_detected(of: object, immutable: bool) -> None:
    record_type = RecordType.of(of)
    assert record_type.immutable is immutable
    assert RecordType.from_json(record_type.to_json()).immutable is immutable
    assert (create_copier(record_type) is None) is immutable


def test_immutable_values_are_not_copied() -> None:
    for value in ("text", 1, None, ("a", 1.0)):
        assert copy_record(value) is value
    numbers = ([1], 2)
    assert copy_record(numbers) == numbers
    assert copy_record(numbers)[0] is not numbers[0]


def test_consumers_of_columns_create_their_own_rows() -> None:
    record_type = RecordType.of(Count)
    rows = Batch([1], [Count("a", 1)])
    columns = Batch.from_columns(rows.timestamp_column(), rows.columns(record_type), record_type)
    other = columns.copy(copy_record)
    columns.values[0].number = 7
    assert other.is_columnar
    assert other.values == [Count("a", 1)]
