"""WindowedStream: the records of each key, or of all, grouped by windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar

from ...functions import (
    AggregateFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowContext,
)
from ...functions.adapters import AllWindow, WindowCall
from ...types import RecordType
from .. import signatures
from ..durations import milliseconds_of
from ..hints import result_type
from ..locations import caller_location
from ..signatures import Signature, check_function
from ..transformations import RunningFunction, Window
from ..windows import WindowAssigner
from .keyed_stream import KeyedStream, aggregated_column
from .operator import SingleOutputStreamOperator
from .settings import OnlyInPrograms, refusal

T = TypeVar("T")
R = TypeVar("R")
A = TypeVar("A")
K = TypeVar("K")


class _Windowed(OnlyInPrograms, Generic[T]):
    """What keyed and unkeyed windows share."""

    _PROCESS: Signature
    _OF_ALL: bool

    def __init__(
        self,
        keyed: KeyedStream[T, Any],
        assigner: WindowAssigner,
        lateness_ms: int = 0,
        late: OutputTag[T] | None = None,
    ) -> None:
        self._keyed = keyed
        self._assigner = assigner
        self._lateness_ms = lateness_ms
        self._late = late

    def allowed_lateness(
        self, lateness: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0
    ) -> Self:
        """A window stays so long after it has fired, and fires again for each record that comes late."""
        if self._assigner.TIME == "processing":
            raise refusal("allowed_lateness", f"no record comes late for {self._assigner}: use event time")
        found = milliseconds_of(
            "lateness", lateness, seconds, milliseconds, operator="allowed_lateness", at_least=0
        )
        return type(self)(self._keyed, self._assigner, found, self._late)

    def side_output_late_data(self, tag: OutputTag[T]) -> Self:
        """Records too late for their windows go to a side output of the next step, instead of nowhere."""
        if not isinstance(tag, OutputTag):
            raise refusal("side_output_late_data", f"it needs an OutputTag, not {tag!r}")
        if self._assigner.TIME == "processing":
            raise refusal(
                "side_output_late_data", f"no record comes late for {self._assigner}: use event time"
            )
        own = self._keyed.record_type
        if tag.output_type is not None and tag.record_type != own:
            raise refusal(
                "side_output_late_data",
                f"the tag {tag.name!r} is of type {tag.record_type}, but the stream's records are {own}",
            )
        return type(self)(self._keyed, self._assigner, self._lateness_ms, tag)

    def sum(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """The window's first record, with the sum of a field; None: records are numbers."""
        return self._built_in("sum", field)

    def min(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """The window's first record, with the least value of a field."""
        return self._built_in("min", field)

    def max(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """The window's first record, with the greatest value of a field."""
        return self._built_in("max", field)

    def min_by(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """The window's record with the least value of a field; the first such."""
        return self._built_in("min_by", field)

    def max_by(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """The window's record with the greatest value of a field; the first such."""
        return self._built_in("max_by", field)

    def _reduce(
        self, function: Any, window_function: Any, output_type: object
    ) -> SingleOutputStreamOperator[Any]:
        check_function(function, signatures.REDUCE, operator="reduce", location=caller_location())
        own = self._keyed.record_type
        return self._fired(
            "reduce",
            self._result("reduce", window_function, output_type, own),
            aggregation="reduce",
            aggregator=function,
            window_function=window_function,
            accumulator_type=own,
        )

    def _aggregate(
        self, function: Any, window_function: Any, accumulator_type: object, output_type: object
    ) -> SingleOutputStreamOperator[Any]:
        check_function(function, signatures.AGGREGATE, operator="aggregate", location=caller_location())
        gathered = result_type(function, signatures.ACCUMULATOR)
        own = result_type(function, signatures.AGGREGATE)
        return self._fired(
            "aggregate",
            self._result("aggregate", window_function, output_type, own),
            aggregation="aggregate",
            aggregator=function,
            window_function=window_function,
            accumulator_type=gathered if accumulator_type is None else RecordType.of(accumulator_type),
        )

    def _process(self, function: Any, output_type: object) -> SingleOutputStreamOperator[Any]:
        if function is None:
            raise refusal("process", "it needs a function")
        own = self._keyed.record_type
        return self._fired(
            "process",
            self._result("process", function, output_type, own),
            aggregation="none",
            window_function=function,
            accumulator_type=own,
        )

    def _built_in(self, function: RunningFunction, field: str | int | None) -> SingleOutputStreamOperator[T]:
        own = self._keyed.record_type
        column = aggregated_column(own, function, field)
        return self._fired(function, own, aggregation=function, field=column, accumulator_type=own)

    def _result(
        self, step: str, window_function: Any, output_type: object, without: RecordType
    ) -> RecordType:
        """The type of what a fired window gives, by its function if it has one."""
        if window_function is not None:
            check_function(window_function, self._PROCESS, operator=step, location=caller_location())
        if output_type is not None:
            return RecordType.of(output_type)
        return without if window_function is None else result_type(window_function, self._PROCESS)

    def _fired(
        self,
        step: str,
        output_type: RecordType,
        *,
        aggregation: str,
        accumulator_type: RecordType,
        aggregator: Any = None,
        window_function: Any = None,
        field: str | None = None,
    ) -> SingleOutputStreamOperator[Any]:
        late = {} if self._late is None else {self._late.name: self._keyed.record_type}
        return self._keyed._then(
            Window,
            step,
            f"{'WindowAll' if self._OF_ALL else 'Window'}({self._assigner})",
            output_type,
            side_outputs=late,
            key=self._keyed._key,
            assigner=self._assigner,
            allowed_lateness_ms=self._lateness_ms,
            late_tag=None if self._late is None else self._late.name,
            aggregation=aggregation,
            field=field,
            aggregator=aggregator,
            window_function=None if window_function is None else self._adapted(window_function),
            accumulator_type=accumulator_type,
            of_all=self._OF_ALL,
        )

    def _adapted(self, window_function: Any) -> ProcessWindowFunction[Any, Any, Any]:
        raise NotImplementedError


class WindowedStream(_Windowed[T], Generic[T, K]):
    """The records of each key, grouped by windows. The timestamp of what follows is the window's last millisecond.

    Window functions get the key, a context with the window, and its records; or, behind `reduce` and `aggregate`, the
    one that these came to.
    """

    _PROCESS = signatures.PROCESS_WINDOW
    _OF_ALL = False

    def reduce(
        self,
        function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: ProcessWindowFunction[T, Any, K]
        | Callable[[K, WindowContext, Iterable[T]], Iterable[Any]]
        | None = None,
        output_type: object = None,
    ) -> SingleOutputStreamOperator[Any]:
        """The window's records folded into one by the function, in any order."""
        return self._reduce(function, window_function, output_type)

    def aggregate(
        self,
        function: AggregateFunction[T, A, R],
        window_function: ProcessWindowFunction[R, Any, K]
        | Callable[[K, WindowContext, Iterable[R]], Iterable[Any]]
        | None = None,
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


class AllWindowedStream(_Windowed[T]):
    """All records, grouped by windows, in one subtask. As WindowedStream, but window functions get no key."""

    _PROCESS = signatures.PROCESS_ALL_WINDOW
    _OF_ALL = True

    def reduce(
        self,
        function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: ProcessAllWindowFunction[T, Any]
        | Callable[[WindowContext, Iterable[T]], Iterable[Any]]
        | None = None,
        output_type: object = None,
    ) -> SingleOutputStreamOperator[Any]:
        """The window's records folded into one by the function, in any order."""
        return self._reduce(function, window_function, output_type)

    def aggregate(
        self,
        function: AggregateFunction[T, A, R],
        window_function: ProcessAllWindowFunction[R, Any]
        | Callable[[WindowContext, Iterable[R]], Iterable[Any]]
        | None = None,
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


def check_assigner(step: str, assigner: object) -> None:
    """Raises ProgramError for what is no window assigner."""
    if not isinstance(assigner, WindowAssigner):
        raise refusal(
            step,
            "it needs a window assigner such as TumblingProcessingTimeWindows.of(seconds=5),"
            f" not {type(assigner).__name__}",
        )
