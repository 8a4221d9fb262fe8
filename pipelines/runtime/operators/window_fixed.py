"""Tumbling and sliding windows, in processing and event time."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...functions.window import TimeWindow
from ..records.batch import Batch
from ..records.buffers import MAX_WATERMARK
from ..records.record_copying import create_copier
from .aggregation import FIELD_FUNCTIONS
from .column_aggregation import ColumnAggregation
from .operator import OperatorSetup
from .user_functions import OrderedCalls, came_from, placed, user_code
from .window_assigner import FixedWindowAssigner, Ints
from .window_state import AggregatedWindowState, ListWindowState, WindowState
from .windowing import WindowOperator, result_place


class FixedWindows(WindowOperator):
    """Windows that begin and end at the same time for all keys."""

    def __init__(self, setup: OperatorSetup, assigner: FixedWindowAssigner) -> None:
        super().__init__(setup)
        self._assigner = assigner
        # No window is due before this time; checked again then.
        self._due_at = MAX_WATERMARK
        self._contents: WindowState
        if self._folding is None:
            self._contents = ListWindowState(self.backend, self._record_type, assigner, self._keys)
        else:
            parameters = setup.parameters
            function, field = parameters["aggregation"], parameters.get("field")
            columns = (
                ColumnAggregation.create(self._record_type, self._keys.column, function, field)
                if function in FIELD_FUNCTIONS
                else None
            )
            self._contents = AggregatedWindowState(
                self.backend,
                self._folded_type,
                assigner,
                self._keys,
                self._folding,
                columns,
                self._record_type,
            )

    def open(self) -> None:
        super().open()
        self._due_at = self._least_due(self._reached)

    @property
    def _next_due(self) -> int:
        return self._due_at

    def _take(self, batch: Batch, times: Ints) -> None:
        first_end = self._assigner.first_end(int(times.min()))
        if first_end - 1 > self._reached_by_any:
            self._due_at = min(self._due_at, first_end - 1)
            records = OrderedCalls(batch)
            with user_code(self._config, records):
                self._contents.add(batch, records, times)
        elif self._assigner.is_tumbling:
            self._take_some_late(batch, times)
        else:
            # Some windows of a record may have fired and others not: record by record, in order.
            self._take_each(batch, times)

    def _take_some_late(self, batch: Batch, times: Ints) -> None:
        """Takes a batch with late records. They and the others go to different windows, so their order does not
        matter."""
        fired = self._assigner.panes(times) + (self._assigner.size - 1) <= self._reached_by_any
        on_time = (~fired).nonzero()[0]
        if len(on_time):
            with came_from(on_time.tolist().__getitem__):
                self._take(batch.take(on_time), times[on_time])
        late = fired.nonzero()[0]
        with came_from(late.tolist().__getitem__):
            self._take_each(batch.take(late), times[late])

    def _take_each(self, batch: Batch, times: Ints) -> None:
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            keys = self._keys.select(records)
            for key, time, timestamp, value in zip(
                keys, times.tolist(), batch.timestamps, records, strict=True
            ):
                self._take_one(key, time, timestamp, value)

    def _take_one(self, key: Any, time: int, timestamp: int, value: Any) -> None:
        reached = self._reached_for(key)
        taken, copy = False, None if self._assigner.is_tumbling else create_copier(self._record_type)
        for start in self._assigner.starts(time):
            window = TimeWindow(start, start + self._assigner.size)
            done_with = window.max_timestamp + self._lateness
            if done_with <= reached:
                continue
            taken = True
            self._contents.add_one(start, key, value if copy is None else copy(value))
            if window.max_timestamp <= reached:
                self._due_at = min(self._due_at, done_with)
                self._emit_result(key, window, self._own_copies(self._contents.get_for_key(start, key)))
            else:
                self._due_at = min(self._due_at, window.max_timestamp)
        if not taken:
            self._is_too_late(timestamp, value, reached)

    def _advance(self, before: int, reached: int) -> None:
        if reached < self._due_at:
            return
        for start in sorted(self._contents.starts()):
            window = TimeWindow(start, start + self._assigner.size)
            last = window.max_timestamp
            if before < last <= reached:
                with user_code(self._config, place=partial(self._window_place, window)):
                    self._fire(window)
                with placed(partial(result_place, window)):
                    self._gathering.send(self.output)
            if last + self._lateness <= reached:
                if self._call_clear is not None:
                    with user_code(self._config, place=partial(self._window_place, window)):
                        for key in self._contents.keys(start):
                            self._clear_function(key, window)
                self._contents.drop(start)
        self._due_at = self._least_due(reached)

    def _fire(self, window: TimeWindow) -> None:
        contents = self._contents.get(window.start)
        if self._event_time and self.backend.has_keys_ahead:
            former = self.backend.former_watermark
            contents = [content for content in contents if former(content[0]) < window.max_timestamp]
        if self._call_function is None:
            given = [element for _, elements in contents for element in elements]
            self._gathering.add(window.max_timestamp, self._own_copies(given))
        else:
            for key, elements in contents:
                self._emit_result(key, window, self._own_copies(elements))

    def _least_due(self, reached: int) -> int:
        """Returns the time at which a window next fires or is removed."""
        due = MAX_WATERMARK
        for start in self._contents.starts():
            last = start + self._assigner.size - 1
            due = min(due, last if last > reached else last + self._lateness)
        return due
