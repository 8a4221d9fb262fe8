"""Joins of two keyed streams by event time, without windows: interval joins and temporal joins."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ...functions import JoinFunction, OutputTag, ProcessJoinContext, ProcessJoinFunction
from ...functions.join_adapters import TemporalJoin
from ...types import RecordType
from .. import signatures
from ..durations import to_milliseconds
from ..keys import common_key_type
from ..signatures import Signature, check_function
from ..source_location import caller_location
from ..transformations import EventTimeJoin, IntervalJoin
from ..type_hints import result_type
from .settings import OnlyInPrograms, check_tag, refusal

if TYPE_CHECKING:
    from .data_stream import KeyedStream, SingleOutputStreamOperator

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")

_LEAST_MS = -(2**53)


@dataclass(frozen=True)
class _KeyedPair(OnlyInPrograms, Generic[A, B]):
    """Two streams with keys of one type."""

    _left: KeyedStream[A, Any]
    _right: KeyedStream[B, Any]

    @property
    def _types(self) -> tuple[RecordType, RecordType]:
        return self._left.record_type, self._right.record_type

    def _joined(
        self,
        step: str,
        name: str,
        function: Any,
        output_type: RecordType,
        late: Mapping[str, RecordType],
        kind: type[EventTimeJoin] = EventTimeJoin,
        **fields: Any,
    ) -> SingleOutputStreamOperator[Any]:
        keys = self._left._key, self._right._key
        return self._left.connect(self._right)._then(
            kind,
            step,
            name,
            output_type,
            side_outputs=late,
            function=function,
            selectors=tuple(key.selector for key in keys),
            key_type=common_key_type(*keys, step),
            **fields,
        )


class IntervalJoinStreams(_KeyedPair[A, B]):
    """Two keyed streams whose records are joined if their timestamps are near each other."""

    def between(
        self,
        lower: timedelta | None = None,
        upper: timedelta | None = None,
        *,
        lower_seconds: float = 0,
        upper_seconds: float = 0,
        lower_milliseconds: int = 0,
        upper_milliseconds: int = 0,
    ) -> IntervalJoined[A, B]:
        """Joins records with `left + lower <= right <= left + upper`, by their timestamps. A bound may be
        negative."""
        bounds = (
            _bound("lower bound", lower, lower_seconds, lower_milliseconds),
            _bound("upper bound", upper, upper_seconds, upper_milliseconds),
        )
        _check_bounds(*bounds, "between")
        return IntervalJoined(self._left, self._right, *bounds)


@dataclass(frozen=True)
class IntervalJoined(_KeyedPair[A, B]):
    """An interval join. Frozen: each setter returns a changed copy."""

    _lower_ms: int
    _upper_ms: int
    _left_late: OutputTag[A] | None = None
    _right_late: OutputTag[B] | None = None

    def lower_bound_exclusive(self) -> Self:
        """Excludes the lower bound."""
        _check_bounds(self._lower_ms + 1, self._upper_ms, "lower_bound_exclusive")
        return dataclasses.replace(self, _lower_ms=self._lower_ms + 1)

    def upper_bound_exclusive(self) -> Self:
        """Excludes the upper bound."""
        _check_bounds(self._lower_ms, self._upper_ms - 1, "upper_bound_exclusive")
        return dataclasses.replace(self, _upper_ms=self._upper_ms - 1)

    def side_output_left_late_data(self, tag: OutputTag[A]) -> Self:
        """Sends left records that are late to a side output; by default they are dropped."""
        _check_late_tag("side_output_left_late_data", tag, self._types[0])
        return dataclasses.replace(self, _left_late=tag)

    def side_output_right_late_data(self, tag: OutputTag[B]) -> Self:
        """Sends right records that are late to a side output; by default they are dropped."""
        _check_late_tag("side_output_right_late_data", tag, self._types[1])
        return dataclasses.replace(self, _right_late=tag)

    def process(
        self,
        function: ProcessJoinFunction[A, B, R] | Callable[[A, B, ProcessJoinContext], Iterable[R] | None],
        output_type: object = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits any number of records for each pair, as soon as the later one has arrived. The timestamp of a result
        is the later one of both."""
        of = _result("process", function, signatures.PROCESS_JOIN, output_type)
        left, right = self._left_late, self._right_late
        return self._joined(
            "process",
            "Interval Join",
            function,
            of,
            self._late_types(),
            IntervalJoin,
            lower_ms=self._lower_ms,
            upper_ms=self._upper_ms,
            left_late_tag=None if left is None else left.name,
            right_late_tag=None if right is None else right.name,
        )

    def _late_types(self) -> Mapping[str, RecordType]:
        left, right = self._left_late, self._right_late
        if left is not None and right is not None and left.name == right.name:
            raise refusal(
                "process", f"the late records of both streams have one tag, {left.name!r}: give them two"
            )
        pairs = zip((left, right), self._types, strict=True)
        return {tag.name: of for tag, of in pairs if tag is not None}


@dataclass(frozen=True)
class TemporalJoined(_KeyedPair[A, B]):
    """A temporal join. Frozen: each setter returns a changed copy."""

    _is_outer: bool
    _late: OutputTag[Any] | None = None

    def side_output_late_data(self, tag: OutputTag[A]) -> Self:
        """Sends left records that are late to a side output; by default they are dropped."""
        _check_late_tag("side_output_late_data", tag, self._types[0])
        return dataclasses.replace(self, _late=tag)

    def apply(
        self, function: Callable[[A, B], R] | JoinFunction[A, B, R], output_type: object = None
    ) -> SingleOutputStreamOperator[R]:
        """Emits one record for each left record, when the watermark has reached its timestamp, which is that of the
        result."""
        of = _result("apply", function, signatures.JOIN, output_type)
        late = {} if self._late is None else {self._late.name: self._types[0]}
        join = TemporalJoin(function, self._types, self._late, is_outer=self._is_outer)
        return self._joined("apply", "Temporal Join", join, of, late)


def _bound(what: str, bound: timedelta | None, seconds: float, milliseconds: int) -> int:
    return to_milliseconds(what, bound, seconds, milliseconds, operator="between", at_least=_LEAST_MS)


def _check_bounds(lower_ms: int, upper_ms: int, step: str) -> None:
    if lower_ms > upper_ms:
        raise refusal(
            step, f"no time is in the interval: it begins at {lower_ms} ms and ends at {upper_ms} ms"
        )


def _check_late_tag(step: str, tag: OutputTag[Any], of: RecordType) -> None:
    check_tag(step, tag)
    if tag.output_type is not None and tag.record_type != of:
        raise refusal(
            step, f"the tag {tag.name!r} is of type {tag.record_type}, but the stream's records are {of}"
        )


def _result(step: str, function: object, signature: Signature, output_type: object) -> RecordType:
    check_function(function, signature, operator=step, location=caller_location())
    return result_type(function, signature) if output_type is None else RecordType.of(output_type)
