"""Parses a position in a log, an offset or a time, and resolves it to an offset.

A time means the longest prefix of the log in which no event has a later time in its header. Clocks of senders differ,
so times in a log are not sorted, but this prefix is still unique.

The history index has marks with known times (`TimeMarks`). The search reads from the newest mark that is not after the
time.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from ...infra.sanitize import local_time
from ...schemas.event import Record
from ..log import EventLog
from ..log.event_log import LogTruncated, read_to_end

_MICROSECOND = timedelta(microseconds=1)
_AGO = re.compile(r"-\s*(?:\d+(?:\.\d+)?\s*[a-z]+\s*)+")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_UNITS = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_MAX_SHOWN = 60
"""The maximum length of a position in an error message."""
_FORMS = (
    "an offset (4711), a time (2026-11-22T08:30:00, 08:30, 08:30:05.250), or how long ago "
    "(-10m, -1h30m, -2d; ms, s, m, h, d)"
)


class InvalidPosition(ValueError):
    """The text is no valid position; the message lists the valid forms."""


class PositionOutOfRange(LookupError):
    """The position is outside the log; the message names the log's first and last offset."""


class TimeMark(msgspec.Struct, frozen=True):
    """The events up to `offset` have times up to `time` (microseconds since the epoch)."""

    offset: int
    time: int


class TimeMarks(Protocol):
    """The known times of a log."""

    def not_after(self, time: int) -> TimeMark | None:
        """Returns the mark with the highest offset whose time is `time` or earlier; None if there is none."""
        ...


class LogPosition(msgspec.Struct, frozen=True):
    """A position in a log: an `offset`, or a `time` in microseconds since the epoch; `text` is the form of the user."""

    text: str
    offset: int | None = None
    time: int | None = None

    @classmethod
    def parse(cls, text: str, now: datetime | None = None) -> LogPosition:
        """Parses OFFSET, or TIME: ISO 8601 (local if it has no zone), HH:MM[:SS] of today, or -10m (ago).

        `now`: a time with a zone; by default the current time. Raises InvalidPosition.
        """
        stripped = text.strip()
        now = datetime.now().astimezone() if now is None else now
        try:
            if re.fullmatch(r"-?\d+", stripped):
                return cls(text, offset=int(stripped))
            if _AGO.fullmatch(stripped.lower()):
                return cls(text, time=_microseconds(now) - _parse_ago(stripped.lower()))
            if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2}([.,]\d{1,6})?)?", stripped):
                stripped = f"{now:%Y-%m-%d}T{stripped.zfill(len(stripped) + (stripped[2] != ':'))}"
            return cls(text, time=_microseconds(datetime.fromisoformat(stripped)))
        except (ValueError, KeyError, OverflowError, OSError):
            raise InvalidPosition(f"{text[:_MAX_SHOWN]!r} is no place in a log: say {_FORMS}") from None

    def at(self, log: EventLog, marks: TimeMarks | None = None) -> int:
        """Returns the offset of the last event up to the position; one less than the first offset if there is none.

        Raises PositionOutOfRange, LogUnavailable, ArchiveError.
        """
        if self.offset is not None:
            extent = LogExtent.from_log(log)
            if not extent.first - 1 <= self.offset < extent.end:
                raise PositionOutOfRange(f"offset {self.offset} is outside {extent.format_extent(log)}")
            return self.offset
        assert self.time is not None
        return _last_not_after(log, self.time, marks, self)

    def start(self, log: EventLog, marks: TimeMarks | None = None) -> int:
        """Returns the offset of the first event from the position on; for a time, with the events of that time.

        Raises like `at`.
        """
        if self.offset is not None:
            extent = LogExtent.from_log(log)
            if not extent.first <= self.offset < max(extent.end, 1):
                raise PositionOutOfRange(f"offset {self.offset} is outside {extent.format_extent(log)}")
            return self.offset
        assert self.time is not None
        first = _first_event(log)
        if first is not None and self.time == first.header.time:
            return LogExtent.from_log(log).first
        return _last_not_after(log, self.time - 1, marks, self) + 1


class LogExtent(msgspec.Struct, frozen=True):
    """The offsets of a log: the first one, and the `end` after the last one."""

    first: int
    end: int

    @classmethod
    def from_log(cls, log: EventLog) -> LogExtent:
        """Returns the current extent. Raises LogUnavailable."""
        return cls(first_offset(log), log.end())

    def format_extent(self, log: EventLog) -> str:
        """Returns the log with its first and last offset and time, for people."""
        if self.end <= self.first:
            return f"{log.topic}, which has no events"
        first, last = _first_event(log), _last_event(log)
        return (
            f"{log.topic}: its first offset is {self.first}{_format_record_time(first)}, its last "
            f"{self.end - 1}{_format_record_time(last)}"
        )


def first_offset(log: EventLog) -> int:
    """Returns the first offset that the log still has; 0 for an empty log. Raises LogUnavailable."""
    try:
        log.tail(0).close()
    except LogTruncated as error:
        return error.first
    return 0


def _last_not_after(log: EventLog, time: int, marks: TimeMarks | None, position: LogPosition) -> int:
    """Returns the last offset of the longest prefix whose events have times up to `time`. Raises PositionOutOfRange."""
    extent = LogExtent.from_log(log)
    mark = None if marks is None else marks.not_after(time)
    start = extent.first if mark is None else max(extent.first, mark.offset + 1)
    for batch in read_to_end(log, start, end=extent.end):
        for record in batch:
            if record.header.time > time:
                if mark is None and _is_first(log, record):
                    raise PositionOutOfRange(
                        f"{position.text!r} ({_clock(time)}) is before {extent.format_extent(log)}"
                    )
                return record.offset - 1
    if extent.end <= extent.first:
        raise PositionOutOfRange(f"there is nothing at {position.text!r} in {extent.format_extent(log)}")
    return extent.end - 1


def _is_first(log: EventLog, record: Record) -> bool:
    first = _first_event(log)
    return first is not None and first.offset == record.offset


def _first_event(log: EventLog) -> Record | None:
    for batch in read_to_end(log, first_offset(log)):
        return batch[0]
    return None


def _last_event(log: EventLog) -> Record | None:
    """Returns the last readable event."""
    first, end = first_offset(log), log.end()
    reach = 1
    while True:
        start = max(first, end - reach)
        found = None
        for batch in read_to_end(log, start, end=end):
            found = batch[-1]
        if found is not None or start == first:
            return found
        # There are unreadable values, or markers of transactions, at the end.
        reach *= 16


def _format_record_time(record: Record | None) -> str:
    return "" if record is None else f" ({_clock(record.header.time)})"


def _clock(time: int) -> str:
    return local_time(time, f"%Y-%m-%d %H:%M:%S.{time // 1000 % 1000:03}")


def _microseconds(moment: datetime) -> int:
    moment = moment.astimezone()
    epoch = datetime.fromtimestamp(0, moment.tzinfo)
    return (moment - epoch) // _MICROSECOND


def _parse_ago(text: str) -> int:
    """Returns microseconds. Raises KeyError for an unknown unit, OverflowError."""
    return int(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
