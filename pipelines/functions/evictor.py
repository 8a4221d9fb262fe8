"""Evictors: they remove records from a window when it fires (Flink's Evictor).

A window with an evictor keeps its records, also for `reduce` and `aggregate`, which then run when it fires.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar

from .intervals import checked_count, interval_ms
from .window import TimeWindow

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class TimestampedValue(Generic[T]):
    """A record of a window."""

    value: T
    timestamp: int
    """Its timestamp (ms); in processing time, when it arrived."""


class EvictorContext(ABC):
    """The times when the window fires."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The watermark (ms)."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """The processing time that the task has reached (ms)."""


Elements = list[TimestampedValue[T]]


class Evictor(ABC, Generic[T]):
    """Removes records from a window that fires. Each method may remove elements of the list, and nothing else."""

    def evict_before(self, elements: Elements[T], window: TimeWindow, context: EvictorContext) -> None:
        """Called before the window's function. `elements`: the records in the order of arrival."""

    def evict_after(self, elements: Elements[T], window: TimeWindow, context: EvictorContext) -> None:
        """Called after the window's function, with the remaining records."""

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class _BuiltIn(Evictor[Any]):
    does_evict_after: bool

    def evict_before(self, elements: Elements[Any], window: TimeWindow, context: EvictorContext) -> None:
        if not self.does_evict_after:
            self._evict(elements)

    def evict_after(self, elements: Elements[Any], window: TimeWindow, context: EvictorContext) -> None:
        if self.does_evict_after:
            self._evict(elements)

    @abstractmethod
    def _evict(self, elements: Elements[Any]) -> None: ...


@dataclass(frozen=True)
class CountEvictor(_BuiltIn):
    """Keeps the last records, up to a number."""

    count: int

    @classmethod
    def of(cls, count: int, do_evict_after: bool = False) -> Self:
        """Returns the evictor; `do_evict_after`: it evicts after the window's function. Raises ValueError."""
        return cls(do_evict_after, checked_count("count of a CountEvictor", count, 0))

    def _evict(self, elements: Elements[Any]) -> None:
        del elements[: max(0, len(elements) - self.count)]

    def __str__(self) -> str:
        return f"CountEvictor({self.count})"


@dataclass(frozen=True)
class TimeEvictor(_BuiltIn):
    """Keeps the records whose timestamps are less than this time before the greatest one."""

    window_ms: int

    @classmethod
    def of(
        cls,
        window: timedelta | None = None,
        do_evict_after: bool = False,
        *,
        seconds: float = 0,
        milliseconds: int = 0,
    ) -> Self:
        """Returns the evictor; `do_evict_after`: it evicts after the window's function. Raises ValueError."""
        return cls(do_evict_after, interval_ms("time of a TimeEvictor", window, seconds, milliseconds))

    def _evict(self, elements: Elements[Any]) -> None:
        if elements:
            limit = max(element.timestamp for element in elements) - self.window_ms
            elements[:] = [element for element in elements if element.timestamp > limit]

    def __str__(self) -> str:
        return f"TimeEvictor({self.window_ms} ms)"


@dataclass(frozen=True)
class DeltaEvictor(_BuiltIn):
    """Keeps the records that differ from the last one by less than the threshold."""

    threshold: float
    delta: Callable[[Any, Any], float]

    @classmethod
    def of(cls, threshold: float, delta: Callable[[Any, Any], float], do_evict_after: bool = False) -> Self:
        """Returns the evictor. `delta(record, last)` returns the difference of two records; `do_evict_after`: it evicts
        after the window's function."""
        return cls(do_evict_after, threshold, delta)

    def _evict(self, elements: Elements[Any]) -> None:
        if elements:
            last = elements[-1].value
            elements[:] = [
                element for element in elements if self.delta(element.value, last) < self.threshold
            ]

    def __str__(self) -> str:
        return f"DeltaEvictor({self.threshold})"
