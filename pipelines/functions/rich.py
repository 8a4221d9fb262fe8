"""Functions as classes, with `open` and `close`, called once in each attempt of each subtask (Flink's rich functions).

A plain callable does wherever one of these does. An object with `__call__` may have `open(context)` and `close()`
as well, without deriving from anything here.
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
ACC = TypeVar("ACC")


class RichFunction:
    """A function with a runtime context, `open` and `close`."""

    def open(self, context: RuntimeContext) -> None:
        """Before the first record."""

    def close(self) -> None:
        """After the last record, also after a failure."""


class MapFunction(RichFunction, ABC, Generic[IN, OUT]):
    """One record for each."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """The record that follows from this one."""


class FlatMapFunction(RichFunction, ABC, Generic[IN, OUT]):
    """Any number of records for each."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None:
        """The records that follow from this one; None for none."""


class FilterFunction(RichFunction, ABC, Generic[IN]):
    """Some of the records."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Whether the record stays."""


class ReduceFunction(RichFunction, ABC, Generic[T]):
    """Two records folded into one."""

    @abstractmethod
    def reduce(self, a: T, b: T) -> T:
        """Associative; may change neither of them."""


class AggregateFunction(ABC, Generic[IN, ACC, OUT]):
    """Records gathered in an accumulator of another type."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Of no records."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """The accumulator with one record more; may be the same object."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """What the records come to."""

    @abstractmethod
    def merge(self, a: ACC, b: ACC) -> ACC:
        """Of both: for windows that grow together."""


class CoMapFunction(RichFunction, ABC, Generic[IN1, IN2, OUT]):
    """One record for each of two connected streams'."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT:
        """For a record of the first stream."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT:
        """For a record of the second stream."""


class CoFlatMapFunction(RichFunction, ABC, Generic[IN1, IN2, OUT]):
    """Any number of records for each of two connected streams'."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """For a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """For a record of the second stream."""


class SinkFunction(RichFunction, ABC, Generic[IN]):
    """Takes records out of the job. Called at least once for each: what it does should be idempotent."""

    @abstractmethod
    def invoke(self, value: IN) -> Any:
        """Takes one record."""
