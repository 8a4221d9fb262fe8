"""map, flat_map and filter: a user's function on each record; results keep the record's timestamp."""

from __future__ import annotations

from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ..records.batch import Batch
from .function_operator import FunctionOperator
from .operator import OperatorSetup
from .user_functions import OrderedCalls, came_from, method_of, user_code


class _WithFunction(FunctionOperator):
    method: ClassVar[str]
    """The method of the function, if it is not a plain callable."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self._call = method_of(self._function, self.method)


class MapOperator(_WithFunction):
    """Emits one record for each record."""

    method = "map"

    def process(self, batch: Batch, input_index: int = 0) -> None:
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            values = list(map(self._call, records))
        self.output.emit(batch.with_values(values))


class FlatMapOperator(_WithFunction):
    """Emits the records that the function returns or yields; none for None."""

    method = "flat_map"

    def process(self, batch: Batch, input_index: int = 0) -> None:
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            given = [
                record
                if type(record) is list or type(record) is tuple
                else list(record)
                if record is not None
                else ()
                for record in map(self._call, records)
            ]
        values: list[Any] = list(chain.from_iterable(given))
        if values:
            counts = list(map(len, given))
            timestamps = np.repeat(batch.timestamp_column().to_numpy(), counts)
            with came_from(lambda index: int(np.searchsorted(np.cumsum(counts), index, side="right"))):
                self.output.emit(Batch.from_rows(pa.array(timestamps), values))


class FilterOperator(_WithFunction):
    """Emits the records for which the function returns a true value."""

    method = "filter"

    def process(self, batch: Batch, input_index: int = 0) -> None:
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            selected = [i for i, value in enumerate(records) if self._call(value)]
        if len(selected) == len(batch):
            self.output.emit(batch)
        elif selected:
            with came_from(selected.__getitem__):
                self.output.emit(batch.take(selected))
