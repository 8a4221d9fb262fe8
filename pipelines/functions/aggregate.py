"""The function that aggregates the records of a window, or the values of an aggregating state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")


class AggregateFunction(ABC, Generic[IN, ACC, OUT]):
    """Aggregates records in an accumulator of another type."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Returns the accumulator of no records."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Returns the accumulator with one more record; it may be the same object."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Returns the result of the records."""

    @abstractmethod
    def merge(self, a: ACC, b: ACC) -> ACC:
        """Returns the accumulator of both, for merged windows."""
