"""The contexts of triggers and evictors: the times, and the timers and the state of one window of one key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...functions import AggregatingState, ListState, ReducingState
from ...functions.evictor import EvictorContext
from ...functions.trigger import OnMergeContext
from ...functions.window import TimeWindow
from ...types import RecordType
from ..records.buffers import MAX_WATERMARK
from ..state_backend.keyed_state_backend import KeyedStateBackend
from ..state_backend.state_handles import KeyedStateAccess, TableAggregatingState
from ..state_backend.timers import TimerTable
from ..state_backend.window_scope import StateStore, WindowScope
from .function_contexts import processing_time
from .operator import OperatorSetup


class WindowTimes(EvictorContext):
    """The times for the current key."""

    def __init__(self, setup: OperatorSetup, backend: KeyedStateBackend) -> None:
        self._setup = setup
        self._backend = backend

    def current_watermark(self) -> int:
        return self._backend.watermark_for(self._backend.current_key)

    def current_processing_time(self) -> int:
        return processing_time(self._setup, self._backend)


class TriggerCalls(WindowTimes, OnMergeContext):
    """The context of all calls of an operator's trigger. Call `set_window` before each."""

    def __init__(self, setup: OperatorSetup, backend: KeyedStateBackend, key_type: RecordType) -> None:
        super().__init__(setup, backend)
        self._scope = WindowScope(backend, key_type, "~trigger/")
        self._states = StateStore(KeyedStateAccess(self._scope))
        self._key: Any = None
        self._merged: Sequence[TimeWindow] = ()
        self.removal_time: int | None = None
        """The time of the timer that removes the window, which the trigger cannot delete; None if nothing does."""
        self.removes_in_event_time = False
        self.ends = False
        """Whether the input has ended: a window that nothing removes gets no more timers."""
        self.event_time: TimerTable = self._scope.timer_table("~event-time")
        self.processing_time: TimerTable = self._scope.timer_table("~processing-time")

    def set_window(self, key: Any, window: TimeWindow, removal_time: int | None) -> None:
        """Sets the window of the next calls."""
        self._key = self._backend.current_key = key
        self._backend.access_time = None
        self._scope.set_window(key, window)
        self.removal_time = removal_time

    def set_merged(self, windows: Sequence[TimeWindow]) -> None:
        """Sets the windows that are merged into the current one."""
        self._merged = windows

    def get_partitioned_state(self, descriptor: Any) -> Any:
        return self._states.find_state(descriptor)

    def merge_partitioned_state(self, descriptor: Any) -> None:
        state = self._states.find_state(descriptor)
        scope, into = self._scope, self._scope.current_key
        taken: list[Any] = []
        for window in self._merged:
            scope.set_window(self._key, window)
            taken.append(_content_of(state))
            state.clear()
        scope.current_key = into
        for content in taken:
            if content is not None:
                _add_content(state, content)

    def register_event_time_timer(self, timestamp: int) -> None:
        if self.removal_time is not None or not self.ends:
            self.event_time.register(self._scope.current_key, timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        if self._backend.clock != MAX_WATERMARK:
            self.processing_time.register(self._scope.current_key, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        if not (self.removes_in_event_time and timestamp == self.removal_time):
            self.event_time.delete(self._scope.current_key, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        if self.removes_in_event_time or timestamp != self.removal_time:
            self.processing_time.delete(self._scope.current_key, timestamp)


def _content_of(state: Any) -> Any:
    match state:
        case TableAggregatingState():
            return state.accumulator()
        case ReducingState():
            return state.get()
        case ListState():
            return list(state)
        case _:
            raise TypeError(
                "the state of merged windows is a list, a reduction or an aggregation: others cannot be merged"
            )


def _add_content(state: Any, content: Any) -> None:
    match state:
        case AggregatingState():
            assert isinstance(state, TableAggregatingState)
            state.merge(content)
        case ReducingState():
            state.add(content)
        case _:
            state.add_all(content)
