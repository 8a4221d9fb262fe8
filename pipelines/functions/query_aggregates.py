"""Aggregates of a query in SQL: NULL is no value for them, and the aggregate of no value is NULL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..types import OptionalOf, RecordType
from .aggregates import Count, WindowAggregate
from .kafka_record import without_none
from .window import ProcessAllWindowFunction, ProcessWindowFunction, WindowContext


@dataclass(frozen=True)
class CountValues(Count):
    """The number of values that are not NULL."""

    def add(self, accumulator: int, value: Any) -> int:
        return accumulator if value is None else accumulator + 1


@dataclass(frozen=True)
class OfValues(WindowAggregate):
    """An aggregate of the values that are not NULL; NULL if there is none."""

    inner: WindowAggregate = field(default_factory=Count)

    def start(self) -> None:
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        if value is None:
            return accumulator
        return self.inner.add(self.inner.start() if accumulator is None else accumulator, value)

    def merge(self, a: Any, b: Any) -> Any:
        return b if a is None else a if b is None else self.inner.merge(a, b)

    def result(self, accumulator: Any) -> Any:
        return None if accumulator is None else self.inner.result(accumulator)

    def accumulator_type(self, of: RecordType) -> RecordType:
        return _optional(self.inner.accumulator_type(without_none(of)))

    def result_type(self, of: RecordType) -> RecordType:
        return _optional(self.inner.result_type(without_none(of)))


class QueryRow(ProcessWindowFunction[tuple[Any, ...], Any, Any]):
    """Puts keys, the window and aggregates into one record."""

    def __init__(self, create: Callable[..., Any], *, has_many_keys: bool) -> None:
        """`create`: creates the record from its fields. `has_many_keys`: the key is a tuple of them."""
        self._create = create
        self._has_many_keys = has_many_keys

    def process(self, key: Any, context: WindowContext, elements: Iterable[tuple[Any, ...]]) -> Iterable[Any]:
        keys = key if self._has_many_keys else (key,)
        return [self._create(*keys, context.window.start, context.window.end, *values) for values in elements]


class QueryRowOfAll(ProcessAllWindowFunction[tuple[Any, ...], Any]):
    """The same for all records of a window."""

    def __init__(self, create: Callable[..., Any]) -> None:
        self._create = create

    def process(self, context: WindowContext, elements: Iterable[tuple[Any, ...]]) -> Iterable[Any]:
        return [self._create(context.window.start, context.window.end, *values) for values in elements]


class KeyColumns:
    """Selects several columns of a record as its key."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def __call__(self, record: Any) -> tuple[Any, ...]:
        return tuple([getattr(record, name) for name in self._names])


def _optional(of: RecordType) -> RecordType:
    return of if isinstance(of, OptionalOf) else OptionalOf(of)
