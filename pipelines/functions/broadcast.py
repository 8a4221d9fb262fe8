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
    """Part of the contexts of the first stream."""

    @abstractmethod
    def get_broadcast_state(self, descriptor: MapStateDescriptor[MK, MV]) -> ReadOnlyBroadcastState[MK, MV]:
        """A map of the broadcast state. Raises TypeError where `broadcast` was not given its descriptor."""


class ReadOnlyBroadcastContext(Context, ReadsBroadcastState):
    """What `process_element` has on a stream without keys."""


class KeyedReadOnlyBroadcastContext(KeyedContext[K], ReadsBroadcastState):
    """What `process_element` has on a keyed stream."""


class BroadcastOnTimerContext(OnTimerContext[K], ReadsBroadcastState):
    """What `on_timer` has."""


class BroadcastContext(Context):
    """What `process_broadcast_element` has. There is no key at hand: no keyed state, and no timers."""

    @abstractmethod
    def get_broadcast_state(self, descriptor: MapStateDescriptor[MK, MV]) -> BroadcastState[MK, MV]:
        """A map of the broadcast state. Raises TypeError where `broadcast` was not given its descriptor."""


class KeyedBroadcastContext(BroadcastContext, Generic[K]):
    """What `process_broadcast_element` has beside a keyed stream."""

    @abstractmethod
    def apply_to_keyed_state(self, descriptor: StateDescriptor, function: Callable[[K, Any], object]) -> None:
        """Calls `function(key, state)` for each key of this subtask that has something in that state."""


class BroadcastProcessFunction(RichFunction, ABC, Generic[IN1, IN2, OUT]):
    """For a stream without keys and a broadcast one."""

    @abstractmethod
    def process_element(self, value: IN1, context: ReadOnlyBroadcastContext) -> Iterable[OUT] | None:
        """For a record of the first stream: the records that follow; None for none."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, context: BroadcastContext) -> Iterable[OUT] | None:
        """For a record of the broadcast stream, in every subtask: the records that follow; None for none."""


class KeyedBroadcastProcessFunction(RichFunction, ABC, Generic[K, IN1, IN2, OUT]):
    """For a keyed stream and a broadcast one; with state and timers of each key of the first."""

    @abstractmethod
    def process_element(self, value: IN1, context: KeyedReadOnlyBroadcastContext[K]) -> Iterable[OUT] | None:
        """For a record of the first stream: the records that follow; None for none."""

    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, context: KeyedBroadcastContext[K]
    ) -> Iterable[OUT] | None:
        """For a record of the broadcast stream, in every subtask: the records that follow; None for none."""

    def on_timer(self, timestamp: int, context: BroadcastOnTimerContext[K]) -> Iterable[OUT] | None:
        """The records that follow from a timer that this function has registered."""
        del timestamp, context
        return None
