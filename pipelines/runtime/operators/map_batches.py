"""map_batches: a user's function on Arrow record batches, for vectorised work.

The batch has the columns of the input's record type: the fields of a dataclass or NamedTuple, `f0`, `f1`, ... of a
tuple, `value` for a single column. The number of records in it is not defined. The function returns a RecordBatch or a
Table, yields any number of them, or returns None for no records. Its result must have the columns of the declared
output type.

Timestamps (ms): those of the result's column `~timestamp`, if it has one. Otherwise those of the input, in order, if
there are as many records; otherwise the greatest of the input for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...types import Pickled, RecordTypeError
from ..common.failures import TaskError
from ..records.batch import Batch
from ..records.buffers import TIMESTAMP_COLUMN
from .operator import Operator, OperatorSetup
from .schema_coercion import coerce_batch
from .user_functions import came_from, close_function, load, open_function, user_code


class MapBatchesOperator(Operator):
    """Calls the function with each batch."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        (self._function,) = load(setup.config)
        (self._input_type,) = setup.input_types
        self._output_type = setup.record_type_parameter("output_type")
        for record_type, what in ((self._input_type, "before it"), (self._output_type, "itself")):
            if isinstance(record_type, Pickled):
                raise TaskError(
                    f"map_batches, operator {setup.config.name!r}, needs columns, but pickled records have none:"
                    f" declare the output_type of the operator {what}"
                )
        self._schema = self._input_type.schema()

    def open(self) -> None:
        with user_code(self._setup.config):
            open_function(self._function, self._setup.context)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        given = pa.RecordBatch.from_arrays(batch.columns(self._input_type), schema=self._schema)
        with user_code(self._setup.config):
            parts = [part for part in _parts(self._function(given)) if part.num_rows]
            timestamps = _timestamps(parts, batch)
            results = [_without_timestamps(part) for part in parts]
            columns = [
                pa.concat_arrays(pieces)
                for pieces in zip(*(coerce_batch(part, self._output_type) for part in results), strict=True)
            ]
        if parts:
            with came_from():
                self.output.emit(Batch.from_columns(timestamps, columns, self._output_type))

    def close(self) -> None:
        with user_code(self._setup.config):
            close_function(self._function)


def _parts(result: Any) -> list[pa.Table | pa.RecordBatch]:
    if result is None:
        return []
    tabular = pa.RecordBatch, pa.Table
    parts = list(result) if isinstance(result, Iterable) and not isinstance(result, tabular) else [result]
    for part in parts:
        if not isinstance(part, tabular):
            raise TypeError(
                f"the function of map_batches returned {type(part).__name__}, not a pyarrow.RecordBatch or Table"
            )
    return parts


def _without_timestamps(part: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    return part.drop_columns([TIMESTAMP_COLUMN]) if TIMESTAMP_COLUMN in part.schema.names else part


def _timestamps(parts: list[pa.Table | pa.RecordBatch], batch: Batch) -> pa.Int64Array:
    """Returns the timestamps of all parts together."""
    rows = sum(part.num_rows for part in parts)
    if parts and all(TIMESTAMP_COLUMN in part.schema.names for part in parts):
        return pa.concat_arrays([_to_milliseconds(part.column(TIMESTAMP_COLUMN)) for part in parts])
    if rows == len(batch):
        return batch.timestamp_column()
    return pa.repeat(pc.max(batch.timestamp_column()), rows)


def _to_milliseconds(column: pa.Array | pa.ChunkedArray) -> pa.Int64Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count or not pa.types.is_integer(column.type):
        raise RecordTypeError(
            f"the column {TIMESTAMP_COLUMN} must be integers, milliseconds since the epoch, in each record;"
            f" it is {column.type}{' with nulls' if column.null_count else ''}"
        )
    return column.cast(pa.int64())
