"""The directory of a record below that of its sink: its bucket.

A bucket has a part for each element of the sink's list: `name=value` for a field, as Hive, Spark and Flink write it,
and the record's timestamp in UTC for a pattern of strftime, such as `%Y-%m-%d/%H`. Or a function of record and
timestamp returns it. A bucket with a time ends with the finest unit of its pattern: no record that is in time comes
later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import numpy as np

from ....graph.bucket_elements import finest_unit, is_pattern, unit_of
from ....types import ClassOf, RecordType, TupleOf
from ...records.batch import Batch
from .column_selection import NO_VALUE

_ESCAPED: Final = re.compile(r'[\x00-\x1f\x7f"#%\'*/:=?\\{}\[\]^]')
_DAY_MS: Final = 86_400_000
_SIZES: Final = {"hour": 3_600_000, "minute": 60_000, "second": 1_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

BucketFunction = Callable[[Any, int], str]


class BucketBatch(msgspec.Struct, frozen=True):
    """The records of a batch in one bucket."""

    bucket: str
    """A relative path; empty for the sink's own directory."""
    batch: Batch
    end: int | None = None
    """When the bucket ends (ms)."""


class BucketAssigner:
    """Divides batches."""

    def __init__(
        self, elements: Sequence[str], record_type: RecordType, function: BucketFunction | None = None
    ) -> None:
        self._elements = elements
        self._record_type = record_type
        self._function = function
        self.fields = [element for element in elements if not is_pattern(element)]
        """The fields that are named by directories."""
        self.unit = finest_unit(elements)
        """The finest unit of time; None: buckets have no end."""

    def divide(self, batch: Batch) -> Iterator[BucketBatch]:
        """Yields the records of each bucket, in order. Raises any error of the function, ValueError for its result."""
        codes, labels = self._labels(batch)
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(codes)], strict=True):
            places = order[start:stop]
            part = batch if len(places) == len(batch) else batch.take(places)
            yield BucketBatch(labels[codes[places[0]]], part, self._end(batch, int(places[0])))

    def begin_of(self, time: int) -> int:
        """Returns when the period with that time begins (ms): earlier buckets are over."""
        assert self.unit is not None
        return _milliseconds(_floor(_moment(time), self.unit))

    def _labels(self, batch: Batch) -> tuple[np.ndarray[Any, Any], list[str]]:
        """Returns a number for each record, and the bucket of each number."""
        if self._function is not None:
            function = self._function
            pairs = zip(batch.values, batch.timestamps, strict=True)
            return _encode([_checked(function(record, timestamp)) for record, timestamp in pairs])
        codes, labels = np.zeros(len(batch), np.int64), [""]
        for element in self._elements:
            some, names = self._times(batch, element) if is_pattern(element) else self._values(batch, element)
            present, codes = np.unique(codes * len(names) + some, return_inverse=True)
            labels = [
                f"{labels[code // len(names)]}/{names[code % len(names)]}".removeprefix("/")
                for code in present.tolist()
            ]
        return codes, labels

    def _values(self, batch: Batch, field: str) -> tuple[np.ndarray[Any, Any], list[str]]:
        if isinstance(self._record_type, ClassOf | TupleOf):
            fields = [name for name, _ in self._record_type.columns()]
            column = batch.columns(self._record_type)[fields.index(field)].dictionary_encode("encode")
            values = column.dictionary.to_pylist()
            codes = column.indices.to_numpy().astype(np.int64)
        else:
            codes, values = _encode([record[field] for record in batch.values])
        return _same(codes, [f"{_escaped(field)}={_text(value)}" for value in values])

    def _times(self, batch: Batch, pattern: str) -> tuple[np.ndarray[Any, Any], list[str]]:
        size = _SIZES.get(unit_of(pattern) or "day", _DAY_MS)
        units, codes = np.unique(np.asarray(batch.timestamps, np.int64) // size, return_inverse=True)
        return _same(codes, [_moment(unit * size).strftime(pattern) for unit in units.tolist()])

    def _end(self, batch: Batch, index: int) -> int | None:
        if self.unit is None:
            return None
        begin = _floor(_moment(batch.timestamps[index]), self.unit)
        match self.unit:
            case "year":
                end = begin.replace(year=begin.year + 1)
            case "month":
                end = _floor(begin + timedelta(days=31), "month")
            case unit:
                end = begin + timedelta(**{f"{unit}s": 1})
        return _milliseconds(end)


def _encode(values: Sequence[Any]) -> tuple[np.ndarray[Any, Any], list[Any]]:
    numbers: dict[Any, int] = {}
    codes = [numbers.setdefault(value, len(numbers)) for value in values]
    return np.asarray(codes, np.int64), list(numbers)


def _same(codes: np.ndarray[Any, Any], labels: Sequence[str]) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Returns equal numbers for equal labels."""
    numbers, distinct = _encode(labels)
    return numbers[codes], distinct


def _moment(time: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=time)


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _floor(moment: datetime, unit: str) -> datetime:
    fields = ("year", "month", "day", "hour", "minute", "second")
    least = {"year": 1, "month": 1, "day": 1}
    rest = fields[fields.index(unit) + 1 :]
    return moment.replace(microsecond=0, **{field: least.get(field, 0) for field in rest})  # type: ignore[arg-type]


def _text(value: Any) -> str:
    if value is None or value == "":
        return NO_VALUE
    return _escaped(str(value).lower() if isinstance(value, bool) else str(value))


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _checked(bucket: object) -> str:
    parts = bucket.split("/") if isinstance(bucket, str) else [""]
    if bucket != "" and any(not part or part.startswith((".", "_")) for part in parts):
        raise ValueError(
            f"the function returned the bucket {bucket!r}: return a relative path whose parts do not begin with . or _"
        )
    return str(bucket)
