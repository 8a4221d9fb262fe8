"""The contexts of process functions (functions/process.py); one object for all calls of an operator."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from ...functions import OutputTag, TimerService
from ...functions.process import OnTimerContext
from ..records.buffers import MAX_WATERMARK, NO_WATERMARK
from ..state_backend.keyed_state_backend import KeyedStateBackend
from ..state_backend.timers import TimerTable
from .operator import OperatorSetup
from .output_collector import OutputCollector

X = TypeVar("X")


class OperatorTimes(Protocol):
    """The current values of both clocks (ms)."""

    watermark: int
    clock: int


class LocalOperatorTimes:
    """The times of an operator without state."""

    def __init__(self) -> None:
        self.watermark = NO_WATERMARK
        self.clock = NO_WATERMARK


def processing_time(setup: OperatorSetup, times: OperatorTimes) -> int:
    """Returns the wall clock, but at least the time of timers that have fired; END_OF_TIME at the end of the input."""
    return max(setup.wall_clock(), times.clock)


class ReadOnlyTimerService(TimerService):
    """The times only, for operators whose functions have no timers."""

    def __init__(self, setup: OperatorSetup, times: OperatorTimes, why: str) -> None:
        self._setup = setup
        self._times = times
        self._why = why

    def current_watermark(self) -> int:
        return self._times.watermark

    def current_processing_time(self) -> int:
        return processing_time(self._setup, self._times)

    def register_event_time_timer(self, timestamp: int) -> None:
        raise self._refuse()

    def register_processing_time_timer(self, timestamp: int) -> None:
        raise self._refuse()

    def delete_event_time_timer(self, timestamp: int) -> None:
        raise self._refuse()

    def delete_processing_time_timer(self, timestamp: int) -> None:
        raise self._refuse()

    def _refuse(self) -> TypeError:
        return TypeError(f"there are no timers here: {self._why}")


class KeyedTimerService(ReadOnlyTimerService):
    """The timers of the current key."""

    def __init__(self, setup: OperatorSetup, backend: KeyedStateBackend) -> None:
        super().__init__(setup, backend, "")
        self._backend = backend
        self._has_on_timer = setup.parameters.get("timers") is not False
        """Whether the function has an `on_timer`: otherwise a timer has no effect, and none is stored."""
        self._held_by: str | None = setup.parameters.get("event_time_held_by")
        self.event_time: TimerTable = backend.timer_table("~event-time")
        self.processing_time: TimerTable = backend.timer_table("~processing-time")

    def current_watermark(self) -> int:
        return self._backend.watermark_for(self._backend.current_key)

    def register_event_time_timer(self, timestamp: int) -> None:
        if self._held_by is not None:
            raise ValueError(
                f"no timer of event time would ever fire: one of the streams before this function comes from"
                f" {self._held_by}, which has no watermark strategy: call assign_timestamps_and_watermarks on it"
            )
        if self._has_on_timer:
            self.event_time.register(self._backend.current_key, timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        if self._has_on_timer and self._backend.clock != MAX_WATERMARK:
            self.processing_time.register(self._backend.current_key, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self.event_time.delete(self._backend.current_key, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self.processing_time.delete(self._backend.current_key, timestamp)


class FunctionContext(OnTimerContext[Any]):
    """The context of the current record or timer. Its public context type says what a function may use."""

    timestamp: int = 0
    time_domain: str = ""
    current_key: Any = None

    def __init__(self, timer_service: TimerService, gathering: OutputCollector) -> None:
        self._timer_service = timer_service
        self._gathering = gathering

    @property
    def timer_service(self) -> TimerService:
        return self._timer_service

    def output(self, tag: OutputTag[X], value: X) -> None:
        self._gathering.add_side(tag.name, self.timestamp, value)
