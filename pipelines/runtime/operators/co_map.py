"""co_map and co_flat_map: a function for each of two connected streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..records.batch import Batch
from .function_operator import FunctionOperator
from .output_collector import OutputCollector
from .user_functions import OrderedCalls, user_code


class CoMapOperator(FunctionOperator):
    """Runs a CoMapFunction: one record for each."""

    def process(self, batch: Batch, input_index: int = 0) -> None:
        call = (self._function.map1, self._function.map2)[input_index]
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            values: list[Any] = list(map(call, records))
        self.output.emit(batch.with_values(values))


class CoFlatMapOperator(FunctionOperator):
    """Runs a CoFlatMapFunction: any number of records for each."""

    def process(self, batch: Batch, input_index: int = 0) -> None:
        call = (self._function.flat_map1, self._function.flat_map2)[input_index]
        gathering, records = OutputCollector(), OrderedCalls(batch)
        with user_code(self._config, records):
            for timestamp, value in zip(batch.timestamps, records, strict=True):
                given: Iterable[Any] | None = call(value)
                gathering.add(timestamp, given)
        gathering.send(self.output)
