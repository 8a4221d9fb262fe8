"""The common part of the window operators: the time of records, lateness, and results.

A window [start, end) fires when its clock reaches end - 1, which is also the timestamp of its results.

In event time a record is late if its window has fired. While the watermark is below end - 1 + allowed lateness, a late
record fires its window again, with the updated result. After that it goes to the side output `late_tag`, or is dropped
and counted in the accumulator `numLateRecordsDropped`. In processing time no record is late: a record belongs to the
window that is open when it arrives, by the wall clock of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

import numpy as np

from ...functions.adapters import AllWindow
from ...functions.window import (
    LATE_RECORDS_DROPPED,
    GlobalWindow,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    TimeWindow,
    WindowContext,
)
from ..common.failures import format_key
from ..records.batch import Batch
from ..records.buffers import MAX_WATERMARK
from ..records.record_copying import create_copier
from ..state_backend.state_handles import KeyedStateAccess
from .aggregation import Aggregation, create_aggregation
from .function_contexts import processing_time
from .keyed import KeyedOperator, KeySelector
from .operator import OperatorSetup
from .output_collector import OutputCollector
from .user_functions import close_function, load, method_of, open_function, user_code
from .window_assigner import Ints, SessionAssigner, create_assignment
from .window_context import WindowFunctionContext

_MILLISECOND: Final = timedelta(milliseconds=1)


class WindowOperator(KeyedOperator):
    """Base of the window operators. Subclasses store the windows: they implement `_advance` and `_take`."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        parameters = setup.parameters
        # Graphs without a trigger, an evictor and a gap have the first three only.
        loaded = (*load(setup.config), None, None, None)[:6]
        selector, self._aggregator, self._window_function, self._trigger, self._evictor, gap = loaded
        self._gap_function = gap
        self._record_type = setup.input_types[0]
        self._keys = KeySelector(selector, self._record_type, parameters.get("key_field"))
        assignment = create_assignment(parameters["assigner"])
        self._event_time = assignment.time == "event"
        self._lateness: int = (parameters.get("allowed_lateness_ms") or 0) if self._event_time else 0
        self._late_tag: str | None = parameters.get("late_tag")
        aggregation = parameters["aggregation"]
        field = parameters.get("field")
        self._folding: Aggregation | None = None
        self._folded_type = self._record_type
        if aggregation != "none":
            self._folding = create_aggregation(aggregation, self._aggregator, self._record_type, field)
        if aggregation == "aggregate":
            self._folded_type = setup.record_type_parameter("accumulator_type")
        # Windows that may fire again keep their result.
        self._copy_element = create_copier(self._folded_type) if self._lateness else None
        self._gathering = OutputCollector()
        self._context = WindowFunctionContext(
            setup,
            self.backend,
            self._gathering,
            setup.record_type_parameter("key_type"),
            merges=isinstance(assignment.assigner, SessionAssigner),
        )
        self._call_function = (
            None if self._window_function is None else method_of(self._window_function, "process")
        )
        self._call_clear = clear_method(self._window_function)

    def open(self) -> None:
        self._setup.context.state_backend = KeyedStateAccess(self.backend)
        with user_code(self._config):
            open_function(self._aggregator, self._setup.context)
            open_function(self._window_function, self._setup.context)

    def close(self) -> None:
        with user_code(self._config):
            try:
                close_function(self._aggregator)
            finally:
                close_function(self._window_function)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        self._take(batch, self._times_of(batch))
        self._gathering.send(self.output)

    def advance_watermark(self, watermark: int) -> None:
        before = self.backend.watermark
        if watermark > before:
            self.backend.watermark = watermark
            if self._event_time:
                self._advance(before, watermark)
                self._gathering.send(self.output)
        super().advance_watermark(watermark)

    @property
    def next_clock(self) -> int:
        return MAX_WATERMARK if self._event_time else self._next_due

    def advance_clock(self, clock: int) -> None:
        before = self.backend.clock
        if clock > before:
            self.backend.clock = clock
            if not self._event_time:
                self._advance(before, clock)
                self._gathering.send(self.output)

    def _take(self, batch: Batch, times: Ints) -> None:
        """Puts records into their windows. `times` are the times that assign the windows."""
        raise NotImplementedError

    def _advance(self, before: int, reached: int) -> None:
        """Fires the windows whose last millisecond is > before and <= reached; removes those whose lateness has
        passed."""
        raise NotImplementedError

    @property
    def _next_due(self) -> int:
        """Returns a time before which no window fires or is removed; END_OF_TIME if there is none."""
        raise NotImplementedError

    @property
    def _reached(self) -> int:
        """Returns the time of the windows' clock."""
        return self.backend.watermark if self._event_time else self.backend.clock

    def _reached_for(self, key: Any) -> int:
        """Returns the clock's time for a key, which decides whether its windows have fired."""
        return self.backend.watermark_for(key) if self._event_time else self.backend.clock

    @property
    def _reached_by_any(self) -> int:
        """Returns the latest time of the clock for any key."""
        return self.backend.greatest_watermark if self._event_time else self.backend.clock

    def _times_of(self, batch: Batch) -> Ints:
        if self._event_time:
            times: Ints = batch.timestamp_column().to_numpy()
            return times
        now = max(processing_time(self._setup, self.backend), self.backend.clock + 1)
        return np.full(len(batch), now, np.int64)

    def _window_place(self, window: TimeWindow) -> str:
        """Returns the description of a window that fires, and of its key if a function is called for each key."""
        place = f"the window {_interval(window)}"
        folding = self._folding
        for_each_key = self._call_function is not None or (folding is not None and not folding.is_mergeable)
        return f"{place}, key {format_key(self.backend.current_key)}" if for_each_key else place

    def _is_too_late(self, timestamp: int, value: Any, reached: int) -> None:
        """Handles a record that none of its windows took. `reached`: the clock's time for its key."""
        if not self._event_time or timestamp + self._lateness > reached:
            return  # the record has no window: windows with gaps between them
        if self._late_tag is not None:
            self._gathering.add_side(self._late_tag, timestamp, value)
        else:
            self._setup.context.accumulator(LATE_RECORDS_DROPPED).inc()

    def _own_copies(self, elements: Sequence[Any]) -> Sequence[Any]:
        """Returns the contents of a window as objects that functions may change."""
        return elements if self._copy_element is None else list(map(self._copy_element, elements))

    def _emit_result(
        self, key: Any, window: TimeWindow, elements: Iterable[Any], timestamp: int | None = None
    ) -> None:
        """Emits the results of a window of a key. `elements`: its records, or the result of their aggregation;
        `timestamp`: of the results; None: the last of the window."""
        if timestamp is None:
            timestamp = window.max_timestamp
        gathering = self._gathering
        if self._call_function is None:
            gathering.add(timestamp, elements)
        else:
            self._set_window(key, window, timestamp)
            gathering.add(timestamp, self._call_function(key, self._context, elements))

    def _clear_function(self, key: Any, window: TimeWindow) -> None:
        """Lets the function remove its state of a window that is removed."""
        if self._call_clear is not None:
            self._set_window(key, window, window.max_timestamp)
            self._call_clear(self._context)

    def _set_window(self, key: Any, window: TimeWindow, timestamp: int) -> None:
        context = self._context
        self.backend.current_key = context.current_key = key
        self.backend.access_time = None
        context.timestamp = timestamp
        context.window = window
        if context.scope is not None:
            context.scope.set_window(key, window)


def result_place(window: TimeWindow) -> str:
    """Returns the description of a window's result, for errors."""
    return f"a result of the window {_interval(window)}"


def create_gap(assigner: SessionAssigner, function: Callable[[Any], Any] | None) -> Callable[[Any], int]:
    """Returns a function that returns the gap after a record (ms)."""
    fixed = assigner.gap
    if fixed is not None:
        return lambda value: fixed
    assert function is not None

    def gap(value: Any) -> int:
        found = function(value)
        ms = round(found / _MILLISECOND) if isinstance(found, timedelta) else found
        if type(ms) is not int or ms < 1:
            raise ValueError(
                f"the gap of a session is {found!r}: return a timedelta, or milliseconds, 1 or more"
            )
        return ms

    return gap


def clear_method(function: Any) -> Callable[[WindowContext], None] | None:
    """Returns the function's own `clear`; None if it has none."""
    if isinstance(function, AllWindow):
        (function,) = function.parts
    if not isinstance(function, (ProcessWindowFunction, ProcessAllWindowFunction)):
        return None
    defaults = ProcessWindowFunction.clear, ProcessAllWindowFunction.clear
    return None if type(function).clear in defaults else function.clear


def _interval(window: TimeWindow) -> str:
    return "of all time" if isinstance(window, GlobalWindow) else f"[{window.start}, {window.end})"
