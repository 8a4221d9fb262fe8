"""KeyedStream: records with equal keys are in the same subtask, where functions may keep state for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from ...functions.adapters import KeyedFilter, KeyedFlatMap, KeyedMap
from ...types import PICKLED, RecordType, Scalar
from .. import signatures
from ..keys import Key, column_of
from ..program import Program
from ..signatures import is_rich
from ..transformations import Aggregate, KeyedProcess, Reduce, RunningFunction
from ..windows import WindowAssigner
from .data_stream import DataStream
from .operator import SingleOutputStreamOperator
from .settings import refusal

if TYPE_CHECKING:
    from .windowed_stream import WindowedStream

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")


class KeyedStream(DataStream[T], Generic[T, K]):
    """A stream partitioned by key. What its steps give is not keyed any more."""

    def __init__(self, program: Program, transformation_id: int, key: Key) -> None:
        super().__init__(program, transformation_id)
        self._key = key

    def map(
        self, function: Callable[[T], R] | MapFunction[T, R], output_type: object = None
    ) -> SingleOutputStreamOperator[R]:
        """One record for each; a rich function may have keyed state."""
        if not is_rich(function):
            return super().map(function, output_type)
        of = self._checked("map", function, signatures.MAP, output_type)
        return self._with_state("map", "Map", KeyedMap(function), of)

    def flat_map(
        self,
        function: Callable[[T], Iterable[R] | None] | FlatMapFunction[T, R],
        output_type: object = None,
    ) -> SingleOutputStreamOperator[R]:
        """Any number of records for each; a rich function may have keyed state."""
        if not is_rich(function):
            return super().flat_map(function, output_type)
        of = self._checked("flat_map", function, signatures.FLAT_MAP, output_type)
        return self._with_state("flat_map", "Flat Map", KeyedFlatMap(function), of)

    def filter(self, function: Callable[[T], object] | FilterFunction[T]) -> SingleOutputStreamOperator[T]:
        """Some of the records; a rich function may have keyed state."""
        if not is_rich(function):
            return super().filter(function)
        of = self._checked("filter", function, signatures.FILTER, self.record_type)
        return self._with_state("filter", "Filter", KeyedFilter(function), of)

    def process(
        self,
        function: KeyedProcessFunction[K, T, R] | ProcessFunction[T, R],
        output_type: object = None,
    ) -> SingleOutputStreamOperator[R]:
        """Any number of records for each, and side outputs; with state and timers of each key."""
        if isinstance(function, ProcessFunction):
            return super().process(function, output_type)
        of = self._checked("process", function, signatures.KEYED_PROCESS, output_type)
        return self._with_state("process", "Keyed Process", function, of)

    def reduce(self, function: Callable[[T, T], T] | ReduceFunction[T]) -> SingleOutputStreamOperator[T]:
        """For each record what all of its key so far come to: the function folds two into one."""
        of = self._checked("reduce", function, signatures.REDUCE, self.record_type)
        return self._then(Reduce, "reduce", "Keyed Reduce", of, key=self._key, function=function)

    def sum(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """For each record the first of its key, with the sum of a field so far; None: records are numbers."""
        return self._running("sum", field)

    def min(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """For each record the first of its key, with the least value of a field so far."""
        return self._running("min", field)

    def max(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """For each record the first of its key, with the greatest value of a field so far."""
        return self._running("max", field)

    def min_by(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """For each record the one of its key so far with the least value of a field; the first such."""
        return self._running("min_by", field)

    def max_by(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """For each record the one of its key so far with the greatest value of a field; the first such."""
        return self._running("max_by", field)

    def window(self, assigner: WindowAssigner) -> WindowedStream[T, K]:
        """Groups the records of each key by windows."""
        from .windowed import check_assigner
        from .windowed_stream import WindowedStream

        check_assigner("window", assigner)
        return WindowedStream(self, assigner)

    def _with_state(
        self, step: str, name: str, function: Any, output_type: RecordType
    ) -> SingleOutputStreamOperator[Any]:
        return self._then(KeyedProcess, step, name, output_type, key=self._key, function=function)

    def _running(self, function: RunningFunction, field: str | int | None) -> SingleOutputStreamOperator[T]:
        column = aggregated_column(self.record_type, function, field)
        return self._then(
            Aggregate,
            function,
            "Keyed Aggregation",
            self.record_type,
            key=self._key,
            aggregation=function,
            field=column,
        )


def aggregated_column(records: RecordType, step: str, field: str | int | None) -> str | None:
    """The column that a built-in aggregation works on; None: the record. Raises ProgramError if it can't."""
    if field is None:
        name, of = None, records
    else:
        column = column_of(records, field, step)
        name, of = column.name, column.of
    numbers = isinstance(of, Scalar) and of.kind in ("int", "float")
    if numbers or (isinstance(of, Scalar) and step != "sum"):
        return name
    what = "the record" if name is None else f"its field {name!r}"
    if of == PICKLED:
        hint = "declare output_type, or returns(), on the step before"
    elif name is None:
        hint = "say of which field"
    else:
        hint = "use reduce"
    wanted = "a number" if step == "sum" else "one value that can be compared"
    raise refusal(step, f"{what} is {of}, not {wanted}: {hint}")
