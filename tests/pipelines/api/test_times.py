"""Durations, windows and watermark strategies have the same meaning in every notation."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.api import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    ProgramError,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WatermarkStrategy,
    WindowAssigner,
)
from tailrace.pipelines.api.durations import to_milliseconds

milliseconds = st.integers(1, 10**12)


@given(milliseconds)
def test_duration_is_the_same_in_every_notation(ms: int) -> None:
    assert to_milliseconds("x", timedelta(milliseconds=ms)) == ms
    assert to_milliseconds("x", None, milliseconds=ms) == ms
    assert to_milliseconds("x", None, seconds=ms / 1000) == ms
    assert to_milliseconds("x", timedelta(milliseconds=ms), seconds=1, milliseconds=1) == ms + 1001


@given(milliseconds, milliseconds)
def test_windows_are_the_same_in_every_notation(size: int, slide: int) -> None:
    for tumbling in (TumblingProcessingTimeWindows, TumblingEventTimeWindows):
        assert tumbling.of(timedelta(milliseconds=size)) == tumbling.of(milliseconds=size) == tumbling(size)
    for sliding in (SlidingProcessingTimeWindows, SlidingEventTimeWindows):
        assert sliding.of(timedelta(milliseconds=size), timedelta(milliseconds=slide)) == sliding.of(
            milliseconds=size, slide_milliseconds=slide
        )
    for session in (ProcessingTimeSessionWindows, EventTimeSessionWindows):
        assert session.with_gap(timedelta(milliseconds=size)) == session.with_gap(milliseconds=size)


ASSIGNERS: list[tuple[WindowAssigner, str, dict[str, object]]] = [
    (
        TumblingProcessingTimeWindows.of(timedelta(days=1), offset=timedelta(hours=-8)),
        "TumblingProcessingTimeWindows(86400000 ms)",
        {"kind": "tumbling", "time": "processing", "size_ms": 86_400_000, "offset_ms": -28_800_000},
    ),
    (
        TumblingEventTimeWindows.of(seconds=0.5),
        "TumblingEventTimeWindows(500 ms)",
        {"kind": "tumbling", "time": "event", "size_ms": 500, "offset_ms": 0},
    ),
    (
        SlidingProcessingTimeWindows.of(seconds=10, slide_seconds=2, offset_seconds=1),
        "SlidingProcessingTimeWindows(10000 ms, 2000 ms)",
        {"kind": "sliding", "time": "processing", "size_ms": 10_000, "slide_ms": 2_000, "offset_ms": 1_000},
    ),
    (
        SlidingEventTimeWindows.of(milliseconds=3, slide_milliseconds=5),
        "SlidingEventTimeWindows(3 ms, 5 ms)",
        {"kind": "sliding", "time": "event", "size_ms": 3, "slide_ms": 5, "offset_ms": 0},
    ),
    (
        ProcessingTimeSessionWindows.with_gap(seconds=1),
        "ProcessingTimeSessionWindows(1000 ms)",
        {"kind": "session", "time": "processing", "gap_ms": 1000},
    ),
    (
        EventTimeSessionWindows.with_gap(seconds=1),
        "EventTimeSessionWindows(1000 ms)",
        {"kind": "session", "time": "event", "gap_ms": 1000},
    ),
]


@pytest.mark.parametrize(("assigner", "name", "parameters"), ASSIGNERS, ids=[row[1] for row in ASSIGNERS])
def test_assigners_have_their_parameters(
    assigner: WindowAssigner, name: str, parameters: dict[str, object]
) -> None:
    assert (str(assigner), assigner.parameters()) == (name, parameters)


def test_windows_of_different_clocks_are_not_equal() -> None:
    assert TumblingEventTimeWindows(5) != TumblingProcessingTimeWindows(5)


@given(milliseconds, st.integers(-(10**12), 10**12))
def test_window_offset_is_below_size(size: int, offset: int) -> None:
    if abs(offset) < size:
        assert TumblingEventTimeWindows.of(
            milliseconds=size, offset=timedelta(milliseconds=offset)
        ) == TumblingEventTimeWindows(size, offset)
    else:
        with pytest.raises(ProgramError, match="is not below the window's"):
            TumblingEventTimeWindows.of(milliseconds=size, offset=timedelta(milliseconds=offset))


def test_strategy_is_immutable() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=2), milliseconds=1)
    changed = strategy.with_timestamp_assigner("at").with_idleness(seconds=1)
    assert (strategy.out_of_orderness_ms, strategy.timestamp_assigner, strategy.idle_after_ms) == (
        2001,
        None,
        None,
    )
    assert (changed.out_of_orderness_ms, changed.timestamp_assigner, changed.idle_after_ms) == (
        2001,
        "at",
        1000,
    )
    assert WatermarkStrategy.for_monotonous_timestamps().out_of_orderness_ms == 0
