"""CSV: one row in each message, without a header (RFC 4180). Fields are read by position."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from ...types import ListOf, OptionalOf, RecordType, RecordTypeError, Scalar
from ..common.failures import TaskError
from ..records.batch import Batch
from ..records.record_validation import create_validator
from .format import ValueFormat

Convert = Callable[[str], Any]

_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf)", re.IGNORECASE
)


class CsvReader:
    """Reads a row into a list of texts, or the fields of the declared type."""

    def __init__(self, of: ValueFormat, record_type: RecordType) -> None:
        self._delimiter = of.delimiter or ","
        self._type = record_type
        self._fields: list[tuple[str, RecordType, Convert]] | None = None
        if not _is_list(record_type):
            self._fields = [(name, each, _reader_of(name, each)) for name, each in record_type.columns()]
        self._validate = create_validator(record_type)

    def read(self, timestamps: pa.Int64Array, values: pa.BinaryArray) -> Batch:
        rows = [self._row(value.decode()) for value in values.to_pylist()]
        if self._fields is None:
            return Batch(timestamps.to_pylist(), rows)
        columns = [
            [self._converted(row[i], name, of, convert) for row in rows]
            for i, (name, of, convert) in enumerate(self._fields)
        ]
        records = self._type.from_lists(columns)
        if self._validate is not None:
            self._validate(records, "$")
        return Batch(timestamps.to_pylist(), records)

    def _row(self, text: str) -> list[str]:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True))
        if not rows:
            rows = [[""]]  # an empty message is a row with one empty value
        if len(rows) != 1:
            raise ValueError(f"it has {len(rows)} rows, not one")
        if self._fields is not None and len(rows[0]) != len(self._fields):
            raise ValueError(f"it has {len(rows[0])} values, and {self._type} has {len(self._fields)} fields")
        return rows[0]

    def _converted(self, text: str, name: str, of: RecordType, convert: Convert) -> Any:
        try:
            return convert(text)
        except ValueError:
            raise RecordTypeError(f"{text[:60]!r} is no {of} - at `$.{name}`") from None


class CsvWriter:
    """Writes the fields of a record as a row."""

    def __init__(self, of: ValueFormat, record_type: RecordType) -> None:
        self._delimiter = of.delimiter or ","
        self._type = record_type
        if not _is_list(record_type):
            for name, each in record_type.columns():
                _reader_of(name, each)

    def write(self, batch: Batch) -> list[bytes]:
        if _is_list(self._type):
            return [self._line(row) for row in batch.values]
        columns = self._type.to_lists(batch.values)
        return [self._line(row) for row in zip(*columns, strict=True)]

    def _line(self, row: Any) -> bytes:
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=self._delimiter).writerow(map(_text, row))
        return out.getvalue().removesuffix("\r\n").encode()


def _is_list(of: RecordType) -> bool:
    return isinstance(of, ListOf)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _reader_of(name: str, of: RecordType) -> Convert:
    match of:
        case OptionalOf(item=item):
            convert = _reader_of(name, item)
            return lambda text: None if text == "" else convert(text)
        case Scalar(kind="str"):
            return str
        case Scalar(kind="int"):
            return _whole
        case Scalar(kind="float"):
            return _number
        case Scalar(kind="bool"):
            return _truth
        case _:
            raise TaskError(
                f"CSV has no values of type {of}, the type of {name!r}: declare str, int, float or bool, or read"
                " list[str] and convert it in a map"
            )


def _whole(text: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


def _truth(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError(text)
