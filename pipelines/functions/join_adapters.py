"""How a window join is made of operators that exist: it is a window over the union of both streams, whose records are
tagged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, TypeVar

from ..types import ClassOf, RecordType, Types
from .adapters import Around
from .context import RuntimeContext
from .joins import CoGroupFunction, JoinFunction, TaggedUnion
from .window import ProcessWindowFunction, WindowContext

X = TypeVar("X")


def tagged_type(first: RecordType, second: RecordType) -> RecordType:
    """Returns the record type of a TaggedUnion of such records."""
    fields = ("is_one", Types.BOOLEAN()), ("one", Types.OPTIONAL(first)), ("two", Types.OPTIONAL(second))
    return ClassOf(TaggedUnion.__name__, "named_tuple", fields, TaggedUnion)


def as_one(value: Any) -> TaggedUnion[Any, Any]:
    """Tags a record of the first stream."""
    return TaggedUnion(True, value, None)


def as_two(value: Any) -> TaggedUnion[Any, Any]:
    """Tags a record of the second stream."""
    return TaggedUnion(False, None, value)


class TaggedKey:
    """The key of a tagged record, by the selector of its stream."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> None:
        self._first = first
        self._second = second

    def __call__(self, tagged: TaggedUnion[Any, Any]) -> Any:
        is_one, one, two = tagged
        return self._first(one) if is_one else self._second(two)


class CoGroupedWindow(Around, ProcessWindowFunction[Any, Any, Any]):
    """A CoGroupFunction, or a callable, as a function of a window of tagged records."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._call: Callable[..., Iterable[Any]] = (
            function.co_group if isinstance(function, CoGroupFunction) else function
        )

    def process(self, key: Any, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        return self._call(*_split(elements))


class JoinedWindow(Around, ProcessWindowFunction[Any, Any, Any]):
    """A JoinFunction, or a callable, on each pair of a window of tagged records."""

    def __init__(self, function: Any, first: RecordType, second: RecordType) -> None:
        super().__init__(function)
        self._call = _join_of(function)
        self._types = first, second

    def open(self, context: RuntimeContext) -> None:
        super().open(context)
        self._copy_first, self._copy_second = map(_copier, self._types)

    def process(self, key: Any, context: WindowContext, elements: Iterable[Any]) -> Iterator[Any]:
        call, copy_first, copy_second = self._call, self._copy_first, self._copy_second
        for first, second in product(*_split(elements)):
            yield call(copy_first(first), copy_second(second))


def _split(elements: Iterable[TaggedUnion[Any, Any]]) -> tuple[list[Any], list[Any]]:
    first: list[Any] = []
    second: list[Any] = []
    for is_one, one, two in elements:
        if is_one:
            first.append(one)
        else:
            second.append(two)
    return first, second


def _join_of(function: Any) -> Callable[[Any, Any], Any]:
    call: Callable[[Any, Any], Any] = function.join if isinstance(function, JoinFunction) else function
    return call


def _copier(of: RecordType) -> Callable[[Any], Any]:
    """Returns a function that gives a function of the user a record of its own, which it may change."""
    return _same if of.immutable else copy.deepcopy


def _same(value: Any) -> Any:
    return value
