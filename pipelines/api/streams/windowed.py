"""What windows of keyed streams and of all records share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Generic, Self, TypeVar

from ...functions import OutputTag, ProcessWindowFunction
from ...types import RecordType
from .. import signatures
from ..durations import to_milliseconds
from ..signatures import Signature, check_function
from ..source_location import caller_location
from ..transformations import RunningFunction, Window
from ..type_hints import result_type
from ..windows import WindowAssigner
from .keyed_stream import KeyedStream, aggregated_column
from .operator import SingleOutputStreamOperator
from .settings import OnlyInPrograms, check_tag, refusal

T = TypeVar("T")


class Windowed(OnlyInPrograms, Generic[T]):
    """Records grouped by windows. Frozen: each method that changes something gives a changed copy."""

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
        found = to_milliseconds(
            "lateness", lateness, seconds, milliseconds, operator="allowed_lateness", at_least=0
        )
        return type(self)(self._keyed, self._assigner, found, self._late)

    def side_output_late_data(self, tag: OutputTag[T]) -> Self:
        """Records too late for their windows go to a side output of the next step, instead of nowhere."""
        check_tag("side_output_late_data", tag)
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


def check_assigner(step: str, assigner: object) -> None:
    """Raises ProgramError for what is no window assigner."""
    if not isinstance(assigner, WindowAssigner):
        raise refusal(
            step,
            "it needs a window assigner such as TumblingProcessingTimeWindows.of(seconds=5),"
            f" not {type(assigner).__name__}",
        )
