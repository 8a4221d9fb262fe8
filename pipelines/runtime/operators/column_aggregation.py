"""Computes sum, min, max, min_by and max_by by key, and by window, on Arrow columns: one row for each group of a
batch.

Used if key and field are plain columns of the record type, and only for batches with the same result as record by
record: no sum that could exceed 64 bits, no NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...types import RecordType, Scalar
from ..records.batch import Batch

_KEY_KINDS: Final = frozenset({"str", "int", "bool", "bytes"})
_FIELD_KINDS: Final = frozenset({"int", "float"})
_HIGHEST: Final = (1 << 63) - 1

Ints = np.ndarray[Any, np.dtype[np.int64]]


class Groups(msgspec.Struct, frozen=True):
    """The aggregates of a batch, in the order in which the groups first appeared."""

    windows: list[int]
    """The window of each group; empty if there are no windows."""
    timestamps: pa.Int64Array
    """The greatest timestamp of each group (ms)."""
    columns: list[pa.Array]
    """The aggregated records."""

    def __len__(self) -> int:
        return len(self.timestamps)


class ColumnAggregation:
    """The aggregation of records of one type by one key column."""

    def __init__(self, record_type: RecordType, key: int, function: str, field: int) -> None:
        self._record_type = record_type
        self._key = key
        self._function = function
        self._field = field

    @classmethod
    def create(
        cls, record_type: RecordType, key_column: int | None, function: str, field: str | None
    ) -> ColumnAggregation | None:
        """Returns None if records of this type must be aggregated one by one."""
        columns = record_type.columns()
        names = [name for name, _ in columns]
        if key_column is None or field not in names:
            return None
        at = names.index(field)
        if _kind(columns[key_column][1]) in _KEY_KINDS and _kind(columns[at][1]) in _FIELD_KINDS:
            return cls(record_type, key_column, function, at)
        return None

    def fold(self, batch: Batch, windows: Ints | None = None) -> Groups | None:
        """Returns the groups of a batch by key, or by window and key; None if it must be aggregated record by
        record."""
        columns = batch.columns(self._record_type)
        field = columns[self._field]
        if not self._can(field):
            return None
        by_record = self._function.endswith("_by")
        wanted = "min" if by_record else self._function
        times = batch.timestamp_column()
        ends = pc.min_max(times)
        # As behind map_batches. A fold costs a seventh of the whole.
        has_one_time = ends["min"] == ends["max"]
        table = pa.table(
            {
                "key": columns[self._key],
                "row": pa.array(np.arange(len(batch))),
                **({} if has_one_time else {"time": times}),
                **({} if by_record else {"field": field}),
                **({} if windows is None else {"window": pa.array(windows)}),
            }
        )
        by = ["key"] if windows is None else ["window", "key"]
        folds = [
            ("row", "min"),
            *([] if has_one_time else [("time", "max")]),
            *([] if by_record else [("field", wanted)]),
        ]
        grouped = table.group_by(by, use_threads=False).aggregate(folds)
        # Arrow does not define the order of groups.
        grouped = grouped.take(pa.array(np.argsort(_whole(grouped["row_min"]).to_numpy())))
        rows = self._extreme_rows(columns, windows) if by_record else _whole(grouped["row_min"])
        folded = [column.take(rows) for column in columns]
        if not by_record:
            folded[self._field] = _whole(grouped[f"field_{wanted}"])
        starts = [] if windows is None else _whole(grouped["window"]).to_numpy().tolist()
        latest = pa.repeat(ends["max"], len(rows)) if has_one_time else _whole(grouped["time_max"])
        return Groups(starts, latest, folded)

    def _extreme_rows(self, columns: Sequence[pa.Array], windows: Ints | None) -> pa.Array:
        """Returns the first row of each group that has the least (greatest) field, in the order of the groups."""
        encoded = columns[self._key].dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        if windows is not None:
            codes += np.unique(windows, return_inverse=True)[1] * len(encoded.dictionary)
        field = columns[self._field].to_numpy()
        if self._function == "max_by":
            field = ~field if field.dtype.kind == "i" else -field
        order = np.lexsort((field, codes))  # stable: among equal records the first one counts
        sorted_codes = codes[order]
        begins = np.flatnonzero(np.r_[True, sorted_codes[1:] != sorted_codes[:-1]])
        first_seen = np.minimum.reduceat(order, begins)
        return pa.array(order[begins][np.argsort(first_seen)])

    def _can(self, field: pa.Array) -> bool:
        if pa.types.is_floating(field.type):
            return not pc.any(pc.is_nan(field)).as_py()
        return self._function != "sum" or fits_in_sum(field)


def fits_in_sum(field: pa.Array, limit: int = _HIGHEST) -> bool:
    """Whether no sum of some of these integers is larger than the limit, whatever its sign."""
    ends = pc.min_max(field)
    widest = max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0))
    return bool(widest * len(field) <= limit)


def _kind(of: RecordType) -> str | None:
    return of.kind if isinstance(of, Scalar) else None


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
