"""Joins alone, in one process: records of both streams per second of CPU time, with the changelog of a commit every
50,000.

The input is Arrow columns, as after a shuffle; the output is encoded into columns again, as a channel does. Beside each
is a loop in plain Python that finds the same pairs with the same bounds on what it remembers, without columns,
changelog or timers, and a join of two complete tables by plain Spark on one core, which remembers and orders nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
from _report import conditions, median, report
from _scale import scaled

from tailrace.pipelines.functions import ProcessJoinContext, ProcessJoinFunction
from tailrace.pipelines.functions.join_adapters import (
    JoinedWindow,
    TaggedKey,
    as_one,
    as_two,
    tagged_type,
)
from tailrace.pipelines.runtime.operators.factory import build_operator
from tailrace.pipelines.runtime.operators.operator import Operator, OperatorSetup
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.types import RecordType, Types
from tailrace.schemas.types import OperatorConfig

Pair = tuple[str, int]
PAIR = Types.TUPLE([str, int])
RESULT = Types.TUPLE([str, int, int])
TAGGED = tagged_type(PAIR, PAIR)
BATCH = 5_000
COMMIT = scaled(50_000)
RECORDS = scaled(200_000)
"""Of each stream."""
KEYS = scaled(10_000)
PER_MS = 10
ROUNDS = scaled(3)
NEAR_MS = 500
WINDOW_MS = 1_000


class Leaving:
    """An Output that encodes and counts records, as a channel does, and drops them."""

    def __init__(self) -> None:
        self.count = 0

    def emit(self, batch: Batch) -> None:
        batch.columns(RESULT)
        self.count += len(batch)

    def emit_side(self, tag: str, batch: Batch) -> None: ...

    def emit_watermark(self, watermark: int) -> None: ...

    def emit_idle(self, idle: bool) -> None: ...


class Both(ProcessJoinFunction[Pair, Pair, Any]):
    """Emits each pair."""

    def process_element(self, left: Pair, right: Pair, context: ProcessJoinContext) -> Iterable[Any]:
        del context
        return ((left[0], left[1], right[1]),)


def both(left: Pair, right: Pair) -> tuple[str, int, int]:
    """Returns the result of a pair."""
    return left[0], left[1], right[1]


def first(pair: Pair) -> str:
    """Returns the key."""
    return pair[0]


def operator(
    kind: str, functions: tuple[Any, ...], types: tuple[RecordType, ...], **parameters: Any
) -> Operator:
    """Returns an open operator."""
    config = OperatorConfig(
        operator_id="o", name=kind, kind=kind, code=cloudpickle.dumps(functions),
        parameters=json.dumps({"key_type": "str", "output_type": RESULT.to_json(), **parameters}),
    )  # fmt: skip
    made = build_operator(OperatorSetup(config, TaskContext(), "", "", _no_sink, types))
    made.output = Leaving()
    made.open()
    return made


def _no_sink(*_: Any, **__: Any) -> None:
    raise TypeError("nothing is sent here")


def interval() -> Operator:
    """Returns an interval join."""
    functions, bounds = (first, first, Both()), {"lower_ms": -NEAR_MS, "upper_ms": NEAR_MS}
    return operator("interval_join", functions, (PAIR, PAIR), **bounds)


def temporal() -> Operator:
    """Returns a temporal join."""
    return operator("temporal_join", (first, first, both), (PAIR, PAIR), is_outer=False)


def window() -> Operator:
    """Returns the window of a window join."""
    functions = TaggedKey(first, first), None, JoinedWindow(both, PAIR, PAIR)
    assigner = {"kind": "tumbling", "size_ms": WINDOW_MS, "time": "event"}
    return operator("window", functions, (TAGGED,), assigner=assigner, aggregation="none")


Side = tuple[list[int], list[str], list[int]]


def stream(seed: int) -> Side:
    """Returns times, keys and numbers of a stream."""
    drawn = np.random.default_rng(seed).integers(0, KEYS, RECORDS).tolist()
    return [n // PER_MS for n in range(RECORDS)], [f"key-{key}" for key in drawn], list(range(RECORDS))


def columns(side: Side) -> list[Batch]:
    """Returns the stream in batches of columns."""
    times, keys, numbers = side
    return [
        Batch.from_columns(
            pa.array(times[at : at + BATCH], pa.int64()),
            [pa.array(keys[at : at + BATCH]), pa.array(numbers[at : at + BATCH], pa.int64())],
            PAIR,
        )
        for at in range(0, RECORDS, BATCH)
    ]


def tagged(batch: Batch, tag: Callable[[Any], Any]) -> Batch:
    """Returns the batch behind the step that tags it and a shuffle."""
    values = list(map(tag, batch.values))
    return Batch.from_columns(batch.timestamp_column(), TAGGED.to_columns(values), TAGGED)


def joined(make: Callable[[], Operator], sides: tuple[Side, Side], *, is_window: bool) -> tuple[float, int]:
    """Returns records per second of CPU time, and the number of results."""
    target, (left, right) = make(), map(columns, sides)
    began = time.process_time()
    for number, (one, two) in enumerate(zip(left, right, strict=True), 1):
        if is_window:
            target.process(tagged(one, as_one))
            target.process(tagged(two, as_two))
        else:
            target.process(one, 0)
            target.process(two, 1)
        target.advance_watermark(number * BATCH // PER_MS - 1)
        if number * BATCH * 2 % COMMIT == 0:
            target.before_commit()
            list(target.take_changes())
    target.advance_watermark(2**62)
    took = time.process_time() - began
    target.close()
    assert isinstance(target.output, Leaving)
    return 2 * RECORDS / took, target.output.count


def _in_turn(sides: tuple[Side, Side]) -> Iterator[tuple[int, Iterator[tuple[int, str, int]], int]]:
    """Yields (side, records, watermark afterwards) of each batch."""
    for at in range(0, RECORDS, BATCH):
        for index, (times, keys, numbers) in enumerate(sides):
            records = zip(
                times[at : at + BATCH], keys[at : at + BATCH], numbers[at : at + BATCH], strict=True
            )
            yield index, records, (at + BATCH) // PER_MS - 1


def plain_interval(sides: tuple[Side, Side]) -> int:
    """Joins by a deque for each key and side."""
    held: tuple[dict[str, deque[tuple[int, int]]], ...] = (defaultdict(deque), defaultdict(deque))
    results: list[tuple[str, int, int]] = []
    reached = -1
    for index, records, watermark in _in_turn(sides):
        own, others = held[index], held[1 - index]
        for at, key, number in records:
            there = others[key]
            while there and there[0][0] + NEAR_MS <= reached:
                there.popleft()
            for other_at, other in there:
                if -NEAR_MS <= other_at - at <= NEAR_MS:
                    results.append((key, number, other))
            own[key].append((at, number))
        if index:
            reached = watermark
    return len(results)


def plain_window(sides: tuple[Side, Side]) -> int:
    """Joins by two lists for each window and key."""
    windows: dict[int, dict[str, tuple[list[int], list[int]]]] = {}
    results: list[tuple[str, int, int]] = []
    for index, records, watermark in _in_turn(sides):
        for at, key, number in records:
            by_key = windows.setdefault(at - at % WINDOW_MS, {})
            by_key.setdefault(key, ([], []))[index].append(number)
        for start in [start for start in windows if index and start + WINDOW_MS - 1 <= watermark]:
            for key, (ours, theirs) in windows.pop(start).items():
                results += [(key, one, two) for one in ours for two in theirs]
    for by_key in windows.values():
        for key, (ours, theirs) in by_key.items():
            results += [(key, one, two) for one in ours for two in theirs]
    return len(results)


def plain_temporal(sides: tuple[Side, Side]) -> int:
    """Joins by a sorted list of versions for each key, when the watermark has passed."""
    versions: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    waiting: list[tuple[int, str, int]] = []
    results: list[tuple[str, int, int]] = []
    for index, records, _ in _in_turn(sides):
        if not index:
            waiting += records
            continue
        for at, key, number in records:
            times, numbers = versions[key]
            times.append(at)
            numbers.append(number)
        for at, key, number in waiting:
            times, numbers = versions[key]
            place = bisect_right(times, at)
            if place:
                results.append((key, number, numbers[place - 1]))
                del times[: place - 1], numbers[: place - 1]
        waiting = []
    return len(results)


def plain(join: Callable[[tuple[Side, Side]], int], sides: tuple[Side, Side]) -> tuple[float, int]:
    """Returns records per second of CPU time, and the number of results."""
    began = time.process_time()
    count = join(sides)
    return 2 * RECORDS / (time.process_time() - began), count


SUBJECTS: dict[str, tuple[Callable[[], Operator], Callable[[tuple[Side, Side]], int]]] = {
    "window_join": (window, plain_window),
    "interval_join": (interval, plain_interval),
    "temporal_join": (temporal, plain_temporal),
}
IN_SPARK = {
    "window_join": f"a.key = b.key AND a.at DIV {WINDOW_MS} = b.at DIV {WINDOW_MS}",
    "interval_join": f"a.key = b.key AND b.at BETWEEN a.at - {NEAR_MS} AND a.at + {NEAR_MS}",
}


def in_spark(sides: tuple[Side, Side]) -> dict[str, list[tuple[float, int]]]:
    """Returns records per second and numbers of results of joins of complete tables, by name."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in IN_SPARK}
    with tempfile.TemporaryDirectory() as scratch:
        builder = SparkSession.builder.master("local[1]").appName("joins")
        for key, value in {
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.local.dir": scratch,
            "spark.sql.warehouse.dir": scratch,
        }.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            for name, (times, keys, numbers) in zip("ab", sides, strict=True):
                table = pa.table({"at": times, "key": keys, "number": numbers})
                spark.createDataFrame(table).repartition(1).cache().createOrReplaceTempView(name)
                spark.table(name).count()
            queries = {
                name: f"SELECT a.key, a.number, b.number AS other FROM a JOIN b ON {condition}"
                for name, condition in IN_SPARK.items()
            }
            counts = {name: spark.sql(query).count() for name, query in queries.items()}
            for _ in range(ROUNDS + 1):  # the first one compiles
                for name, query in queries.items():
                    began = time.perf_counter()
                    spark.sql(query).write.format("noop").mode("overwrite").save()
                    took = time.perf_counter() - began
                    found[name].append((2 * RECORDS / took, counts[name]))
        finally:
            spark.stop()
    return {name: some[1:] for name, some in found.items()}


def main() -> None:
    """Measures in turns, so that other load on the machine affects all alike, and reports."""
    sides = stream(1), stream(2)
    rates: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for _ in range(ROUNDS):
        for name, (make, peer) in SUBJECTS.items():
            rates[f"{name}_per_s"].append(joined(make, sides, is_window=make is window))
            rates[f"{name}_plain_python_per_s"].append(plain(peer, sides))
    rates |= {f"{name}_plain_spark_per_s": some for name, some in in_spark(sides).items()}
    for name in SUBJECTS:
        counts = {count for key, some in rates.items() if key.startswith(name) for _, count in some}
        assert len(counts) == 1, f"{name}: the numbers of results differ: {counts}"
    figures = {name: median([rate for rate, _ in some]) for name, some in rates.items()}
    notes = {
        name: f"{min(some)[0]:,.0f} to {max(some)[0]:,.0f}; {some[0][1]:,} results"
        for name, some in rates.items()
    }
    under = conditions(rounds=ROUNDS, records=2 * RECORDS, keys=KEYS, batch=BATCH, commit=COMMIT)
    report("joins", figures, under, notes)


if __name__ == "__main__":
    main()
