"""Watermarks never fall, never overtake a record that is in time, and do not wait for an idle stream."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from connectors import Clock, build_one, operator_config
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import UserCodeError
from tailrace.pipelines.runtime.operators.watermarks import WatermarkAssigner
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import MAX_WATERMARK
from tailrace.pipelines.types import RecordType

batches = st.lists(st.lists(st.integers(0, 1_000), min_size=1, max_size=5), max_size=10)


@given(batches, st.integers(0, 50))
def test_watermark_is_behind_latest_record_and_never_falls(times: list[list[int]], bound: int) -> None:
    config = operator_config("watermarks", lambda value: value, out_of_orderness_ms=bound)
    watermarks, output = build_one(config)
    watermarks.open()
    latest = None
    for values in times:
        watermarks.process(Batch([0] * len(values), values))
        latest = max(values) if latest is None else max(latest, *values)
        assert output.of_kind("watermark")[-1] == latest - bound - 1
    marks = output.of_kind("watermark")
    assert marks == sorted(set(marks))
    assert [batch.timestamps for batch in output.of_kind("records")] == times


def test_records_precede_their_watermark() -> None:
    watermarks, output = build_one(operator_config("watermarks", None, out_of_orderness_ms=0))
    watermarks.open()
    watermarks.process(Batch([5, 7], ["a", "b"]))
    assert output.events == [("records", Batch([5, 7], ["a", "b"])), ("watermark", 6)]


def test_incoming_watermarks_are_replaced_except_end_of_time() -> None:
    watermarks, output = build_one(operator_config("watermarks", None, out_of_orderness_ms=0))
    watermarks.open()
    watermarks.advance_watermark(1_000)
    assert output.events == []
    watermarks.advance_watermark(MAX_WATERMARK)
    assert output.events == [("watermark", MAX_WATERMARK)]


def test_stream_without_records_is_idle_until_next_record() -> None:
    clock = Clock()
    config = operator_config("watermarks", None, out_of_orderness_ms=0, idle_after_ms=100)
    watermarks, output = build_one(config, clock=clock)
    watermarks.open()
    for wait, events in ((99, []), (1, [True]), (50, [True])):
        clock.now += wait
        watermarks.advance_clock(clock.now)
        assert output.of_kind("idle") == events
    watermarks.process(Batch([1], ["a"]))
    assert [kind for kind, _ in output.events] == ["idle", "idle", "records", "watermark"]
    assert output.of_kind("idle") == [True, False]
    watermarks.advance_clock(MAX_WATERMARK)
    assert output.of_kind("idle") == [True, False]


def test_stream_with_idle_inputs_is_idle() -> None:
    watermarks, output = build_one(operator_config("watermarks", None, out_of_orderness_ms=0))
    watermarks.open()
    watermarks.set_idle(True)
    watermarks.set_idle(False)
    assert output.of_kind("idle") == [True, False]


def split_watermarks(idle_after_ms: int | None = None) -> tuple[Any, Any, Clock]:
    clock = Clock()
    config = operator_config("watermarks", None, out_of_orderness_ms=0, idle_after_ms=idle_after_ms)
    watermarks, output = build_one(config, clock=clock)
    assert isinstance(watermarks, WatermarkAssigner)
    watermarks.read_splits(["a", "b"])
    watermarks.open()
    return watermarks, output, clock


def feed(watermarks: WatermarkAssigner, split: str, *times: int) -> None:
    watermarks.begin_split(split)
    watermarks.process(Batch(list(times), list(times)))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=30), st.sampled_from("ab"))
def test_records_in_order_within_split_are_never_late(steps: list[tuple[str, int]], ends_first: str) -> None:
    watermarks, output, _ = split_watermarks()
    reached = dict.fromkeys("ab", 0)
    for split, step in steps:
        assert all(mark < reached[split] + step for mark in output.of_kind("watermark"))
        reached[split] += step
        feed(watermarks, split, reached[split])
    if {split for split, _ in steps} == set("ab"):
        assert output.of_kind("watermark")[-1] == min(reached.values()) - 1
    else:
        assert output.of_kind("watermark") == [], "one that has brought nothing yet is waited for"
    watermarks.end_split(ends_first)
    other = "ab".replace(ends_first, "")
    if any(split == other for split, _ in steps):
        assert output.of_kind("watermark")[-1] == reached[other] - 1, "one that has ended is not"


def test_time_is_greatest_of_splits_if_all_are_idle() -> None:
    watermarks, output, clock = split_watermarks(idle_after_ms=100)
    feed(watermarks, "a", 50)
    feed(watermarks, "b", 70)
    assert output.of_kind("watermark") == [49]
    clock.now += 100
    watermarks.advance_clock(clock.now)
    assert [event for event in output.events if event[0] != "records"] == [
        ("watermark", 49),
        ("watermark", 69),
        ("idle", True),
    ]


def test_idle_split_does_not_hold_back_others() -> None:
    watermarks, output, clock = split_watermarks(idle_after_ms=100)
    clock.now += 60
    feed(watermarks, "a", 50)
    clock.now += 60
    watermarks.advance_clock(clock.now)
    assert (output.of_kind("watermark"), output.of_kind("idle")) == ([49], [])
    clock.now += 60
    watermarks.advance_clock(clock.now)
    assert output.of_kind("idle") == [True], "all are"
    feed(watermarks, "b", 40)
    assert (output.of_kind("watermark"), output.of_kind("idle")) == ([49], [True, False]), "it never falls"
    feed(watermarks, "b", 70)
    assert output.of_kind("watermark") == [49, 69], "the other one is idle still"


@pytest.mark.parametrize("wrong", ["soon", None, 1.5, 1 << 70])
def test_invalid_timestamp_is_error_of_assigner(wrong: object) -> None:
    watermarks, _ = build_one(operator_config("watermarks", lambda _: wrong, out_of_orderness_ms=0))
    watermarks.open()
    with pytest.raises(UserCodeError, match="watermarks") as raised:
        watermarks.process(Batch([1], ["a"]))
    assert "milliseconds since the epoch" in str(raised.value.__cause__)


class Hit(NamedTuple):
    at: int
    path: str


@pytest.mark.parametrize(
    ("assigner", "record_type"),
    [
        (operator.attrgetter("at"), Hit),
        (operator.itemgetter(0), Hit),
        (lambda hit: hit.at, Hit),
        (operator.itemgetter(0), tuple[int, str]),
    ],
)
def test_columns_stay_columns(assigner: Any, record_type: Any) -> None:
    config = operator_config("watermarks", assigner, out_of_orderness_ms=0)
    watermarks, output = build_one(config, input_type=record_type)
    watermarks.open()
    columns = [pa.array([3, 4]), pa.array(["/", "/cart"])]
    watermarks.process(Batch.from_columns(pa.array([0, 0]), columns, RecordType.of(record_type)))
    (batch,) = output.of_kind("records")
    assert batch.is_columnar
    assert batch == Batch([3, 4], [(3, "/"), (4, "/cart")])
    assert output.of_kind("watermark") == [3]
