"""Windows, and functions on all records of a window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from .context import KeyedStateStore
from .process import Context
from .rich import RichFunction

K = TypeVar("K")
IN = TypeVar("IN")
OUT = TypeVar("OUT")

LATE_RECORDS_DROPPED: Final = "numLateRecordsDropped"
"""The accumulator of records that came too late, and were not sent to a side output."""


@dataclass(frozen=True, slots=True, order=True)
class TimeWindow:
    """[start, end) in milliseconds since the epoch."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The last millisecond inside the window."""
        return self.end - 1


_BEGIN_OF_TIME: Final = -(2**63)
_END_OF_TIME: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class GlobalWindow(TimeWindow):
    """The only window of GlobalWindows: all of time."""

    start: int = _BEGIN_OF_TIME
    end: int = _END_OF_TIME


class WindowContext(Context):
    """A Context whose timestamp is the window's last millisecond; for a GlobalWindow, that of the record or
    timer that let it fire."""

    @property
    @abstractmethod
    def window(self) -> TimeWindow:
        """The window that fires."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The watermark (ms)."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """The processing time that the task has reached (ms)."""

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """The state of the key in this window. `clear` of the function has to remove it. Sessions have none, since they
        merge: TypeError."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """The state of the key, over all windows."""


class ProcessWindowFunction(RichFunction, ABC, Generic[IN, OUT, K]):
    """Emits records for a window that fires, from its records or from the result of `reduce` or `aggregate`."""

    @abstractmethod
    def process(self, key: K, context: WindowContext, elements: Iterable[IN]) -> Iterable[OUT]:
        """Returns records to emit."""

    def clear(self, context: WindowContext) -> None:
        """Called when the window is removed: removes its state."""


class ProcessAllWindowFunction(RichFunction, ABC, Generic[IN, OUT]):
    """A ProcessWindowFunction for windows over all records of a stream, whatever their key."""

    @abstractmethod
    def process(self, context: WindowContext, elements: Iterable[IN]) -> Iterable[OUT]:
        """Returns records to emit."""

    def clear(self, context: WindowContext) -> None:
        """Called when the window is removed: removes its state."""
