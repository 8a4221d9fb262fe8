"""Windows, and functions on all records of a window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

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


class WindowContext(Context):
    """A Context whose timestamp is the window's last millisecond."""

    @property
    @abstractmethod
    def window(self) -> TimeWindow:
        """The window that fires."""


class ProcessWindowFunction(RichFunction, ABC, Generic[IN, OUT, K]):
    """Emits records for a window that fires, from its records or from the result of `reduce` or `aggregate`."""

    @abstractmethod
    def process(self, key: K, context: WindowContext, elements: Iterable[IN]) -> Iterable[OUT]:
        """Returns records to emit."""


class ProcessAllWindowFunction(RichFunction, ABC, Generic[IN, OUT]):
    """A ProcessWindowFunction for windows over all records of a stream, whatever their key."""

    @abstractmethod
    def process(self, context: WindowContext, elements: Iterable[IN]) -> Iterable[OUT]:
        """Returns records to emit."""
