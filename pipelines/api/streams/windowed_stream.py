"""WindowedStream: the records of each key, or of all, grouped by windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

from ...functions import (
    AggregateFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowContext,
)
from ...functions.adapters import AllWindow, WindowCall
from .. import signatures
from .operator import SingleOutputStreamOperator
from .windowed import Windowed

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")
S = TypeVar("S")
K = TypeVar("K")


class WindowedStream(Windowed[T], Generic[T, K]):
    """The records of each key, grouped by windows. The timestamp of what follows is the window's last millisecond.

    Window functions get the key, a context with the window, and its records; or, behind `reduce` and `aggregate`, the
    one that these came to.
    """

    _PROCESS = signatures.PROCESS_WINDOW
    _OF_ALL = False

    @overload
    def reduce(self, function: Callable[[T, T], T] | ReduceFunction[T]) -> SingleOutputStreamOperator[T]: ...
    @overload
    def reduce(
        self,
        function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: ProcessWindowFunction[T, R, K]
        | Callable[[K, WindowContext, Iterable[T]], Iterable[R]],
        output_type: object = ...,
    ) -> SingleOutputStreamOperator[R]: ...
    def reduce(
        self, function: Any, window_function: Any = None, output_type: object = None
    ) -> SingleOutputStreamOperator[Any]:
        """The window's records folded into one by the function, in any order."""
        return self._reduce(function, window_function, output_type)

    @overload
    def aggregate(
        self,
        function: AggregateFunction[T, A, R],
        *,
        accumulator_type: object = ...,
        output_type: object = ...,
    ) -> SingleOutputStreamOperator[R]: ...
    @overload
    def aggregate(
        self,
        function: AggregateFunction[T, A, R],
        window_function: ProcessWindowFunction[R, S, K]
        | Callable[[K, WindowContext, Iterable[R]], Iterable[S]],
        accumulator_type: object = ...,
        output_type: object = ...,
    ) -> SingleOutputStreamOperator[S]: ...
    def aggregate(
        self,
        function: Any,
        window_function: Any = None,
        accumulator_type: object = None,
        output_type: object = None,
    ) -> SingleOutputStreamOperator[Any]:
        """What the window's records come to, gathered in an accumulator."""
        return self._aggregate(function, window_function, accumulator_type, output_type)

    def process(
        self,
        function: ProcessWindowFunction[T, R, K] | Callable[[K, WindowContext, Iterable[T]], Iterable[R]],
        output_type: object = None,
    ) -> SingleOutputStreamOperator[R]:
        """Any number of records for all of the window's, which are kept until it fires."""
        return self._process(function, output_type)

    def _adapted(self, window_function: Any) -> ProcessWindowFunction[Any, Any, Any]:
        if isinstance(window_function, ProcessWindowFunction):
            return window_function
        return WindowCall(window_function)


class AllWindowedStream(Windowed[T]):
    """All records, grouped by windows, in one subtask. As WindowedStream, but window functions get no key."""

    _PROCESS = signatures.PROCESS_ALL_WINDOW
    _OF_ALL = True

    @overload
    def reduce(self, function: Callable[[T, T], T] | ReduceFunction[T]) -> SingleOutputStreamOperator[T]: ...
    @overload
    def reduce(
        self,
        function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: ProcessAllWindowFunction[T, R] | Callable[[WindowContext, Iterable[T]], Iterable[R]],
        output_type: object = ...,
    ) -> SingleOutputStreamOperator[R]: ...
    def reduce(
        self, function: Any, window_function: Any = None, output_type: object = None
    ) -> SingleOutputStreamOperator[Any]:
        """The window's records folded into one by the function, in any order."""
        return self._reduce(function, window_function, output_type)

    @overload
    def aggregate(
        self,
        function: AggregateFunction[T, A, R],
        *,
        accumulator_type: object = ...,
        output_type: object = ...,
    ) -> SingleOutputStreamOperator[R]: ...
    @overload
    def aggregate(
        self,
        function: AggregateFunction[T, A, R],
        window_function: ProcessAllWindowFunction[R, S] | Callable[[WindowContext, Iterable[R]], Iterable[S]],
        accumulator_type: object = ...,
        output_type: object = ...,
    ) -> SingleOutputStreamOperator[S]: ...
    def aggregate(
        self,
        function: Any,
        window_function: Any = None,
        accumulator_type: object = None,
        output_type: object = None,
    ) -> SingleOutputStreamOperator[Any]:
        """What the window's records come to, gathered in an accumulator."""
        return self._aggregate(function, window_function, accumulator_type, output_type)

    def process(
        self,
        function: ProcessAllWindowFunction[T, R] | Callable[[WindowContext, Iterable[T]], Iterable[R]],
        output_type: object = None,
    ) -> SingleOutputStreamOperator[R]:
        """Any number of records for all of the window's, which are kept until it fires."""
        return self._process(function, output_type)

    def _adapted(self, window_function: Any) -> ProcessWindowFunction[Any, Any, Any]:
        return AllWindow(window_function)
