"""A batch: records in order, with their timestamps, as rows or as Arrow columns.

Python functions need rows, vectorised work needs columns. A batch is made of either and returns both; it converts to
the other form once, at the first request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...types import RecordType


class Batch:
    """Immutable. Timestamps are milliseconds since the epoch; there are as many as records."""

    __slots__ = ("_columns", "_record_type", "_timestamp_column", "_timestamps", "_values")

    def __init__(self, timestamps: list[int], values: list[Any]) -> None:
        """Creates a batch of rows. It keeps the lists, which must not change afterwards."""
        self._timestamps: list[int] | None = timestamps
        self._values: list[Any] | None = values
        self._timestamp_column: pa.Int64Array | None = None
        self._columns: list[pa.Array] | None = None
        self._record_type: RecordType | None = None

    @classmethod
    def from_rows(cls, timestamps: pa.Int64Array, values: list[Any]) -> Batch:
        """Creates a batch of rows, with the timestamps as an array. It keeps the list, which must not change
        afterwards."""
        batch = cls.__new__(cls)
        batch._timestamps = batch._columns = batch._record_type = None
        batch._timestamp_column = timestamps
        batch._values = values
        return batch

    def with_values(self, values: list[Any]) -> Batch:
        """Returns a batch of other records, as many, with the timestamps of these."""
        batch = Batch.__new__(Batch)
        batch._timestamps, batch._timestamp_column = self._timestamps, self._timestamp_column
        batch._columns = batch._record_type = None
        batch._values = values
        return batch

    def with_timestamps(self, timestamps: pa.Int64Array) -> Batch:
        """Returns the same records with other timestamps."""
        batch = Batch.__new__(Batch)
        batch._timestamps, batch._timestamp_column = None, timestamps
        batch._columns, batch._record_type = self._columns, self._record_type
        batch._values = self._values
        return batch

    def copy(self, copy: Callable[[Any], Any]) -> Batch:
        """Returns copies of the records."""
        if self._columns is not None and self._record_type is not None:
            return Batch.from_columns(self.timestamp_column(), self._columns, self._record_type)
        return self.with_values(list(map(copy, self.values)))

    @classmethod
    def from_columns(
        cls, timestamps: pa.Int64Array, columns: Sequence[pa.Array], record_type: RecordType
    ) -> Batch:
        """Creates a batch of the columns of the record type."""
        batch = cls.__new__(cls)
        batch._timestamps = batch._values = None
        batch._timestamp_column = timestamps
        batch._columns = list(columns)
        batch._record_type = record_type
        return batch

    def __len__(self) -> int:
        if self._timestamps is not None:
            return len(self._timestamps)
        assert self._timestamp_column is not None
        return len(self._timestamp_column)

    def __repr__(self) -> str:
        return f"Batch({self.timestamps!r}, {self.values!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return self.timestamps == other.timestamps and self.values == other.values

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_columnar(self) -> bool:
        """Whether the batch already has columns."""
        return self._columns is not None

    @property
    def timestamps(self) -> list[int]:
        """The records' timestamps (ms)."""
        if self._timestamps is None:
            assert self._timestamp_column is not None
            self._timestamps = self._timestamp_column.to_numpy().tolist()
        return self._timestamps

    @property
    def values(self) -> list[Any]:
        """The records."""
        if self._values is None:
            assert self._columns is not None
            assert self._record_type is not None
            self._values = self._record_type.from_columns(self._columns)
        return self._values

    def timestamp_column(self) -> pa.Int64Array:
        """The timestamps as an array."""
        if self._timestamp_column is None:
            self._timestamp_column = pa.array(self._timestamps, pa.int64())
        return self._timestamp_column

    def columns(self, record_type: RecordType) -> list[pa.Array]:
        """Returns the records as columns of that type. Raises RecordTypeError for a record of another type."""
        if not len(self):
            return record_type.to_columns([])  # not cached: all share the one batch of no records
        if self._columns is None or self._record_type != record_type:
            self._columns = record_type.to_columns(self.values)
            self._record_type = record_type
        return self._columns

    def take(self, indices: Sequence[int] | np.ndarray[Any, Any]) -> Batch:
        """Returns the records at these indexes, in that order."""
        if self._columns is not None and self._record_type is not None:
            places = pa.array(indices, pa.int64())
            columns = [column.take(places) for column in self._columns]
            taken = Batch.from_columns(self.timestamp_column().take(places), columns, self._record_type)
            if self._values is not None:
                rows = indices.tolist() if isinstance(indices, np.ndarray) else indices
                taken._values = [self._values[i] for i in rows]
            return taken
        timestamps, values = self.timestamps, self.values
        return Batch([timestamps[i] for i in indices], [values[i] for i in indices])

    def slice(self, start: int, stop: int) -> Batch:
        """Returns the records from start to before stop."""
        if self._columns is not None and self._record_type is not None:
            length = stop - start
            columns = [column.slice(start, length) for column in self._columns]
            part = Batch.from_columns(
                self.timestamp_column().slice(start, length), columns, self._record_type
            )
            if self._values is not None:
                part._values = self._values[start:stop]
            return part
        return Batch(self.timestamps[start:stop], self.values[start:stop])


EMPTY: Final = Batch([], [])


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Returns the records of all batches in order; as columns if all are columns of one type."""
    present = [batch for batch in batches if len(batch)]
    if not present:
        return EMPTY
    if len(present) == 1:
        return present[0]
    first = present[0]
    if all(b._columns is not None and b._record_type == first._record_type for b in present):
        assert first._columns is not None
        assert first._record_type is not None
        columns = [
            pa.concat_arrays(parts) for parts in zip(*(b._columns or () for b in present), strict=True)
        ]
        timestamps = pa.concat_arrays([b.timestamp_column() for b in present])
        return Batch.from_columns(timestamps, columns, first._record_type)
    return Batch([t for b in present for t in b.timestamps], [v for b in present for v in b.values])
