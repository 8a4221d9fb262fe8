"""Positions in a log: an offset, or a time, which stands for the longest prefix up to that time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas.event import Event
from tailrace.schemas.everyone import ClusterTerminated
from tailrace.schemas.types import Header
from tailrace.services.history.log_position import (
    InvalidPosition,
    LogPosition,
    PositionOutOfRange,
    TimeMark,
    first_offset,
)
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog

NOW = datetime(2026, 11, 22, 12, 30, tzinfo=timezone(timedelta(hours=1)))


def log_at(*times: int) -> MemoryEventLog:
    """Returns a log whose events have these times."""
    log = MemoryEventLog(Codec("c1.log"), topic="c1.log")
    for time in times:
        header = Header(event_id="e", time=time, sender="dispatcher", sender_epoch=1, recipient="*")
        log.append([Event(header, ClusterTerminated(reason=""))])
    return log


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class TestParsing:
    @pytest.mark.parametrize("text", ["0", "4711", " 12 ", "-1", "20261122"])
    def test_number_is_offset(self, text: str) -> None:
        assert LogPosition.parse(text, NOW) == LogPosition(text, offset=int(text))

    @pytest.mark.parametrize(
        ("text", "time"),
        [
            ("2026-11-22T08:30:00Z", datetime(2026, 11, 22, 8, 30, tzinfo=UTC)),
            ("2026-11-22 08:30:00.25+02:00", datetime(2026, 11, 22, 6, 30, 0, 250_000, tzinfo=UTC)),
            ("2026-11-22T08:30", datetime(2026, 11, 22, 8, 30).astimezone()),
            ("2026-11-22", datetime(2026, 11, 22).astimezone()),
            ("08:30", datetime(2026, 11, 22, 8, 30).astimezone()),
            ("8:30", datetime(2026, 11, 22, 8, 30).astimezone()),
            ("8:30:05", datetime(2026, 11, 22, 8, 30, 5).astimezone()),
            ("08:30:05.250", datetime(2026, 11, 22, 8, 30, 5, 250_000).astimezone()),
            ("-10m", NOW - timedelta(minutes=10)),
            ("-1h30m", NOW - timedelta(minutes=90)),
            ("-1.5 h", NOW - timedelta(minutes=90)),
            ("-2D", NOW - timedelta(days=2)),
            ("-500ms", NOW - timedelta(milliseconds=500)),
        ],
    )
    def test_other_text_is_time(self, text: str, time: datetime) -> None:
        assert LogPosition.parse(text, NOW) == LogPosition(text, time=micros(time))

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "now",
            "-10x",
            "25:00",
            "8:3",
            "2026-13-01",
            "10m",
            "--1",
            "1.5",
            "-m",
            "9" * 5_000,
            f"-{'9' * 400}d",
        ],
    )
    def test_invalid_text_is_rejected_with_valid_range(self, text: str) -> None:
        with pytest.raises(InvalidPosition, match=r"say an offset \(4711\), a time \(2026-11-22T08:30:00"):
            LogPosition.parse(text, NOW)


class Sparse:
    """An index with marks at some offsets."""

    def __init__(self, times: list[int], every: int) -> None:
        self._marks = [TimeMark(i, max(times[: i + 1])) for i in range(0, len(times), every)]

    def not_after(self, time: int) -> TimeMark | None:
        return max(
            (mark for mark in self._marks if mark.time <= time), key=lambda mark: mark.offset, default=None
        )


@settings(max_examples=100, deadline=None)
@given(
    times=st.lists(st.integers(10, 30), min_size=1, max_size=20),
    time=st.integers(5, 40),
    every=st.integers(1, 30),
)
def test_time_stands_for_longest_prefix_up_to_it(times: list[int], time: int, every: int) -> None:
    log, position = log_at(*times), LogPosition("then", time=time)
    lengths = [length for length in range(len(times) + 1) if max(times[:length], default=0) <= time]
    for marks in (None, Sparse(times, every)):
        if lengths[-1] == 0:
            with pytest.raises(PositionOutOfRange, match=r"is before c1\.log: its first offset is 0"):
                position.at(log, marks)
        else:
            assert position.at(log, marks) == lengths[-1] - 1


@settings(max_examples=100, deadline=None)
@given(times=st.lists(st.integers(10, 30), min_size=1, max_size=20), time=st.integers(5, 40))
def test_range_from_time_includes_events_of_that_time(times: list[int], time: int) -> None:
    log, position = log_at(*times), LogPosition("then", time=time)
    if time < times[0]:
        with pytest.raises(PositionOutOfRange):
            position.start(log)
    else:
        start = position.start(log)
        assert all(time_ < time for time_ in times[:start])
        assert start == len(times) or times[start] >= time


def test_offset_stands_for_prefix_that_ends_with_it() -> None:
    log = log_at(1, 2, 3)
    for offset in (-1, 0, 2):
        assert LogPosition.parse(str(offset)).at(log) == offset
    assert LogPosition.parse("2").start(log) == 2


@pytest.mark.parametrize("text", ["3", "-2", "99"])
def test_offset_outside_log_is_rejected_with_valid_range(text: str) -> None:
    log = log_at(1_000_000, 2_000_000, 3_000_000)
    why = (
        rf"offset {text} is outside c1\.log: its first offset is 0 \(1970-.*\), its last 2 \(1970-.*03\.000\)"
    )
    with pytest.raises(PositionOutOfRange, match=why):
        LogPosition.parse(text).at(log)
    with pytest.raises(PositionOutOfRange, match=why):
        LogPosition.parse(text).start(log)


def test_log_with_deleted_head_starts_later() -> None:
    log = log_at(1, 2, 3, 4)
    log.truncate(2)
    assert first_offset(log) == 2
    assert LogPosition.parse("1").at(log) == 1, "what a snapshot reaches"
    with pytest.raises(PositionOutOfRange, match=r"its first offset is 2 .*, its last 3"):
        LogPosition.parse("0").at(log)
    with pytest.raises(PositionOutOfRange, match="its first offset is 2"):
        LogPosition("then", time=2).at(log)
    assert LogPosition("then", time=3).at(log) == 2


def test_empty_log_has_only_the_position_before_first_event() -> None:
    log = log_at()
    assert LogPosition.parse("-1").at(log) == -1
    assert LogPosition.parse("0").start(log) == 0
    for text in ("0", "-10m"):
        with pytest.raises(PositionOutOfRange, match="which has no events"):
            LogPosition.parse(text).at(log)


def test_undecodable_last_record_does_not_hide_last_time() -> None:
    log = log_at(1_000_000, 2_000_000)
    log.append_values([b"no event"] * 40)
    with pytest.raises(PositionOutOfRange, match=r"its last 41 \(1970-.*02\.000\)"):
        LogPosition.parse("42").at(log)
