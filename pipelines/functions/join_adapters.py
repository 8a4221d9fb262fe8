"""How joins are made of operators that exist.

A window join is a window over the union of both streams, whose records are tagged. Interval joins and temporal joins
are process functions on two keyed streams. Their state is in maps from the timestamp to the records; a timer removes an
entry when the watermark says that no record to come can need it.

A record is late if its timestamp is not after the watermark. All pairs of records that are not late are found, in
whatever order the records arrive.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, TypeVar

from ..types import ClassOf, ListOf, RecordType, Types
from .adapters import Around
from .context import RuntimeContext
from .joins import CoGroupFunction, JoinFunction, ProcessJoinContext, ProcessJoinFunction, TaggedUnion
from .process import KeyedCoProcessFunction
from .side_output import OutputTag
from .state import MapState, MapStateDescriptor
from .window import LATE_RECORDS_DROPPED, ProcessWindowFunction, WindowContext

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


class LateRecords:
    """Sends late records to a side output; without a tag it drops and counts them."""

    def __init__(self, tag: OutputTag[Any] | None) -> None:
        self._tag = tag

    def open(self, context: RuntimeContext) -> None:
        """Finds the count of dropped records."""
        self._dropped = context.accumulator(LATE_RECORDS_DROPPED)

    def take(self, value: Any, context: Any) -> None:
        """Takes a late record."""
        if self._tag is None:
            self._dropped.inc()
        else:
            context.output(self._tag, value)


class IntervalJoin(Around, KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Finds pairs of records with `left + lower_ms <= right <= left + upper_ms`, by their timestamps.

    A left record is needed until the watermark reaches its timestamp + upper_ms, a right one until the watermark
    reaches its timestamp - lower_ms.
    """

    def __init__(
        self,
        function: Any,
        bounds_ms: tuple[int, int],
        types: tuple[RecordType, RecordType],
        late: tuple[OutputTag[Any] | None, OutputTag[Any] | None],
    ) -> None:
        super().__init__(function, *map(LateRecords, late))
        self.function = function
        self._call: Callable[..., Iterable[Any] | None] = (
            function.process_element if isinstance(function, ProcessJoinFunction) else function
        )
        self.lower_ms, self.upper_ms = bounds_ms
        self._types = types
        _, self._left_late, self._right_late = self.parts

    def open(self, context: RuntimeContext) -> None:
        super().open(context)
        left, right = self._types
        self._left = _records_by_time(context, "~left", left)
        self._right = _records_by_time(context, "~right", right)
        self._copy_left, self._copy_right = _copier(left), _copier(right)
        self._pair = _Pair()

    def process_element1(self, value: Any, context: Any) -> None:
        time: int = context.timestamp
        if time <= context.timer_service.current_watermark():
            self._left_late.take(value, context)
            return
        for other in self._right_between(time + self.lower_ms, time + self.upper_ms):
            for right in self._right[other]:
                self._emit(value, time, right, other, context)
        self._keep(self._left, time, value, time + self.upper_ms, context)

    def process_element2(self, value: Any, context: Any) -> None:
        time: int = context.timestamp
        if time <= context.timer_service.current_watermark():
            self._right_late.take(value, context)
            return
        for other in self._left_between(time - self.upper_ms, time - self.lower_ms):
            for left in self._left[other]:
                self._emit(left, other, value, time, context)
        self._keep(self._right, time, value, time - self.lower_ms, context)

    def on_timer(self, timestamp: int, context: Any) -> None:
        self._left.pop(timestamp - self.upper_ms, None)
        self._right.pop(timestamp + self.lower_ms, None)

    def _left_between(self, first: int, last: int) -> list[int]:
        return [time for time in self._left if first <= time <= last]

    def _right_between(self, first: int, last: int) -> list[int]:
        return [time for time in self._right if first <= time <= last]

    def _keep(self, held: MapState[int, list[Any]], time: int, value: Any, until: int, context: Any) -> None:
        if until > context.timer_service.current_watermark():
            held[time] = [*held.get(time, ()), value]
            context.timer_service.register_event_time_timer(until)

    def _emit(self, left: Any, left_time: int, right: Any, right_time: int, context: Any) -> None:
        pair = self._pair
        pair.context, pair.times = context, (left_time, right_time)
        context.timestamp = pair.timestamp
        context.collect(self._call(self._copy_left(left), self._copy_right(right), pair))


class _Pair(ProcessJoinContext):
    """The context of the current pair."""

    context: Any = None
    times: tuple[int, int] = (0, 0)

    @property
    def left_timestamp(self) -> int:
        return self.times[0]

    @property
    def right_timestamp(self) -> int:
        return self.times[1]

    @property
    def timestamp(self) -> int:
        return max(self.times)

    def output(self, tag: OutputTag[X], value: X) -> None:
        self.context.output(tag, value)


class TemporalJoin(Around, KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Joins each left record with the version of the right row at its timestamp: the latest one that is not later.

    A left record waits until the watermark reaches its timestamp: then no version before it can follow. Of the
    versions up to the watermark only the last one is still needed.
    """

    def __init__(
        self,
        function: Any,
        types: tuple[RecordType, RecordType],
        late: OutputTag[Any] | None,
        *,
        is_outer: bool,
    ) -> None:
        super().__init__(function, LateRecords(late))
        self.function = function
        self.is_outer = is_outer
        self._call = _join_of(function)
        self._types = types
        _, self._late = self.parts

    def open(self, context: RuntimeContext) -> None:
        super().open(context)
        left, right = self._types
        self._waiting = _records_by_time(context, "~left", left)
        self._versions: MapState[int, Any] = context.get_map_state(
            MapStateDescriptor("~versions", int, right)
        )
        self._copy_version = _copier(right)

    def process_element1(self, value: Any, context: Any) -> None:
        time: int = context.timestamp
        if time <= context.timer_service.current_watermark():
            self._late.take(value, context)
            return
        self._waiting[time] = [*self._waiting.get(time, ()), value]
        context.timer_service.register_event_time_timer(time)

    def process_element2(self, value: Any, context: Any) -> None:
        time: int = context.timestamp
        watermark = context.timer_service.current_watermark()
        if any(time < version <= watermark for version in self._versions):
            return  # it is late, and no record to come needs it
        self._versions[time] = value
        context.timer_service.register_event_time_timer(time)

    def on_timer(self, timestamp: int, context: Any) -> Iterator[Any]:
        passed = [version for version in self._versions if version <= timestamp]
        valid = max(passed, default=None)
        left: list[Any] = self._waiting.pop(timestamp, [])
        if valid is not None:
            held = self._versions[valid] if left else None
            for value in left:
                yield self._call(value, self._copy_version(held))
        elif self.is_outer:
            for value in left:
                yield self._call(value, None)
        for version in passed:
            if version != valid:
                del self._versions[version]


def _records_by_time(context: RuntimeContext, name: str, of: RecordType) -> MapState[int, list[Any]]:
    return context.get_map_state(MapStateDescriptor(name, int, ListOf(of)))
