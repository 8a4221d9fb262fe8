"""map_batches: a user's function on Arrow record batches, for vectorised work.

The batch has the columns of the input's record type: the fields of a dataclass or NamedTuple, `f0`, `f1`, ... of a
tuple, `value` where there is only one. How many records are in it is nobody's promise. The function returns a
RecordBatch or a Table, yields any number of them, or returns None for nothing; it must have the columns of the declared
output type.

Timestamps (ms): those of the result's column `~timestamp`, where it has one; else, where there are as many records as
went in, those that went in, in order; else the greatest of them for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...types import Pickled, RecordTypeError
from ..batch import Batch
from ..buffers import TIMESTAMP_COLUMN
from ..failures import TaskError
from .conform import conform
from .functions import close_function, load, open_function, user_code
from .operator import Operator, Setup


class MapBatches(Operator):
    """Calls the function with each batch that comes in."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        (self._function,) = load(setup.config)
        (self._input_type,) = setup.input_types
        self._output_type = setup.type_of("output_type")
        for record_type, what in ((self._input_type, "in front of it"), (self._output_type, "itself")):
            if isinstance(record_type, Pickled):
                raise TaskError(
                    f"map_batches, operator {setup.config.name!r}, works on columns, and pickled records have none:"
                    f" declare the output_type of the operator {what}"
                )
        self._schema = self._input_type.schema()

    def open(self) -> None:
        with user_code(self._setup.config):
            open_function(self._function, self._setup.context)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        given = pa.RecordBatch.from_arrays(batch.columns(self._input_type), schema=self._schema)
        with user_code(self._setup.config):
            result = self._whole(self._function(given))
            if result is None or not result.num_rows:
                return
            timestamps = _timestamps(result, batch)
            if TIMESTAMP_COLUMN in result.schema.names:
                result = result.drop_columns([TIMESTAMP_COLUMN])
            columns = conform(result, self._output_type)
        self.output.emit(Batch.of_columns(timestamps, columns, self._output_type))

    def close(self) -> None:
        with user_code(self._setup.config):
            close_function(self._function)

    def _whole(self, result: Any) -> pa.Table | pa.RecordBatch | None:
        if result is None or isinstance(result, (pa.RecordBatch, pa.Table)):
            return result
        parts = list(result) if isinstance(result, Iterable) else [result]
        for part in parts:
            if not isinstance(part, (pa.RecordBatch, pa.Table)):
                raise TypeError(
                    f"the function of map_batches gave {type(part).__name__}, not a pyarrow.RecordBatch or Table"
                )
        tables = [
            pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part for part in parts
        ]
        return pa.concat_tables(tables) if tables else None


def _timestamps(result: pa.Table | pa.RecordBatch, batch: Batch) -> pa.Int64Array:
    if TIMESTAMP_COLUMN in result.schema.names:
        column = result.column(TIMESTAMP_COLUMN)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if column.null_count or not pa.types.is_integer(column.type):
            raise RecordTypeError(
                f"the column {TIMESTAMP_COLUMN} must be integers, milliseconds since the epoch, in each record;"
                f" it is {column.type}{' with nulls' if column.null_count else ''}"
            )
        return column.cast(pa.int64())
    if result.num_rows == len(batch):
        return batch.timestamp_column()
    return pa.repeat(pc.max(batch.timestamp_column()).cast(pa.int64()), result.num_rows)
