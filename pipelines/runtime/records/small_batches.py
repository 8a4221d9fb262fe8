"""A few records as MessagePack instead of Arrow.

To create, write and read an Arrow batch of one record costs a hundred microseconds, nearly all of it overhead of the
batch. Below some dozens of records, lists of plain values are several times as fast. A value without a plain form, or
not exactly of its type, is left to Arrow, which converts or refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ...types import PICKLED, ListOf, OptionalOf, RecordType, Scalar, TupleOf

MAX_SMALL_ROWS: Final = 24
"""The largest number of records for this form."""
MAX_SMALL_COLUMN_ROWS: Final = 4
"""Like MAX_SMALL_ROWS, for columnar records, which have to be converted to rows first."""
_MOST_COLUMNS: Final = 64

ValueCheck = Callable[[Any], bool]
_SCALARS: Final[dict[str, type]] = {"str": str, "int": int, "float": float, "bool": bool, "bytes": bytes}


class SmallBatchCodec:
    """Writes and reads a few records of one type: [timestamps, a list for each column]."""

    def __init__(self, record_type: RecordType) -> None:
        columns = [of for _, of in record_type.columns()]
        plain = [(_is_bytes, bytes) if of is PICKLED else _plain(of) for of in columns]
        found = [value for value in plain if value is not None]
        self._record_type = record_type
        self._usable = len(found) == len(columns) <= _MOST_COLUMNS
        self._checks = [check for check, _ in found]
        self._pickled = [i for i, of in enumerate(columns) if of is PICKLED]
        forms = tuple(list[form] for _, form in found) if self._usable else ()  # type: ignore[valid-type]
        self._decode = msgspec.msgpack.Decoder(tuple[list[int], tuple[forms]]).decode  # type: ignore[valid-type]

    def encode(self, timestamps: list[int], values: list[Any]) -> bytes | None:
        """Returns the encoded records; None if they must be encoded by Arrow. Raises RecordTypeError."""
        if not self._usable:
            return None
        columns = self._record_type.to_lists(values)
        for i in self._pickled:
            columns[i] = PICKLED.dump(columns[i])
        for check, column in zip(self._checks, columns, strict=True):
            if not all(map(check, column)):
                return None
        try:
            return _encode((timestamps, columns))
        except UnicodeError:
            return None

    def decode(self, data: bytes | memoryview) -> tuple[list[int], list[Any]]:
        """Decodes the result of `encode` into timestamps and records. Raises msgspec.DecodeError,
        msgspec.ValidationError."""
        timestamps, lists = self._decode(data)
        columns = list(lists)
        for i in self._pickled:
            columns[i] = PICKLED.load(columns[i])
        return timestamps, self._record_type.from_lists(columns)


_encode: Final = msgspec.msgpack.Encoder().encode


def create_value_check(record_type: RecordType) -> ValueCheck | None:
    """Returns a function that tells whether a record is exactly of its type; None for a type without a plain form."""
    plain = _plain(record_type)
    return None if plain is None else plain[0]


def _plain(of: RecordType) -> tuple[ValueCheck, Any] | None:
    """Returns the check of a value, and its type for MessagePack; None if it has no plain form."""
    match of:
        case Scalar("int"):
            return _is_int, int
        case Scalar(kind):
            exact = _SCALARS[kind]
            return (lambda value: type(value) is exact), exact
        case OptionalOf(item):
            if (plain := _plain(item)) is None:
                return None
            check, form = plain
            return (lambda value: value is None or check(value)), form | None
        case ListOf(item):
            if (plain := _plain(item)) is None:
                return None
            check, form = plain
            return (lambda value: type(value) is list and all(map(check, value))), list[form]  # type: ignore[valid-type]
        case TupleOf(items):
            parts = [_plain(item) for item in items]
            found = [part for part in parts if part is not None]
            if len(found) < len(parts):
                return None
            checks = [check for check, _ in found]
            forms = tuple(form for _, form in found)
            return (
                lambda value: (
                    type(value) is tuple
                    and len(value) == len(checks)
                    and all(check(item) for check, item in zip(checks, value, strict=True))
                )
            ), tuple[forms]  # type: ignore[valid-type]
        case _:
            return None


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes


def _is_int(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63
