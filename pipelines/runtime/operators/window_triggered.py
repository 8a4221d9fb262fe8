"""Windows with a trigger or an evictor, and windows of all time (Flink's WindowOperator and EvictingWindowOperator).

The trigger is asked about each record and timer. A window exists from its first record until its end and the allowed
lateness have passed: the timer of that time also asks the trigger, and then removes contents, trigger and the state of
the function. A timer of a window that does not exist any more has no effect. GlobalWindows are never removed.

State and timers are by key and window (state_backend/window_key.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from ...functions.trigger import Trigger, TriggerResult
from ...functions.triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger
from ...functions.window import GlobalWindow, TimeWindow
from ..records.batch import Batch
from ..records.buffers import MAX_WATERMARK
from ..records.record_copying import create_copier
from ..state_backend.timers import TimerTable
from ..state_backend.window_key import WindowKey
from ..state_backend.window_scope import WindowScope
from .merging_windows import Merge, MergingWindows
from .operator import OperatorSetup
from .trigger_context import TriggerCalls
from .user_functions import OrderedCalls, user_code
from .window_assigner import Assigner, FixedWindowAssigner, GlobalAssigner, Ints
from .window_contents import AggregatedContents, RecordContents, WindowContents
from .windowing import WindowOperator, create_gap

_ALL_TIME = GlobalWindow()


class TriggeredWindows(WindowOperator):
    """The windows of each key, record by record."""

    def __init__(self, setup: OperatorSetup, assigner: Assigner) -> None:
        super().__init__(setup)
        self._assigner = assigner
        self._is_global = isinstance(assigner, GlobalAssigner)
        key_type = setup.record_type_parameter("key_type")
        self._calls = calls = TriggerCalls(setup, self.backend, key_type)
        calls.removes_in_event_time = self._event_time
        self._asked: Trigger[Any] = self._default_trigger() if self._trigger is None else self._trigger
        scope = WindowScope(self.backend, key_type, "~")
        self._contents: WindowContents
        if self._folding is None or self._evictor is not None:
            self._contents = RecordContents(scope, self._record_type, self._folding, self._evictor, calls)
            self._copy_element = None
        else:
            self._contents = AggregatedContents(scope, self._folded_type, self._folding)
            # A window keeps its accumulator when it fires.
            self._copy_element = create_copier(self._folded_type)
        self._merging: MergingWindows | None = None
        if not isinstance(assigner, (FixedWindowAssigner, GlobalAssigner)):
            self._merging = MergingWindows(self.backend)
            self._gap = create_gap(assigner, self._gap_function)

    def _default_trigger(self) -> Trigger[Any]:
        if self._is_global:
            return NeverTrigger()
        return EventTimeTrigger() if self._event_time else ProcessingTimeTrigger()

    def advance_watermark(self, watermark: int) -> None:
        if watermark > self.backend.watermark:
            self.backend.watermark = watermark
            self._calls.ends = watermark == MAX_WATERMARK
            self._fire_timers(self._calls.event_time, watermark, in_event_time=True)
        self.output.emit_watermark(watermark)

    @property
    def next_clock(self) -> int:
        return self._calls.processing_time.next_time

    def advance_clock(self, clock: int) -> None:
        if clock > self.backend.clock:
            self.backend.clock = clock
            self._fire_timers(self._calls.processing_time, clock, in_event_time=False)

    def _take(self, batch: Batch, times: Ints) -> None:
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            keys = self._keys.select(records)
            for key, time, timestamp, value in zip(
                keys, times.tolist(), batch.timestamps, records, strict=True
            ):
                self._take_one(key, time, timestamp, value)

    def _take_one(self, key: Any, time: int, timestamp: int, value: Any) -> None:
        reached = self._reached_for(key)
        stamp = timestamp if self._event_time or self._is_global else time
        taken = False
        for window in self._windows_of(time, value):
            if self._merging is None:
                place = WindowKey(key, window.start, window.end)
            else:
                merge = self._merging.find(key, window)
                window, place = merge.window, merge.place
            removal = self._removal_time(window)
            if removal is not None and self._event_time and removal <= reached:
                continue
            taken = True
            if self._merging is not None:
                self._merge(key, merge)
            self._contents.add(place, value, stamp)
            self._set_trigger(key, window)
            result = self._asked.on_element(value, timestamp, window, self._calls)
            self._obey(result, key, window, place, timestamp)
            if removal is not None:
                self._removal_timers.register(WindowKey(key, window.start, window.end), removal)
        if not taken:
            self._is_too_late(timestamp, value, reached)

    def _windows_of(self, time: int, value: Any) -> Iterable[TimeWindow]:
        match self._assigner:
            case FixedWindowAssigner() as fixed:
                return [TimeWindow(start, start + fixed.size) for start in fixed.starts(time)]
            case GlobalAssigner():
                return (_ALL_TIME,)
            case _:
                return (TimeWindow(time, time + self._gap(value)),)

    def _merge(self, key: Any, merge: Merge) -> None:
        """Replaces the sessions that the session of a new record has joined or extended."""
        assert self._merging is not None
        if merge.merged:
            calls = self._calls
            self._set_trigger(key, merge.window)
            calls.set_merged(merge.merged)
            self._asked.on_merge(merge.window, calls)
            for window in merge.merged:
                self._clear_trigger(key, window)
            self._contents.merge(merge.place, merge.others)
        self._merging.put(key, merge)

    def _fire_timers(self, table: TimerTable, time: int, *, in_event_time: bool) -> None:
        while (timer := table.pop_due(time)) is not None:
            at, (key, start, end) = timer
            window = _ALL_TIME if self._is_global else TimeWindow(start, end)
            with user_code(self._config, place=partial(self._window_place, window)):
                self._take_timer(at, key, window, in_event_time=in_event_time)
            if self._gathering.has_many:
                self._gathering.send(self.output)
        self._gathering.send(self.output)

    def _take_timer(self, time: int, key: Any, window: TimeWindow, *, in_event_time: bool) -> None:
        removal = self._removal_time(window)
        removes = removal == time and in_event_time == self._event_time
        place = WindowKey(key, window.start, window.end)
        if removal is not None and not removes and (removal, place) not in self._removal_timers:
            return
        if self._merging is not None:
            place = self._merging.place(key, window)
        self._set_trigger(key, window)
        ask = self._asked.on_event_time if in_event_time else self._asked.on_processing_time
        result = ask(time, window, self._calls)
        self._obey(result, key, window, place, time)
        if removes:
            self._contents.clear(place)
            self._clear_trigger(key, window)
            self._clear_function(key, window)
            if self._merging is not None:
                self._merging.remove(key, window)

    def _obey(self, result: TriggerResult, key: Any, window: TimeWindow, place: WindowKey, time: int) -> None:
        if not isinstance(result, TriggerResult):
            raise TypeError(
                f"the trigger returned {result!r}: return a TriggerResult, such as TriggerResult.CONTINUE"
            )
        if result.is_fire:
            timestamp = time if self._is_global else window.max_timestamp

            def call(elements: Sequence[Any]) -> None:
                self._emit_result(key, window, self._own_copies(elements), timestamp)

            self._contents.fire(place, window, call)
        if result.is_purge:
            self._contents.clear(place)

    def _set_trigger(self, key: Any, window: TimeWindow) -> None:
        self._calls.set_window(key, window, self._removal_time(window))

    def _clear_trigger(self, key: Any, window: TimeWindow) -> None:
        """Removes what the trigger has of a window, and the timer that removes the window."""
        self._set_trigger(key, window)
        self._asked.clear(window, self._calls)
        removal = self._removal_time(window)
        if removal is not None:
            self._removal_timers.delete(WindowKey(key, window.start, window.end), removal)

    def _removal_time(self, window: TimeWindow) -> int | None:
        """Returns when a window is removed; None: never."""
        return None if self._is_global else window.max_timestamp + self._lateness

    @property
    def _removal_timers(self) -> TimerTable:
        return self._calls.event_time if self._event_time else self._calls.processing_time
