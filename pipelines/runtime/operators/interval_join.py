"""interval_join: pairs of records of two streams with one key and near timestamps.

Each side keeps its records in buckets of event time. A bucket is dropped as a whole, for all keys, when the watermark
says that no record to come can meet one of it: this needs no timer for each record. A record is late if its timestamp
is not after the watermark. All pairs of records that are not late are found, in whatever order the records arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from ...functions import OutputTag, ProcessJoinContext, ProcessJoinFunction
from ...functions.window import LATE_RECORDS_DROPPED
from ...types import RecordType, Scalar, TupleOf
from ..records.batch import Batch
from ..records.record_copying import create_copier
from ..state_backend.keyed_state_backend import KeyedStateBackend
from .keyed import KeyedFunctionOperator, KeySelector
from .operator import OperatorSetup
from .output_collector import OutputCollector
from .user_functions import OrderedCalls, load, user_code

X = TypeVar("X")

LEAST_BUCKET_MS: Final = 100
_LEVELS: Final = 64


def bucket_level(lower_ms: int, upper_ms: int) -> int:
    """Returns n for buckets of LEAST_BUCKET_MS * 2**n: at most half of the interval, so that a record looks into few
    buckets, and few records are kept too long."""
    return max(0, ((upper_ms - lower_ms) // 2 // LEAST_BUCKET_MS).bit_length() - 1)


class IntervalJoinOperator(KeyedFunctionOperator):
    """Runs a ProcessJoinFunction, or a callable, for each pair with `left + lower_ms <= right <= left + upper_ms`."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        first, second, self._function = load(setup.config)
        parameters = setup.parameters
        lower: int = parameters["lower_ms"]
        upper: int = parameters["upper_ms"]
        left, right = setup.input_types
        level = bucket_level(lower, upper)
        # A left record may meet right ones that are lower to upper later, and is needed until then; and vice versa.
        self._sides = (
            _Side(self.backend, "~left", left, first, (lower, upper), level, parameters.get("left_late_tag")),
            _Side(
                self.backend,
                "~right",
                right,
                second,
                (-upper, -lower),
                level,
                parameters.get("right_late_tag"),
            ),
        )
        self._call: Callable[..., Iterable[Any] | None] = (
            self._function.process_element
            if isinstance(self._function, ProcessJoinFunction)
            else self._function
        )
        self._gathering = OutputCollector()
        self._pair = _Pair(self._gathering)

    def open(self) -> None:
        for side in self._sides:
            side.open()
        super().open()

    def process(self, batch: Batch, input_index: int = 0) -> None:
        own, other = self._sides[input_index], self._sides[1 - input_index]
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            keys = own.keys.select(records)
            for key, time, value in zip(keys, batch.timestamps, records, strict=True):
                reached = self.backend.watermark_for(key)
                if time <= reached:
                    self._take_late(own, time, value)
                    continue
                if found := other.find(key, time + own.first, time + own.last):
                    self._join(key, own, (time, value), other, found)
                if time + own.last > reached:
                    own.add(key, time, value)
        self._gathering.send(self.output)

    def advance_watermark(self, watermark: int) -> None:
        if watermark > self.backend.watermark:
            self.backend.watermark = watermark
            for side in self._sides:
                side.drop_until(watermark)
        super().advance_watermark(watermark)

    def _join(self, key: Any, own: _Side, record: Record, other: _Side, found: list[Record]) -> None:
        is_left = own is self._sides[0]
        pair, gathering, backend = self._pair, self._gathering, self.backend
        time, value = record
        for other_time, other_value in found:
            backend.current_key = key
            backend.access_time = None
            mine, theirs = own.copied(value), other.copied(other_value)
            if is_left:
                pair.left_timestamp, pair.right_timestamp = time, other_time
                results = self._call(mine, theirs, pair)
            else:
                pair.left_timestamp, pair.right_timestamp = other_time, time
                results = self._call(theirs, mine, pair)
            gathering.add(max(time, other_time), results)

    def _take_late(self, side: _Side, time: int, value: Any) -> None:
        if side.late_tag is None:
            self._setup.context.accumulator(LATE_RECORDS_DROPPED).inc()
        else:
            self._gathering.add_side(side.late_tag, time, value)


Record = tuple[int, Any]
"""Timestamp and value."""


class _Side:
    """The records of one input. The namespace of a bucket is its start * _LEVELS + its level."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        name: str,
        of: RecordType,
        selector: Callable[[Any], Any],
        bounds: tuple[int, int],
        level: int,
        late_tag: str | None,
    ) -> None:
        self._table = backend.list_table(name, TupleOf((Scalar("int"), of)), namespaced=True)
        self.keys = KeySelector(selector, of, None)
        self.first, self.last = bounds
        """By how much records of the other side that a record meets are later."""
        self._level = level
        self._size = LEAST_BUCKET_MS << level
        self.late_tag = late_tag
        copy = create_copier(of)
        self.copied: Callable[[Any], Any] = _same if copy is None else copy
        """Returns a record that a function may change."""

    def open(self) -> None:
        """Moves records into buckets of the present size: before a restore, the bounds may have been others."""
        for space in [space for space in self._table.spaces() if space % _LEVELS != self._level]:
            for key, records in list(self._table.space(space).items()):
                for time, value in records:
                    self.add(key, time, value)
            self._table.drop(space)

    def add(self, key: Any, time: int, value: Any) -> None:
        """Keeps a record."""
        self._table.extend(key, ((time, value),), (time - time % self._size) * _LEVELS + self._level)

    def find(self, key: Any, first: int, last: int) -> list[Record]:
        """Returns the records of a key in this interval of time."""
        get, size, level = self._table.get, self._size, self._level
        return [
            record
            for bucket in range(first - first % size, last + 1, size)
            for record in get(key, bucket * _LEVELS + level)
            if first <= record[0] <= last
        ]

    def drop_until(self, watermark: int) -> None:
        """Drops the buckets of which no record is needed any more."""
        last = watermark - self._size + 1 - self.last
        for space in [space for space in self._table.spaces() if space // _LEVELS <= last]:
            self._table.drop(space)


class _Pair(ProcessJoinContext):
    """The context of the current pair."""

    left_timestamp: int = 0
    right_timestamp: int = 0

    def __init__(self, gathering: OutputCollector) -> None:
        self._gathering = gathering

    @property
    def timestamp(self) -> int:
        return max(self.left_timestamp, self.right_timestamp)

    def output(self, tag: OutputTag[X], value: X) -> None:
        self._gathering.add_side(tag.name, self.timestamp, value)


def _same(value: Any) -> Any:
    return value
