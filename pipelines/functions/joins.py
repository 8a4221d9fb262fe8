"""Functions that join records of two streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from .rich import RichFunction
from .side_output import OutputTag

A = TypeVar("A")
B = TypeVar("B")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
X = TypeVar("X")


class TaggedUnion(NamedTuple, Generic[A, B]):
    """A record of the first or of the second of two streams (Flink's TaggedUnion)."""

    is_one: bool
    """Whether it is of the first stream."""
    one: A | None
    """The record, if it is of the first stream."""
    two: B | None
    """The record, if it is of the second stream."""


class JoinFunction(RichFunction, ABC, Generic[IN1, IN2, OUT]):
    """Combines two records that match."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> OUT:
        """Returns the record to emit."""


class CoGroupFunction(RichFunction, ABC, Generic[IN1, IN2, OUT]):
    """Combines the records of two streams with one key in one window."""

    @abstractmethod
    def co_group(self, first: Iterable[IN1], second: Iterable[IN2]) -> Iterable[OUT]:
        """Returns records to emit. One of the two may be empty."""


class ProcessJoinContext(ABC):
    """The context of a ProcessJoinFunction. Times are milliseconds since the epoch."""

    @property
    @abstractmethod
    def left_timestamp(self) -> int:
        """The timestamp of the left record."""

    @property
    @abstractmethod
    def right_timestamp(self) -> int:
        """The timestamp of the right record."""

    @property
    @abstractmethod
    def timestamp(self) -> int:
        """The timestamp of the result: the later one of both."""

    @abstractmethod
    def output(self, tag: OutputTag[X], value: X) -> None:
        """Emits a record on a side output, with the timestamp of the result."""


class ProcessJoinFunction(RichFunction, ABC, Generic[IN1, IN2, OUT]):
    """Emits any number of records for each pair of an interval join."""

    @abstractmethod
    def process_element(self, left: IN1, right: IN2, context: ProcessJoinContext) -> Iterable[OUT] | None:
        """Returns records to emit, or None."""
