"""Triggers: they decide when a window emits its results (Flink's Trigger).

A trigger is one object for all windows and keys, so it keeps what it knows of a window in the state of its context. It
is asked about each record and each of its timers, and answers with a TriggerResult. `clear` removes its timers and its
state when the window is removed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar, overload

from .process import TimerService
from .state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from .window import TimeWindow

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN", contravariant=True)
OUT = TypeVar("OUT")


class TriggerResult(Enum):
    """What happens with a window. A window without records emits nothing."""

    CONTINUE = (False, False)
    """Nothing."""
    FIRE = (True, False)
    """It emits its results, and keeps its records."""
    PURGE = (False, True)
    """Its records are removed. The window stays, and so does the state of its trigger."""
    FIRE_AND_PURGE = (True, True)
    """Both."""

    @property
    def is_fire(self) -> bool:
        """Whether the window emits its results."""
        return self.value[0]

    @property
    def is_purge(self) -> bool:
        """Whether the window's records are removed."""
        return self.value[1]


class TriggerContext(TimerService):
    """The times, and the timers and the state of one window of one key."""

    @overload
    def get_partitioned_state(self, descriptor: ValueStateDescriptor[T]) -> ValueState[T]: ...
    @overload
    def get_partitioned_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]: ...
    @overload
    def get_partitioned_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]: ...
    @overload
    def get_partitioned_state(self, descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]: ...
    @overload
    def get_partitioned_state(
        self, descriptor: AggregatingStateDescriptor[T, Any, OUT]
    ) -> AggregatingState[T, OUT]: ...
    @abstractmethod
    def get_partitioned_state(self, descriptor: Any) -> Any:
        """Returns a state of the window and key."""


class OnMergeContext(TriggerContext):
    """The context of a window that is merged from others."""

    @abstractmethod
    def merge_partitioned_state(
        self,
        descriptor: ListStateDescriptor[Any]
        | ReducingStateDescriptor[Any]
        | AggregatingStateDescriptor[Any, Any, Any],
    ) -> None:
        """Moves this state of the merged windows into that of the new one."""


class Trigger(ABC, Generic[IN]):
    """Decides when a window emits its results. `window` is a GlobalWindow for GlobalWindows."""

    @abstractmethod
    def on_element(
        self, element: IN, timestamp: int, window: TimeWindow, context: TriggerContext
    ) -> TriggerResult:
        """Called for each record, after it was added to the window."""

    def on_event_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        """Called when the watermark reaches a timer of event time, and when a window in event time is removed."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        """Called when the clock reaches a timer of processing time, and when a window in processing time is removed."""
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Whether the trigger works for sessions, which merge: it has `on_merge`."""
        return False

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        """Called when windows were merged into this one: moves their state, and registers the timers of the new window.
        Then `clear` is called for each of the old ones."""
        raise NotImplementedError(f"{type(self).__name__} has no on_merge")

    @abstractmethod
    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        """Called when the window is removed: removes its timers and its state."""

    def __str__(self) -> str:
        return type(self).__name__
