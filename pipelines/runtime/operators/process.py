"""process: any number of records, and side outputs, for each record of a stream that has no keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..records.batch import Batch
from .function_contexts import FunctionContext, LocalOperatorTimes, ReadOnlyTimerService
from .function_operator import FunctionOperator
from .operator import OperatorSetup
from .output_collector import OutputCollector
from .user_functions import OrderedCalls, user_code

Call = Callable[[Any, FunctionContext], Iterable[Any] | None]


class UnkeyedProcessOperator(FunctionOperator):
    """The common part of process and co_process: a function, its context, and the times."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self._times = LocalOperatorTimes()
        self._gathering = OutputCollector()
        clocks = ReadOnlyTimerService(
            setup, self._times, "timers need a key: call key_by before this operator"
        )
        self._context = FunctionContext(clocks, self._gathering)

    def advance_watermark(self, watermark: int) -> None:
        self._times.watermark = max(self._times.watermark, watermark)
        super().advance_watermark(watermark)

    def advance_clock(self, clock: int) -> None:
        self._times.clock = max(self._times.clock, clock)

    def _call_each(self, call: Call, batch: Batch) -> None:
        context, gathering = self._context, self._gathering
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            for timestamp, value in zip(batch.timestamps, records, strict=True):
                context.timestamp = timestamp
                gathering.add(timestamp, call(value, context))
        gathering.send(self.output)


class ProcessOperator(UnkeyedProcessOperator):
    """Runs a ProcessFunction."""

    def process(self, batch: Batch, input_index: int = 0) -> None:
        self._call_each(self._function.process_element, batch)
