"""Watermarks never fall, never overtake a record that is in time, and do not wait for a stream that is idle."""

from __future__ import annotations

import pytest
from connectors import Clock, build_one, operator_config
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.batch import Batch
from tailrace.pipelines.runtime.buffers import END_OF_TIME
from tailrace.pipelines.runtime.failures import UserCodeError

batches = st.lists(st.lists(st.integers(0, 1_000), min_size=1, max_size=5), max_size=10)


@given(batches, st.integers(0, 50))
def test_the_watermark_is_behind_the_latest_record_and_never_falls(
    times: list[list[int]], bound: int
) -> None:
    config = operator_config("watermarks", lambda value: value, out_of_orderness_ms=bound)
    operator, output = build_one(config)
    operator.open()
    latest = None
    for values in times:
        operator.process(Batch([0] * len(values), values))
        latest = max(values) if latest is None else max(latest, *values)
        assert output.of("watermark")[-1] == latest - bound - 1
    marks = output.of("watermark")
    assert marks == sorted(set(marks))
    assert [batch.timestamps for batch in output.of("records")] == times


def test_records_precede_the_watermark_that_they_make() -> None:
    operator, output = build_one(operator_config("watermarks", None, out_of_orderness_ms=0))
    operator.open()
    operator.process(Batch([5, 7], ["a", "b"]))
    assert output.events == [("records", Batch([5, 7], ["a", "b"])), ("watermark", 6)]


def test_what_others_say_of_time_ends_here_except_its_end() -> None:
    operator, output = build_one(operator_config("watermarks", None, out_of_orderness_ms=0))
    operator.open()
    operator.advance_watermark(1_000)
    assert output.events == []
    operator.advance_watermark(END_OF_TIME)
    assert output.events == [("watermark", END_OF_TIME)]


def test_a_stream_without_records_is_idle_until_the_next_one() -> None:
    clock = Clock()
    config = operator_config("watermarks", None, out_of_orderness_ms=0, idle_after_ms=100)
    operator, output = build_one(config, clock=clock)
    operator.open()
    for wait, said in ((99, []), (1, [True]), (50, [True])):
        clock.now += wait
        operator.advance_clock(clock.now)
        assert output.of("idle") == said
    operator.process(Batch([1], ["a"]))
    assert [kind for kind, _ in output.events] == ["idle", "idle", "records", "watermark"]
    assert output.of("idle") == [True, False]
    operator.advance_clock(END_OF_TIME)
    assert output.of("idle") == [True, False]


def test_a_stream_whose_inputs_are_idle_is_idle() -> None:
    operator, output = build_one(operator_config("watermarks", None, out_of_orderness_ms=0))
    operator.open()
    operator.set_idle(True)
    operator.set_idle(False)
    assert output.of("idle") == [True, False]


@pytest.mark.parametrize("wrong", ["soon", None, 1.5, 1 << 70])
def test_a_timestamp_that_is_none_is_the_assigners_fault(wrong: object) -> None:
    operator, _ = build_one(operator_config("watermarks", lambda _: wrong, out_of_orderness_ms=0))
    operator.open()
    with pytest.raises(UserCodeError, match="watermarks") as raised:
        operator.process(Batch([1], ["a"]))
    assert "milliseconds since the epoch" in str(raised.value.__cause__)


def test_columns_stay_columns() -> None:
    import pyarrow as pa

    from tailrace.pipelines.types import RecordType

    operator, output = build_one(
        operator_config("watermarks", lambda value: value * 2, out_of_orderness_ms=0)
    )
    operator.open()
    operator.process(Batch.of_columns(pa.array([0, 0]), [pa.array([3, 4])], RecordType.of(int)))
    (batch,) = output.of("records")
    assert batch.columnar
    assert batch == Batch([6, 8], [3, 4])
