"""co_process: process functions on two connected streams that have no keys."""

from __future__ import annotations

from ..records.batch import Batch
from .process import UnkeyedProcessOperator


class CoProcessOperator(UnkeyedProcessOperator):
    """Runs a CoProcessFunction."""

    def process(self, batch: Batch, input_index: int = 0) -> None:
        function = self._function
        self._call_each((function.process_element1, function.process_element2)[input_index], batch)
