"""Aggregates of a window's records by name: `aggregate(count=Count(), total=Sum("amount"))`.

Each of them knows the accumulator of one value of a record. All of them together are one AggregateFunction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..types import OptionalOf, RecordType, Scalar, TupleOf
from .aggregate import AggregateFunction
from .window import ProcessWindowFunction, WindowContext


@dataclass(frozen=True)
class WindowAggregate(ABC):
    """One aggregate. `field`: the name or position of a field; None: the record itself."""

    field: str | int | None = None

    @abstractmethod
    def start(self) -> Any:
        """Returns the accumulator of no values."""

    @abstractmethod
    def add(self, accumulator: Any, value: Any) -> Any:
        """Returns the accumulator with one more value."""

    @abstractmethod
    def merge(self, a: Any, b: Any) -> Any:
        """Returns the accumulator of both, the earlier one first."""

    def result(self, accumulator: Any) -> Any:
        """Returns the aggregate."""
        return accumulator

    def accumulator_type(self, of: RecordType) -> RecordType:
        """Returns the type of accumulators of values of this type."""
        return of

    def result_type(self, of: RecordType) -> RecordType:
        """Returns the type of the aggregate of values of this type."""
        return of


@dataclass(frozen=True)
class Count(WindowAggregate):
    """The number of records."""

    def start(self) -> int:
        return 0

    def add(self, accumulator: int, value: Any) -> int:
        return accumulator + 1

    def merge(self, a: int, b: int) -> int:
        return a + b

    def accumulator_type(self, of: RecordType) -> RecordType:
        return Scalar("int")

    def result_type(self, of: RecordType) -> RecordType:
        return Scalar("int")


@dataclass(frozen=True)
class Sum(WindowAggregate):
    """The sum of numbers."""

    def start(self) -> int:
        return 0

    def add(self, accumulator: Any, value: Any) -> Any:
        return accumulator + value

    def merge(self, a: Any, b: Any) -> Any:
        return a + b


@dataclass(frozen=True)
class Mean(WindowAggregate):
    """The mean of numbers."""

    def start(self) -> tuple[float, int]:
        return 0, 0

    def add(self, accumulator: tuple[float, int], value: Any) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def merge(self, a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
        return a[0] + b[0], a[1] + b[1]

    def result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]

    def accumulator_type(self, of: RecordType) -> RecordType:
        return TupleOf((of, Scalar("int")))

    def result_type(self, of: RecordType) -> RecordType:
        return Scalar("float")


@dataclass(frozen=True)
class _First(WindowAggregate):
    """The first value, unless a later one comes before it."""

    def start(self) -> None:
        return None

    @abstractmethod
    def chosen(self, first: Any, second: Any) -> Any:
        """Returns one of two values."""

    def add(self, accumulator: Any, value: Any) -> Any:
        return value if accumulator is None else self.chosen(accumulator, value)

    def merge(self, a: Any, b: Any) -> Any:
        return b if a is None else a if b is None else self.chosen(a, b)

    def accumulator_type(self, of: RecordType) -> RecordType:
        return OptionalOf(of)


@dataclass(frozen=True)
class Min(_First):
    """The least value."""

    def chosen(self, first: Any, second: Any) -> Any:
        return min(first, second)


@dataclass(frozen=True)
class Max(_First):
    """The greatest value."""

    def chosen(self, first: Any, second: Any) -> Any:
        return max(first, second)


class AggregateTogether(AggregateFunction[Any, tuple[Any, ...], tuple[Any, ...]]):
    """Several aggregates of the same records."""

    def __init__(self, parts: Sequence[tuple[WindowAggregate, Callable[[Any], Any]]]) -> None:
        """`parts`: aggregates, with a function that returns the value of a record."""
        self._parts = tuple(parts)

    def create_accumulator(self) -> tuple[Any, ...]:
        return tuple(part.start() for part, _ in self._parts)

    def add(self, value: Any, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            [part.add(held, get(value)) for (part, get), held in zip(self._parts, accumulator, strict=True)]
        )

    def get_result(self, accumulator: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([part.result(held) for (part, _), held in zip(self._parts, accumulator, strict=True)])

    def merge(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([part.merge(*held) for (part, _), *held in zip(self._parts, a, b, strict=True)])


class WindowRow(ProcessWindowFunction[tuple[Any, ...], Any, Any]):
    """Puts key, window and aggregates into one record."""

    def __init__(self, create: Callable[..., Any], *, has_key: bool, has_bounds: bool) -> None:
        """`create`: creates the record from its fields."""
        self._create = create
        self._has_key = has_key
        self._has_bounds = has_bounds

    def process(self, key: Any, context: WindowContext, elements: Iterable[tuple[Any, ...]]) -> Iterable[Any]:
        head = (key,) if self._has_key else ()
        if self._has_bounds:
            head = (*head, context.window.start, context.window.end)
        return [self._create(*head, *values) for values in elements]


def itself(record: Any) -> Any:
    """Returns the record."""
    return record
