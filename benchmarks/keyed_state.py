"""Keyed operators alone, in one process: records per second of CPU time, with the changelog of a commit every 50,000.

The input is Arrow columns, as after a shuffle; the output is encoded into columns again, as a channel does. The words
are drawn from 20,000 by Zipf's law. `rows` figures are of the same operator on records that are Python tuples already,
`decoded` ones on columns that it converts to tuples: the speed without vectorised aggregation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
from _report import conditions, median, report
from _scale import scaled

from tailrace.pipelines.functions import KeyedProcessFunction, RuntimeContext, ValueStateDescriptor
from tailrace.pipelines.functions.process import KeyedContext
from tailrace.pipelines.runtime.operators.factory import build_operator
from tailrace.pipelines.runtime.operators.operator import Operator, OperatorSetup
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.types import RecordType, Types
from tailrace.schemas.types import OperatorConfig

PAIR = Types.TUPLE([str, int])
BATCH = 5_000
COMMIT = scaled(50_000)
RECORDS = scaled(500_000)
ROUNDS = scaled(7)
KEYS = scaled(20_000)
TUMBLING = {"kind": "tumbling", "size_ms": 1_000, "time": "event"}
SESSION = {"kind": "session", "gap_ms": 50, "time": "event"}


class Leaving:
    """An Output that encodes records, as a channel does, and drops them."""

    def emit(self, batch: Batch) -> None:
        batch.columns(PAIR)

    def emit_side(self, tag: str, batch: Batch) -> None: ...

    def emit_watermark(self, watermark: int) -> None: ...

    def emit_idle(self, idle: bool) -> None: ...


class Count(KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
    """A running count with its own state."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", int, 0))

    def process_element(
        self, value: tuple[str, int], context: KeyedContext[str]
    ) -> Iterable[tuple[str, int]]:
        count = (self.count.value() or 0) + value[1]
        self.count.update(count)
        return ((value[0], count),)


def operator(kind: str, functions: tuple[Any, ...], **parameters: Any) -> Operator:
    """Returns an open operator without outputs."""
    config = OperatorConfig(
        operator_id="o", name=kind, kind=kind, code=cloudpickle.dumps(functions),
        parameters=json.dumps({"key_type": "str", "key_field": "f0", "output_type": PAIR.to_json(), **parameters}),
    )  # fmt: skip
    types: tuple[RecordType, ...] = (PAIR,)
    made = build_operator(OperatorSetup(config, TaskContext(), "", "", _no_sink, types))
    made.output = Leaving()
    made.open()
    return made


def _no_sink(*_: Any, **__: Any) -> None:
    raise TypeError("nothing is sent here")


def batches(rows: bool) -> list[Batch]:
    """Returns a record per millisecond and ten words; words by Zipf's law."""
    drawn = np.random.default_rng(7).zipf(1.3, RECORDS) % KEYS
    words = pa.array([f"word-{n}" for n in range(KEYS)])
    made = []
    for start in range(0, RECORDS, BATCH):
        column = words.take(pa.array(drawn[start : start + BATCH]))
        times = pa.array(np.arange(start, start + BATCH, dtype=np.int64) // 10)
        ones = pa.array(np.ones(BATCH, np.int64))
        batch = Batch.from_columns(times, [column, ones], PAIR)
        made.append(Batch(batch.timestamps, batch.values) if rows else batch)
    return made


def once(make: Callable[[], Operator], *, rows: bool, timed: bool) -> float:
    """Returns records per second of CPU time. `timed`: with watermarks."""
    target, some = make(), batches(rows)
    began = time.process_time()
    for number, batch in enumerate(some, 1):
        target.process(batch)
        if timed:
            target.advance_watermark(number * BATCH // 10 - 1)
        if number * BATCH % COMMIT == 0:
            target.before_commit()
            list(target.take_changes())
    took = time.process_time() - began
    target.close()
    return RECORDS / took


def first(pair: Sequence[Any]) -> Any:
    """Returns the key."""
    return pair[0]


def add(a: tuple[str, int], b: tuple[str, int]) -> tuple[str, int]:
    """Adds the counts."""
    return a[0], a[1] + b[1]


SUM = {"function": "sum", "field": "f1"}
NO_COLUMN = {"key_field": None}
WINDOW = {"assigner": TUMBLING, "aggregation": "sum", "field": "f1"}
SUBJECTS: dict[str, tuple[Callable[[], Operator], bool]] = {
    "reduce_per_s": (lambda: operator("reduce", (first, add)), False),
    "reduce_mini_batch_per_s": (lambda: operator("reduce", (first, add), mini_batch=True), False),
    "sum_rows_per_s": (lambda: operator("aggregate", (first,), **SUM), True),
    "sum_columns_per_s": (lambda: operator("aggregate", (first,), **SUM), False),
    "sum_mini_batch_rows_per_s": (lambda: operator("aggregate", (first,), **SUM, mini_batch=True), True),
    "sum_mini_batch_columns_per_s": (lambda: operator("aggregate", (first,), **SUM, mini_batch=True), False),
    "sum_mini_batch_decoded_per_s": (
        lambda: operator("aggregate", (first,), **SUM, **NO_COLUMN, mini_batch=True),
        False,
    ),
    "pre_aggregate_rows_per_s": (lambda: operator("pre_aggregate", (first,), **SUM), True),
    "pre_aggregate_columns_per_s": (lambda: operator("pre_aggregate", (first,), **SUM), False),
    "process_per_s": (lambda: operator("keyed_process", (first, Count())), False),
    "tumbling_sum_rows_per_s": (lambda: operator("window", (first, None, None), **WINDOW), True),
    "tumbling_sum_columns_per_s": (lambda: operator("window", (first, None, None), **WINDOW), False),
    "tumbling_sum_decoded_per_s": (
        lambda: operator("window", (first, None, None), **WINDOW, **NO_COLUMN),
        False,
    ),
    "tumbling_reduce_per_s": (
        lambda: operator("window", (first, add, None), **{**WINDOW, "aggregation": "reduce", "field": None}),
        False,
    ),
    "session_sum_per_s": (
        lambda: operator("window", (first, None, None), **{**WINDOW, "assigner": SESSION}),
        False,
    ),
}


def main() -> None:
    """Measures in turns, so that other load on the machine affects all alike, and reports."""
    rates: dict[str, list[float]] = {name: [] for name in SUBJECTS}
    for _ in range(ROUNDS):
        for name, (make, rows) in SUBJECTS.items():
            # Watermarks make mini-batches smaller, and are only for windows here.
            rates[name].append(once(make, rows=rows, timed=name.startswith(("tumbling", "session"))))
    figures = {name: median(some) for name, some in rates.items()}
    notes = {name: f"{min(some):,.0f} to {max(some):,.0f}" for name, some in rates.items()}
    under = conditions(rounds=ROUNDS, records=RECORDS, keys=KEYS, batch=BATCH, commit=COMMIT)
    report("keyed_state", figures, under, notes)


if __name__ == "__main__":
    main()
