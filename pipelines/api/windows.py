"""Window assigners: they assign a record to windows (Flink's, by their names).

In processing time the clock at the window operator assigns a record, in event time the record's timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal

from ..graph.errors import ProgramError
from .durations import to_milliseconds
from .signatures import SELECTOR, check_function
from .source_location import caller_location

Time = Literal["processing", "event"]


@dataclass(frozen=True, slots=True)
class WindowAssigner:
    """Base of all assigners."""

    TIME: ClassVar[Time]

    def __str__(self) -> str:
        raise NotImplementedError

    def parameters(self) -> Mapping[str, Any]:
        """The value of `assigner` in OperatorConfig.parameters."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Tumbling(WindowAssigner):
    size_ms: int
    offset_ms: int = 0

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.size_ms} ms)"

    def parameters(self) -> Mapping[str, Any]:
        return {"kind": "tumbling", "time": self.TIME, "size_ms": self.size_ms, "offset_ms": self.offset_ms}


class TumblingProcessingTimeWindows(_Tumbling):
    """Windows of one size, one after another, by the time at which the record arrives at the window operator.

    A window begins at a multiple of its size since the epoch, plus the offset: windows of a day with an offset of -8
    hours begin at midnight in Shanghai.
    """

    __slots__ = ()
    TIME: ClassVar[Time] = "processing"

    @staticmethod
    def of(
        size: timedelta | None = None,
        *,
        seconds: float = 0,
        milliseconds: int = 0,
        offset: timedelta | None = None,
        offset_seconds: float = 0,
    ) -> TumblingProcessingTimeWindows:
        """Returns windows of that size, a millisecond or more. Raises ProgramError."""
        size_ms = _size(size, seconds, milliseconds)
        return TumblingProcessingTimeWindows(size_ms, _offset(offset, offset_seconds, size_ms))


class TumblingEventTimeWindows(_Tumbling):
    """Like TumblingProcessingTimeWindows, by the record's timestamp."""

    __slots__ = ()
    TIME: ClassVar[Time] = "event"

    @staticmethod
    def of(
        size: timedelta | None = None,
        *,
        seconds: float = 0,
        milliseconds: int = 0,
        offset: timedelta | None = None,
        offset_seconds: float = 0,
    ) -> TumblingEventTimeWindows:
        """Returns windows of that size, a millisecond or more. Raises ProgramError."""
        size_ms = _size(size, seconds, milliseconds)
        return TumblingEventTimeWindows(size_ms, _offset(offset, offset_seconds, size_ms))


@dataclass(frozen=True, slots=True)
class _Sliding(WindowAssigner):
    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.size_ms} ms, {self.slide_ms} ms)"

    def parameters(self) -> Mapping[str, Any]:
        return {
            "kind": "sliding",
            "time": self.TIME,
            "size_ms": self.size_ms,
            "slide_ms": self.slide_ms,
            "offset_ms": self.offset_ms,
        }


class SlidingProcessingTimeWindows(_Sliding):
    """Windows of one size, one for each `slide`, by the time at which the record arrives at the window operator."""

    __slots__ = ()
    TIME: ClassVar[Time] = "processing"

    @staticmethod
    def of(
        size: timedelta | None = None,
        slide: timedelta | None = None,
        *,
        seconds: float = 0,
        milliseconds: int = 0,
        slide_seconds: float = 0,
        slide_milliseconds: int = 0,
        offset: timedelta | None = None,
        offset_seconds: float = 0,
    ) -> SlidingProcessingTimeWindows:
        """Returns windows of that size and slide, each a millisecond or more. Raises ProgramError."""
        slide_ms = _slide(slide, slide_seconds, slide_milliseconds)
        return SlidingProcessingTimeWindows(
            _size(size, seconds, milliseconds), slide_ms, _offset(offset, offset_seconds, slide_ms)
        )


class SlidingEventTimeWindows(_Sliding):
    """Like SlidingProcessingTimeWindows, by the record's timestamp."""

    __slots__ = ()
    TIME: ClassVar[Time] = "event"

    @staticmethod
    def of(
        size: timedelta | None = None,
        slide: timedelta | None = None,
        *,
        seconds: float = 0,
        milliseconds: int = 0,
        slide_seconds: float = 0,
        slide_milliseconds: int = 0,
        offset: timedelta | None = None,
        offset_seconds: float = 0,
    ) -> SlidingEventTimeWindows:
        """Returns windows of that size and slide, each a millisecond or more. Raises ProgramError."""
        slide_ms = _slide(slide, slide_seconds, slide_milliseconds)
        return SlidingEventTimeWindows(
            _size(size, seconds, milliseconds), slide_ms, _offset(offset, offset_seconds, slide_ms)
        )


@dataclass(frozen=True, slots=True)
class _Session(WindowAssigner):
    gap_ms: int

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.gap_ms} ms)"

    def parameters(self) -> Mapping[str, Any]:
        return {"kind": "session", "time": self.TIME, "gap_ms": self.gap_ms}


class ProcessingTimeSessionWindows(_Session):
    """Windows that last until no record arrives at the window operator for the time of the gap."""

    __slots__ = ()
    TIME: ClassVar[Time] = "processing"

    @staticmethod
    def with_gap(
        gap: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0
    ) -> ProcessingTimeSessionWindows:
        """Returns sessions with that gap, a millisecond or more. Raises ProgramError."""
        return ProcessingTimeSessionWindows(_gap(gap, seconds, milliseconds))

    @staticmethod
    def with_dynamic_gap(gap: Callable[[Any], timedelta | int]) -> DynamicProcessingTimeSessionWindows:
        """Returns sessions with a gap for each record: the function returns a timedelta, or milliseconds, 1 or more.
        Raises ProgramError."""
        return DynamicProcessingTimeSessionWindows(_checked_gap(gap))


class EventTimeSessionWindows(_Session):
    """Windows that end when no record has a timestamp within the gap after the last one."""

    __slots__ = ()
    TIME: ClassVar[Time] = "event"

    @staticmethod
    def with_gap(
        gap: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0
    ) -> EventTimeSessionWindows:
        """Returns sessions with that gap, a millisecond or more. Raises ProgramError."""
        return EventTimeSessionWindows(_gap(gap, seconds, milliseconds))

    @staticmethod
    def with_dynamic_gap(gap: Callable[[Any], timedelta | int]) -> DynamicEventTimeSessionWindows:
        """Returns sessions with a gap for each record: the function returns a timedelta, or milliseconds, 1 or more.
        Raises ProgramError."""
        return DynamicEventTimeSessionWindows(_checked_gap(gap))


@dataclass(frozen=True, slots=True)
class _DynamicSession(WindowAssigner):
    gap: Callable[[Any], timedelta | int]

    def __str__(self) -> str:
        return f"{type(self).__name__}()"

    def parameters(self) -> Mapping[str, Any]:
        return {"kind": "dynamic_session", "time": self.TIME}


class DynamicProcessingTimeSessionWindows(_DynamicSession):
    """ProcessingTimeSessionWindows with the gap of each record."""

    __slots__ = ()
    TIME: ClassVar[Time] = "processing"


class DynamicEventTimeSessionWindows(_DynamicSession):
    """EventTimeSessionWindows with the gap of each record."""

    __slots__ = ()
    TIME: ClassVar[Time] = "event"


@dataclass(frozen=True, slots=True)
class GlobalWindows(WindowAssigner):
    """One window for each key, which never ends: only a trigger lets it fire, and only a purge empties it.

    Its records, and the state of its trigger, stay until a trigger purges them. What has not fired at the end of the
    input is lost, as in Flink.
    """

    TIME: ClassVar[Time] = "processing"

    def __str__(self) -> str:
        return "GlobalWindows()"

    def parameters(self) -> Mapping[str, Any]:
        return {"kind": "global", "time": self.TIME}

    @staticmethod
    def create() -> GlobalWindows:
        """Returns the assigner."""
        return GlobalWindows()


def _size(size: timedelta | None, seconds: float, milliseconds: int) -> int:
    return to_milliseconds("size of a window", size, seconds, milliseconds)


def _slide(slide: timedelta | None, seconds: float, milliseconds: int) -> int:
    keywords = "slide_seconds= or slide_milliseconds="
    return to_milliseconds("slide of a window", slide, seconds, milliseconds, keywords=keywords)


def _gap(gap: timedelta | None, seconds: float, milliseconds: int) -> int:
    return to_milliseconds("gap of a session", gap, seconds, milliseconds)


def _checked_gap(gap: Callable[[Any], timedelta | int]) -> Callable[[Any], timedelta | int]:
    check_function(gap, SELECTOR, operator="with_dynamic_gap", location=caller_location())
    return gap


def _offset(offset: timedelta | None, seconds: float, period_ms: int) -> int:
    """Returns the offset of windows within their period."""
    found = to_milliseconds(
        "offset of a window", offset, seconds, at_least=-(2**53), keywords="offset_seconds="
    )
    if abs(found) >= period_ms:
        raise ProgramError(
            f"an offset of {found} ms is not below the window's {period_ms} ms", location=caller_location()
        )
    return found
