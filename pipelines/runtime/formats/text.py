"""Text and raw bytes: one column, without Python code per record."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ...types import RecordType, Scalar
from ..records.batch import Batch

STR: Final = Scalar("str")
BYTES: Final = Scalar("bytes")


class TextReader:
    """Reads UTF-8 as str."""

    def read(self, timestamps: pa.Int64Array, values: pa.BinaryArray) -> Batch:
        if len(values) == 1:  # as in real-time mode: a call of Arrow costs more than a record
            return Batch(timestamps.to_pylist(), [values[0].as_py().decode()])
        return Batch.from_columns(timestamps, [values.cast(pa.string())], STR)


class RawReader:
    """Reads bytes unchanged."""

    def read(self, timestamps: pa.Int64Array, values: pa.BinaryArray) -> Batch:
        return Batch.from_columns(timestamps, [values], BYTES)


class TextWriter:
    """Writes a str as UTF-8, and other objects as their str()."""

    def __init__(self, record_type: RecordType) -> None:
        self._type = record_type

    def write(self, batch: Batch) -> list[bytes]:
        if batch.is_columnar and self._type == STR:
            (column,) = batch.columns(STR)
            values: list[bytes] = column.cast(pa.binary()).to_pylist()
            return values
        return [str(value).encode() for value in batch.values]


class RawWriter:
    """Writes bytes and refuses other types."""

    def __init__(self, record_type: RecordType) -> None:
        self._type = record_type

    def write(self, batch: Batch) -> list[bytes]:
        values: list[bytes] = batch.values
        for value in values:
            if type(value) is not bytes:
                raise TypeError(f"the raw format writes bytes, not {type(value).__name__}: {value!r:.60}")
        return values
