"""sum, min, max, min_by and max_by of a field over all records of a key so far.

Like reduce, with the functions of aggregation.py. If key and field are plain columns and the records arrive as columns,
Arrow aggregates mini-batches, and numpy computes running sums of integers, a column at a time.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..records.batch import Batch
from .aggregation import field_access, field_reduce
from .column_aggregation import ColumnAggregation, fits_in_sum
from .operator import OperatorSetup
from .running_aggregate import RunningAggregate
from .user_functions import load

_MISSING: Final = object()
_SAFE: Final = 1 << 62
"""The limit of the stored and of the new values: their sum stays within 64 bits."""
# For smaller batches the setup of numpy costs more than it saves.
_FEW: Final = 32


class AggregateOperator(RunningAggregate):
    """The operator of `key_by(...).sum(...)`, min, max, min_by and max_by."""

    def __init__(self, setup: OperatorSetup) -> None:
        (selector,) = load(setup.config)
        super().__init__(setup, selector)
        parameters = setup.parameters
        function, field = parameters["function"], parameters.get("field")
        self._reduce = field_reduce(function, self._record_type, field)
        self._columns = ColumnAggregation.create(self._record_type, self._keys.column, function, field)
        self._get, self._put = field_access(self._record_type, field)
        names = [name for name, _ in self._record_type.columns()]
        self._field = names.index(field) if field in names else 0
        self._sums = function == "sum"

    def _gather(self, batch: Batch) -> None:
        groups = self._columns.fold(batch) if self._columns is not None and batch.is_columnar else None
        if groups is None:
            super()._gather(batch)
            return
        keys = self._keys.select_columns(groups.columns)
        self._fold(keys, groups.timestamps.to_pylist(), self._record_type.from_columns(groups.columns))

    def _run(self, batch: Batch) -> None:
        if not (self._sums and self._columns is not None and batch.is_columnar and len(batch) >= _FEW):
            super()._run(batch)
            return
        columns = batch.columns(self._record_type)
        field = columns[self._field]
        if not pa.types.is_integer(field.type) or not fits_in_sum(field, _SAFE):
            super()._run(batch)
            return
        self._run_columns(batch, columns, field.to_numpy())

    def _run_columns(self, batch: Batch, columns: list[pa.Array], numbers: np.ndarray[Any, Any]) -> None:
        """Computes running sums by key: sorted by key they are one running sum, minus the sum before each key's
        first record."""
        assert self._keys.column is not None
        encoded = columns[self._keys.column].dictionary_encode()
        codes = encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        counts = np.bincount(codes, minlength=len(encoded.dictionary))
        ends = np.cumsum(counts)
        begins = ends - counts
        summed = np.cumsum(numbers[order])
        before = np.where(begins > 0, summed[begins - 1], 0)
        totals = summed[ends - 1] - before

        known = self._table.space()
        keys = self._keys.select_columns(
            [encoded.dictionary if i == self._keys.column else c for i, c in enumerate(columns)]
        )
        held = [known.get(key, _MISSING) for key in keys]
        new = [code for code, record in enumerate(held) if record is _MISSING]
        if new:
            first_rows = pa.array(order[begins[new]])
            records = self._record_type.from_columns([column.take(first_rows) for column in columns])
            for code, record in zip(new, records, strict=True):
                held[code] = self._put(record, 0)
        bases = [self._get(record) for record in held]
        if max(map(abs, bases)) > _SAFE:
            super()._run(batch)
            return
        base = np.array(bases, np.int64)
        records = [
            self._put(record, total) for record, total in zip(held, (base + totals).tolist(), strict=True)
        ]
        known.update(zip(keys, records, strict=True))
        self._table.touch(keys)

        running = np.empty_like(summed)
        running[order] = summed + np.repeat(base - before, counts)
        places = encoded.indices
        given = [column.take(places) for column in self._record_type.to_columns(records)]
        given[self._field] = pa.array(running)
        self.output.emit(Batch.from_columns(batch.timestamp_column(), given, self._record_type))
