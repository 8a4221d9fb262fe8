"""Functions as classes with `open` and `close`, called once in each attempt of each subtask (Flink's rich functions).

A plain callable works wherever one of these does. An object with `__call__` may have `open(context)` and `close()` as
well, without deriving from any class here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from .context import RuntimeContext

IN = TypeVar("IN", contravariant=True)
IN1 = TypeVar("IN1", contravariant=True)
IN2 = TypeVar("IN2", contravariant=True)
OUT = TypeVar("OUT", covariant=True)
T = TypeVar("T")


class RichFunction:
    """A function with a runtime context, `open` and `close`."""

    def open(self, context: RuntimeContext) -> None:
        """Called before the first record."""

    def close(self) -> None:
        """Called after the last record, also after a failure."""


class MapFunction(RichFunction, ABC, Generic[IN, OUT]):
    """Emits one record for each record."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Returns the record to emit."""


class FlatMapFunction(RichFunction, ABC, Generic[IN, OUT]):
    """Emits any number of records for each record."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None:
        """Returns records to emit, or None."""


class FilterFunction(RichFunction, ABC, Generic[IN]):
    """Selects records."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Whether the record stays."""


class ReduceFunction(RichFunction, ABC, Generic[T]):
    """Combines two records into one."""

    @abstractmethod
    def reduce(self, a: T, b: T) -> T:
        """Returns the combined record. Must be associative, and must not change its arguments."""


class CoMapFunction(RichFunction, ABC, Generic[IN1, IN2, OUT]):
    """Emits one record for each record of two connected streams."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT:
        """Returns the record to emit for a record of the first stream."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT:
        """Returns the record to emit for a record of the second stream."""


class CoFlatMapFunction(RichFunction, ABC, Generic[IN1, IN2, OUT]):
    """Emits any number of records for each record of two connected streams."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """Returns records to emit for a record of the first stream, or None."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """Returns records to emit for a record of the second stream, or None."""


class SinkFunction(RichFunction, ABC, Generic[IN]):
    """Writes records to an external system. Called at least once for each record, so it should be idempotent."""

    @abstractmethod
    def invoke(self, value: IN) -> Any:
        """Takes one record."""
