"""Wraps functions of a program so that an operator can call them.

On keyed streams rich functions may ask for keyed state; there `map` and similar functions become process functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .context import RuntimeContext
from .process import KeyedContext, KeyedCoProcessFunction, KeyedProcessFunction
from .rich import (
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    RichFunction,
)
from .window import ProcessAllWindowFunction, ProcessWindowFunction, WindowContext

Function = Callable[..., Any]


class Around(RichFunction):
    """Opens and closes the function that it wraps."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def open(self, context: RuntimeContext) -> None:
        for function in self.parts:
            if callable(opener := getattr(function, "open", None)):
                opener(context)

    def close(self) -> None:
        for function in self.parts:
            if callable(closer := getattr(function, "close", None)):
                closer()


class KeyedMap(Around, KeyedProcessFunction[Any, Any, Any]):
    """A MapFunction, or a callable, on a keyed stream."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._call: Function = function.map if isinstance(function, MapFunction) else function

    def process_element(self, value: Any, context: KeyedContext[Any]) -> Iterable[Any]:
        del context
        return (self._call(value),)


class KeyedFlatMap(Around, KeyedProcessFunction[Any, Any, Any]):
    """A FlatMapFunction, or a callable, on a keyed stream."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._call: Function = function.flat_map if isinstance(function, FlatMapFunction) else function

    def process_element(self, value: Any, context: KeyedContext[Any]) -> Iterable[Any] | None:
        del context
        found: Iterable[Any] | None = self._call(value)
        return found


class KeyedFilter(Around, KeyedProcessFunction[Any, Any, Any]):
    """A FilterFunction, or a callable, on a keyed stream."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._call: Function = function.filter if isinstance(function, FilterFunction) else function

    def process_element(self, value: Any, context: KeyedContext[Any]) -> Iterable[Any]:
        del context
        return (value,) if self._call(value) else ()


class KeyedCoMap(Around, KeyedCoProcessFunction[Any, Any, Any, Any]):
    """A CoMapFunction on keyed streams."""

    def __init__(self, function: CoMapFunction[Any, Any, Any]) -> None:
        super().__init__(function)
        self._function = function

    def process_element1(self, value: Any, context: KeyedContext[Any]) -> Iterable[Any]:
        del context
        return (self._function.map1(value),)

    def process_element2(self, value: Any, context: KeyedContext[Any]) -> Iterable[Any]:
        del context
        return (self._function.map2(value),)


class KeyedCoFlatMap(Around, KeyedCoProcessFunction[Any, Any, Any, Any]):
    """A CoFlatMapFunction on keyed streams."""

    def __init__(self, function: CoFlatMapFunction[Any, Any, Any]) -> None:
        super().__init__(function)
        self._function = function

    def process_element1(self, value: Any, context: KeyedContext[Any]) -> Iterable[Any] | None:
        del context
        return self._function.flat_map1(value)

    def process_element2(self, value: Any, context: KeyedContext[Any]) -> Iterable[Any] | None:
        del context
        return self._function.flat_map2(value)


class TwoMaps(Around, CoMapFunction[Any, Any, Any]):
    """A CoMapFunction of two callables."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(first, second)
        self._first, self._second = (
            part.map if isinstance(part, MapFunction) else part for part in (first, second)
        )

    def map1(self, value: Any) -> Any:
        return self._first(value)

    def map2(self, value: Any) -> Any:
        return self._second(value)


class TwoFlatMaps(Around, CoFlatMapFunction[Any, Any, Any]):
    """A CoFlatMapFunction of two callables."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(first, second)
        self._first, self._second = (
            part.flat_map if isinstance(part, FlatMapFunction) else part for part in (first, second)
        )

    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        found: Iterable[Any] | None = self._first(value)
        return found

    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        found: Iterable[Any] | None = self._second(value)
        return found


class WindowCall(Around, ProcessWindowFunction[Any, Any, Any]):
    """A callable (key, context, elements) -> records as a window function."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        self._call = function

    def process(self, key: Any, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        found: Iterable[Any] = self._call(key, context, elements)
        return found


class AllWindow(Around, ProcessWindowFunction[Any, Any, Any]):
    """A ProcessAllWindowFunction, or a callable (context, elements) -> records, as a window function without a key."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        is_class = isinstance(function, ProcessAllWindowFunction)
        self._call: Function = function.process if is_class else function

    def process(self, key: Any, context: WindowContext, elements: Iterable[Any]) -> Iterable[Any]:
        del key
        found: Iterable[Any] = self._call(context, elements)
        return found


class Field:
    """A key selector: the field of that name, of an object or of a dictionary."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, record: Any) -> Any:
        return record[self.name] if isinstance(record, Mapping) else getattr(record, self.name)


def no_key(record: Any) -> int:
    """Returns the key of all records of a stream without keys."""
    del record
    return 0


def may_have_state(function: object) -> bool:
    """Whether a function for two streams may request keyed state: not if it consists of plain functions."""
    if isinstance(function, (TwoMaps, TwoFlatMaps)):
        return any(callable(getattr(part, "open", None)) for part in function.parts)
    return True
