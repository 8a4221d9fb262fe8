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
"""Characters of what was said that are repeated."""
_FORMS = (
    "an offset (4711), a time (2026-11-22T08:30:00, 08:30, 08:30:05.250), or how long ago "
    "(-10m, -1h30m, -2d; ms, s, m, h, d)"
)


class InvalidPosition(ValueError):
    """The text is no valid position; the message lists the valid forms."""


class PositionOutOfRange(LookupError):
    """The position is outside the log; the message names the log's first and last offset."""


class TimeMark(msgspec.Struct, frozen=True):
    """That the events up to `offset` have times of `time` (microseconds since the epoch) at most."""

    offset: int
    time: int


class TimeMarks(Protocol):
    """What is known of a log's times without reading it."""

    def not_after(self, time: int) -> TimeMark | None:
        """The mark with the highest offset whose time is `time` or earlier; None where none is known."""
        ...


class LogPosition(msgspec.Struct, frozen=True):
    """A place in a log: `offset`, or else `time` in microseconds since the epoch; `text` is how it was said."""

    text: str
    offset: int | None = None
    time: int | None = None

    @classmethod
    def parse(cls, text: str, now: datetime | None = None) -> LogPosition:
        """OFFSET, or TIME: ISO 8601 (local where it names no zone), HH:MM[:SS] of today, or -10m (ago).

        `now`: with a zone; by default the clock's. Raises BadPosition.
        """
        said = text.strip()
        now = datetime.now().astimezone() if now is None else now
        try:
            if re.fullmatch(r"-?\d+", said):
                return cls(text, offset=int(said))
            if _AGO.fullmatch(said.lower()):
                return cls(text, time=_microseconds(now) - _ago(said.lower()))
            if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2}([.,]\d{1,6})?)?", said):
                said = f"{now:%Y-%m-%d}T{said if said[2] == ':' else f'0{said}'}"
            moment = datetime.fromisoformat(said)
            return cls(text, time=_microseconds(moment))
        except (ValueError, KeyError, OverflowError, OSError):
            raise InvalidPosition(f"{text[:_MAX_SHOWN]!r} is no place in a log: say {_FORMS}") from None

    def at(self, log: EventLog, marks: TimeMarks | None = None) -> int:
        """The offset of the last event of the beginning that it stands for; one less than the first offset: of nothing.

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
        """The offset of the first event of the stretch that begins there: of a time, with the events of just that time.

        Raises as `at`.
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
    """From which offset to which a log reaches: `end` is behind the last."""

    first: int
    end: int

    @classmethod
    def from_log(cls, log: EventLog) -> LogExtent:
        """As it is now. Raises LogUnavailable."""
        return cls(first_offset(log), log.end())

    def format_extent(self, log: EventLog) -> str:
        """The log with its first and last offset and time, for people."""
        if self.end <= self.first:
            return f"{log.topic}, which has no events"
        first, last = _first_event(log), _last_event(log)
        return (
            f"{log.topic}: its first offset is {self.first}{_format_record_time(first)}, its last "
            f"{self.end - 1}{_format_record_time(last)}"
        )


def first_offset(log: EventLog) -> int:
    """The first offset that the log still holds; 0 of one that is empty. Raises LogUnavailable."""
    try:
        log.tail(0).close()
    except LogTruncated as error:
        return error.first
    return 0


def _last_not_after(log: EventLog, time: int, marks: TimeMarks | None, said: LogPosition) -> int:
    """The last offset of the longest beginning whose events have `time` at most. Raises OutsideLog."""
    extent = LogExtent.from_log(log)
    mark = None if marks is None else marks.not_after(time)
    start = extent.first if mark is None else max(extent.first, mark.offset + 1)
    for batch in read_to_end(log, start, end=extent.end):
        for record in batch:
            if record.header.time > time:
                if mark is None and _is_first(log, record):
                    raise PositionOutOfRange(
                        f"{said.text!r} ({_clock(time)}) is before {extent.format_extent(log)}"
                    )
                return record.offset - 1
    if extent.end <= extent.first:
        raise PositionOutOfRange(f"there is nothing at {said.text!r} in {extent.format_extent(log)}")
    return extent.end - 1


def _is_first(log: EventLog, record: Record) -> bool:
    first = _first_event(log)
    return first is not None and first.offset == record.offset


def _first_event(log: EventLog) -> Record | None:
    for batch in read_to_end(log, first_offset(log)):
        return batch[0]
    return None


def _last_event(log: EventLog) -> Record | None:
    """The last one that can be read."""
    first, end = first_offset(log), log.end()
    reach = 1
    while True:
        start = max(first, end - reach)
        found = None
        for batch in read_to_end(log, start, end=end):
            found = batch[-1]
        if found is not None or start == first:
            return found
        # What is unreadable, or a transaction's marker, lies at the end.
        reach *= 16


def _format_record_time(record: Record | None) -> str:
    return "" if record is None else f" ({_clock(record.header.time)})"


def _clock(time: int) -> str:
    return local_time(time, f"%Y-%m-%d %H:%M:%S.{time // 1000 % 1000:03}")


def _microseconds(moment: datetime) -> int:
    moment = moment.astimezone()
    epoch = datetime.fromtimestamp(0, moment.tzinfo)
    return (moment - epoch) // _MICROSECOND


def _ago(said: str) -> int:
    """Microseconds. Raises KeyError for a unit that is none, OverflowError."""
    return int(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(said)))
