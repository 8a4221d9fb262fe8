"""Reads buffers whose records were written as an older form of their type (type_evolution.py)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...types import ClassOf, RecordType, TupleOf
from .batch import EMPTY, Batch
from .buffers import BufferCodec
from .type_evolution import create_converter, without_classes


class OlderRecordReader:
    """Reads one written type as one declared type."""

    def __init__(self, written: RecordType, declared: RecordType) -> None:
        """Raises TypeMismatch."""
        self._written = written
        self._declared = declared
        self._read_as = without_classes(written)
        self._codec = BufferCodec(self._read_as)
        self._convert = create_converter(written, declared)

    def read_payload(self, data: bytes, start: int) -> Batch:
        """Like `BufferCodec.read_payload`. Raises BufferError, TypeMismatch."""
        batch = self._codec.read_payload(data, start)
        if not len(batch):
            return EMPTY
        columns, of = batch.columns(self._read_as), self._written.arrow_type()
        if isinstance(self._written, (ClassOf, TupleOf)):
            named = [_with_names(column, field.type) for column, field in zip(columns, of, strict=True)]
            values = pa.StructArray.from_arrays(named, fields=list(of))
        else:
            values = _with_names(columns[0], of)
        if self._convert is not None:
            values = self._convert(values)
        return Batch.from_rows(batch.timestamp_column(), self._declared.decode(values))


def _with_names(values: Any, of: pa.DataType) -> Any:
    """Returns an array whose structs, which were read as those of tuples, have the names of the fields in this type."""
    if values.type == of:
        return values
    if values.offset:
        values = values.take(pa.array(range(len(values))))
    mask = values.is_null() if values.null_count else None
    if pa.types.is_struct(of):
        children = [_with_names(values.field(i), field.type) for i, field in enumerate(of)]
        return pa.StructArray.from_arrays(children, fields=list(of), mask=mask)
    items = _with_names(values.values, of.value_type)
    return type(values).from_arrays(values.offsets, items, type=of, mask=mask)
