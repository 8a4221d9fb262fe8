"""Process functions with state and timers of each key, on one stream or on two connected ones.

Event-time timers fire when the watermark reaches them, processing-time timers when the clock does, in the order of
(time, key). At the end of the input all timers fire. Event-time timers that are registered meanwhile fire too.
Processing-time timers that are registered then never fire: a function that always registers the next one would keep the
job from ending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ..common.failures import TaskError, format_key
from ..records.batch import Batch
from ..records.buffers import MAX_WATERMARK
from ..state_backend.timers import TimerTable
from .function_contexts import FunctionContext, KeyedTimerService
from .keyed import KeyedFunctionOperator, KeySelector
from .operator import OperatorSetup
from .output_collector import OutputCollector
from .user_functions import OrderedCalls, load, user_code

EVENT_TIME: Final = "event-time"
PROCESSING_TIME: Final = "processing-time"
LAST_TIMERS: Final = 1_000
"""The limit of timers that fire after the end of the input, for each timer that existed then: a timer may register
another."""

Call = Callable[[Any, FunctionContext], Iterable[Any] | None]


class TimedProcessOperator(KeyedFunctionOperator):
    """The common part of both operators."""

    def __init__(
        self,
        setup: OperatorSetup,
        selectors: Sequence[Callable[[Any], Any]],
        function: Any,
        calls: Sequence[Call],
    ) -> None:
        super().__init__(setup)
        self._function = function
        # A key column has a name in one input only: connected streams have one selector each.
        field = setup.parameters.get("key_field") if len(selectors) == 1 else None
        self._keys = [
            KeySelector(selector, of, field)
            for selector, of in zip(selectors, setup.input_types[: len(selectors)], strict=True)
        ]
        self._calls = calls
        self._timers = KeyedTimerService(setup, self.backend)
        self._gathering = OutputCollector()
        self._context = FunctionContext(self._timers, self._gathering)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        call = self._calls[input_index]
        context, gathering, backend = self._context, self._gathering, self.backend
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            keys = self._keys[input_index].select(records)
            for key, timestamp, value in zip(keys, batch.timestamps, records, strict=True):
                backend.current_key = context.current_key = key
                backend.access_time = None
                context.timestamp = timestamp
                gathering.add(timestamp, call(value, context))
        gathering.send(self.output)

    def advance_watermark(self, watermark: int) -> None:
        if watermark > self.backend.watermark:
            self.backend.watermark = watermark
        self._fire(self._timers.event_time, self.backend.watermark, EVENT_TIME)
        super().advance_watermark(watermark)

    @property
    def next_clock(self) -> int:
        return self._timers.processing_time.next_time

    def advance_clock(self, clock: int) -> None:
        if clock > self.backend.clock:
            self.backend.clock = clock
        self._fire(self._timers.processing_time, self.backend.clock, PROCESSING_TIME)

    def finish(self) -> None:
        # Timers that records after the last watermark have registered.
        self._fire(self._timers.event_time, MAX_WATERMARK, EVENT_TIME)

    def _fire(self, table: TimerTable, time: int, domain: str) -> None:
        bound = (len(table) + 1) * LAST_TIMERS
        fired = 0
        context, gathering, backend = self._context, self._gathering, self.backend
        while (timer := table.pop_due(time)) is not None:
            timestamp, key = timer
            backend.current_key = context.current_key = key
            backend.access_time = None
            context.timestamp = timestamp
            context.time_domain = domain
            with user_code(self._config, place=self._timer_place):
                gathering.add(timestamp, self._function.on_timer(timestamp, context))
            if gathering.has_many:
                gathering.send(self.output)
            fired += 1
            if time == MAX_WATERMARK and fired > bound:
                raise TaskError(
                    f"operator {self._config.name!r}: its timers register timers without end, though the input has"
                    " ended: register none when current_watermark() is the end of time (2^63 - 1)"
                )
        gathering.send(self.output)

    def _timer_place(self) -> str:
        """Returns the description of the timer that fires, for errors."""
        context = self._context
        return f"the {context.time_domain} timer {context.timestamp}, key {format_key(context.current_key)}"


class KeyedProcessOperator(TimedProcessOperator):
    """Runs a KeyedProcessFunction."""

    def __init__(self, setup: OperatorSetup) -> None:
        selector, function = load(setup.config)
        super().__init__(setup, (selector,), function, (function.process_element,))


class KeyedCoProcessOperator(TimedProcessOperator):
    """Runs a KeyedCoProcessFunction."""

    def __init__(self, setup: OperatorSetup) -> None:
        first, second, function = load(setup.config)
        calls = function.process_element1, function.process_element2
        super().__init__(setup, (first, second), function, calls)
