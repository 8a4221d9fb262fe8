"""The broadcast state pattern: functions on a stream and on a second one that every subtask receives whole.

Each subtask keeps the same maps of the second stream, the *broadcast state*. A record of the second stream may change
them; a record of the first one may read them. That makes all copies equal, if what a function does with a broadcast
record depends on nothing but the record and the broadcast state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from .process import Context, KeyedContext, OnTimerContext
from .rich import RichFunction
from .state import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState, StateDescriptor

K = TypeVar("K")
MK = TypeVar("MK")
MV = TypeVar("MV")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class ReadsBroadcastState(ABC):
    """The part of a first stream's context that reads broadcast state."""

    @abstractmethod
    def get_broadcast_state(self, descriptor: MapStateDescriptor[MK, MV]) -> ReadOnlyBroadcastState[MK, MV]:
        """Returns a map of the broadcast state. Raises TypeError if `broadcast` was called without its descriptor."""


class ReadOnlyBroadcastContext(Context, ReadsBroadcastState):
    """The context of `process_element` on a stream without keys."""


class KeyedReadOnlyBroadcastContext(KeyedContext[K], ReadsBroadcastState):
    """The context of `process_element` on a keyed stream."""


class BroadcastOnTimerContext(OnTimerContext[K], ReadsBroadcastState):
    """The context of `on_timer`."""


class BroadcastContext(Context):
    """The context of `process_broadcast_element`. There is no current key: no keyed state, and no timers."""

    @abstractmethod
    def get_broadcast_state(self, descriptor: MapStateDescriptor[MK, MV]) -> BroadcastState[MK, MV]:
        """Returns a map of the broadcast state. Raises TypeError if `broadcast` was called without its descriptor."""


class KeyedBroadcastContext(BroadcastContext, Generic[K]):
    """The context of `process_broadcast_element` if the first stream is keyed."""

    @abstractmethod
    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[K, Any], object]) -> None:
        """Calls `function(key, state)` for each key of this subtask that has something in that state."""


class BroadcastProcessFunction(RichFunction, ABC, Generic[IN1, IN2, OUT]):
    """A function for a stream without keys and a broadcast stream."""

    @abstractmethod
    def process_element(self, value: IN1, context: ReadOnlyBroadcastContext) -> Iterable[OUT] | None:
        """Processes a record of the first stream. Returns records to emit, or None."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, context: BroadcastContext) -> Iterable[OUT] | None:
        """Processes a record of the broadcast stream, in every subtask. Returns records to emit, or None."""


class KeyedBroadcastProcessFunction(RichFunction, ABC, Generic[K, IN1, IN2, OUT]):
    """A function for a keyed stream and a broadcast stream, with state and timers of each key of the first."""

    @abstractmethod
    def process_element(self, value: IN1, context: KeyedReadOnlyBroadcastContext[K]) -> Iterable[OUT] | None:
        """Processes a record of the first stream. Returns records to emit, or None."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, context: KeyedBroadcastContext[K]
    ) -> Iterable[OUT] | None:
        """Processes a record of the broadcast stream, in every subtask. Returns records to emit, or None."""

    def on_timer(self, timestamp: int, context: BroadcastOnTimerContext[K]) -> Iterable[OUT] | None:
        """Called when a timer of this function fires. Returns records to emit, or None."""
        del timestamp, context
        return None
