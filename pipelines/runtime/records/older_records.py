"""Reads buffers whose records were written as an older form of their type (type_evolution.py)."""

from __future__ import annotations

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
        columns = batch.columns(self._read_as)
        if isinstance(self._written, (ClassOf, TupleOf)):
            values = pa.StructArray.from_arrays(columns, fields=list(self._written.arrow_type()))
        else:
            (values,) = columns
        if self._convert is not None:
            values = self._convert(values)
        return Batch.from_rows(batch.timestamp_column(), self._declared.decode(values))
