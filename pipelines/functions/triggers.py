"""The triggers that are built in, by Flink's names.

They only use what a user's trigger can use, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Self

from .intervals import checked_count, interval_ms
from .state import ReducingStateDescriptor, ValueStateDescriptor
from .trigger import OnMergeContext, Trigger, TriggerContext, TriggerResult
from .window import TimeWindow

CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE
_NEXT: Final = ReducingStateDescriptor[int]("next", min, int)
"""The time of the window's periodic timer (ms)."""
_END_OF_TIME: Final = 2**63 - 1
_COUNT: Final = ReducingStateDescriptor[int]("count", int.__add__, int)


@dataclass(frozen=True)
class EventTimeTrigger(Trigger[Any]):
    """Fires when the watermark passes the end of the window, and again for each late record. The default for windows
    in event time."""

    early_ms: int | None = None
    late_ms: int | None = None

    @classmethod
    def create(cls) -> Self:
        """Returns the trigger."""
        return cls()

    def with_early_firings(
        self, every: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0
    ) -> Self:
        """Fires before the end of the window as well: this often in processing time, if records have arrived since."""
        return replace(self, early_ms=interval_ms("early firings", every, seconds, milliseconds))

    def with_late_firings(
        self, every: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0
    ) -> Self:
        """Fires for late records together, this often in processing time, instead of for each of them."""
        return replace(self, late_ms=interval_ms("late firings", every, seconds, milliseconds))

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, context: TriggerContext
    ) -> TriggerResult:
        is_late = window.max_timestamp <= context.current_watermark()
        if not is_late:
            context.register_event_time_timer(window.max_timestamp)
        interval = self.late_ms if is_late else self.early_ms
        if interval is not None:
            self._schedule(interval, context)
        elif is_late:
            return FIRE
        return CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        has_waiting = self._unschedule(context)
        # At the end of the lateness, only for late records that still wait.
        return FIRE if time == window.max_timestamp or has_waiting else CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        upcoming = context.get_partitioned_state(_NEXT)
        if upcoming.get() != time:
            return CONTINUE
        upcoming.clear()
        has_ended = context.current_processing_time() == _END_OF_TIME
        # At the end of the input the firing at the end of the window follows.
        return CONTINUE if has_ended and window.max_timestamp > context.current_watermark() else FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        if window.max_timestamp > context.current_watermark():
            context.register_event_time_timer(window.max_timestamp)
        if self.early_ms is not None or self.late_ms is not None:
            _merge_processing_time(context)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.delete_event_time_timer(window.max_timestamp)
        self._unschedule(context)

    def _schedule(self, interval: int, context: TriggerContext) -> None:
        upcoming = context.get_partitioned_state(_NEXT)
        if upcoming.get() is None:
            now = context.current_processing_time()
            time = min(now - now % interval + interval, _END_OF_TIME)
            upcoming.add(time)
            context.register_processing_time_timer(time)

    def _unschedule(self, context: TriggerContext) -> bool:
        """Deletes the timer of an early or late firing; returns whether there was one."""
        return (self.early_ms is not None or self.late_ms is not None) and _clear_processing_time(context)

    def __str__(self) -> str:
        parts = [
            f"{name} {ms} ms"
            for name, ms in (("early", self.early_ms), ("late", self.late_ms))
            if ms is not None
        ]
        return f"EventTimeTrigger({', '.join(parts)})"


@dataclass(frozen=True)
class ProcessingTimeTrigger(Trigger[Any]):
    """Fires when the clock passes the end of the window. The default for windows in processing time."""

    @classmethod
    def create(cls) -> Self:
        """Returns the trigger."""
        return cls()

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, context: TriggerContext
    ) -> TriggerResult:
        context.register_processing_time_timer(window.max_timestamp)
        return CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        return FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        if window.max_timestamp > context.current_processing_time():
            context.register_processing_time_timer(window.max_timestamp)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.delete_processing_time_timer(window.max_timestamp)


@dataclass(frozen=True)
class ContinuousEventTimeTrigger(Trigger[Any]):
    """Fires at each multiple of the interval in event time until the end of the window, there, and for each late
    record."""

    interval_ms: int

    @classmethod
    def of(cls, interval: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0) -> Self:
        """Returns a trigger with that interval, a millisecond or more. Raises ValueError."""
        return cls(interval_ms("interval of a trigger", interval, seconds, milliseconds))

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, context: TriggerContext
    ) -> TriggerResult:
        if window.max_timestamp <= context.current_watermark():
            return FIRE
        context.register_event_time_timer(window.max_timestamp)
        if context.get_partitioned_state(_NEXT).get() is None:
            self._schedule(timestamp - timestamp % self.interval_ms, window, context)
        return CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        if time == window.max_timestamp:
            return FIRE
        upcoming = context.get_partitioned_state(_NEXT)
        if upcoming.get() != time:
            return CONTINUE
        upcoming.clear()
        self._schedule(time, window, context)
        return FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        if window.max_timestamp > context.current_watermark():
            context.register_event_time_timer(window.max_timestamp)
        context.merge_partitioned_state(_NEXT)
        time = context.get_partitioned_state(_NEXT).get()
        if time is not None:
            context.register_event_time_timer(time)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.delete_event_time_timer(window.max_timestamp)
        upcoming = context.get_partitioned_state(_NEXT)
        time = upcoming.get()
        if time is not None:
            context.delete_event_time_timer(time)
            upcoming.clear()

    def _schedule(self, time: int, window: TimeWindow, context: TriggerContext) -> None:
        following = min(time + self.interval_ms, window.max_timestamp)
        context.get_partitioned_state(_NEXT).add(following)
        context.register_event_time_timer(following)

    def __str__(self) -> str:
        return f"ContinuousEventTimeTrigger({self.interval_ms} ms)"


@dataclass(frozen=True)
class ContinuousProcessingTimeTrigger(Trigger[Any]):
    """Fires at each multiple of the interval in processing time, and at the end of a window in processing time."""

    interval_ms: int

    @classmethod
    def of(cls, interval: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0) -> Self:
        """Returns a trigger with that interval, a millisecond or more. Raises ValueError."""
        return cls(interval_ms("interval of a trigger", interval, seconds, milliseconds))

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, context: TriggerContext
    ) -> TriggerResult:
        if context.get_partitioned_state(_NEXT).get() is None:
            self._schedule(window, context)
        return CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        upcoming = context.get_partitioned_state(_NEXT)
        if upcoming.get() != time:
            return CONTINUE
        upcoming.clear()
        if time != window.max_timestamp:
            self._schedule(window, context)
        return FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        _merge_processing_time(context)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        _clear_processing_time(context)

    def _schedule(self, window: TimeWindow, context: TriggerContext) -> None:
        # From now: after a pause it does not fire for each multiple that has passed.
        now = context.current_processing_time()
        # A window in event time may have ended long ago.
        limit = window.max_timestamp if now < window.max_timestamp else _END_OF_TIME
        following = min(now - now % self.interval_ms + self.interval_ms, limit)
        context.get_partitioned_state(_NEXT).add(following)
        context.register_processing_time_timer(following)

    def __str__(self) -> str:
        return f"ContinuousProcessingTimeTrigger({self.interval_ms} ms)"


@dataclass(frozen=True)
class CountTrigger(Trigger[Any]):
    """Fires whenever so many records have been added to the window since it last fired."""

    count: int

    @classmethod
    def of(cls, count: int) -> Self:
        """Returns the trigger for 1 or more records. Raises ValueError."""
        return cls(checked_count("count of a CountTrigger", count, 1))

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, context: TriggerContext
    ) -> TriggerResult:
        counted = context.get_partitioned_state(_COUNT)
        before = counted.get() or 0
        if before + 1 < self.count:
            counted.add(1)
            return CONTINUE
        counted.clear()
        return FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        context.merge_partitioned_state(_COUNT)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.get_partitioned_state(_COUNT).clear()

    def __str__(self) -> str:
        return f"CountTrigger({self.count})"


@dataclass(frozen=True)
class PurgingTrigger(Trigger[Any]):
    """Removes the records of the window whenever the other trigger fires: each firing has new records only."""

    nested: Trigger[Any]

    @classmethod
    def of(cls, nested: Trigger[Any]) -> Self:
        """Returns the trigger. Raises ValueError."""
        if not isinstance(nested, Trigger):
            raise ValueError(f"a PurgingTrigger is one of another trigger, not of {nested!r}")
        return cls(nested)

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, context: TriggerContext
    ) -> TriggerResult:
        return _purging(self.nested.on_element(element, timestamp, window, context))

    def on_event_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        return _purging(self.nested.on_event_time(time, window, context))

    def on_processing_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        return _purging(self.nested.on_processing_time(time, window, context))

    def can_merge(self) -> bool:
        return self.nested.can_merge()

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        self.nested.on_merge(window, context)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        self.nested.clear(window, context)

    def __str__(self) -> str:
        return f"PurgingTrigger({self.nested})"


@dataclass(frozen=True)
class NeverTrigger(Trigger[Any]):
    """Never fires. The default for GlobalWindows."""

    @classmethod
    def create(cls) -> Self:
        """Returns the trigger."""
        return cls()

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, context: TriggerContext
    ) -> TriggerResult:
        return CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None: ...

    def clear(self, window: TimeWindow, context: TriggerContext) -> None: ...


@dataclass(frozen=True)
class DeltaTrigger(Trigger[Any]):
    """Fires when a record differs from the one that last fired by more than the threshold."""

    threshold: float
    delta: Callable[[Any, Any], float]
    element_type: Any = None

    @classmethod
    def of(cls, threshold: float, delta: Callable[[Any, Any], float], element_type: object = None) -> Self:
        """Returns the trigger. `delta(former, present)` returns the difference of two records; `element_type`: that of
        the records, which are stored; None: pickled."""
        return cls(threshold, delta, element_type)

    def on_element(
        self, element: Any, timestamp: int, window: TimeWindow, context: TriggerContext
    ) -> TriggerResult:
        last = context.get_partitioned_state(self._last)
        former = last.value()
        if former is None:
            last.update(element)
        elif self.delta(former, element) > self.threshold:
            last.update(element)
            return FIRE
        return CONTINUE

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.get_partitioned_state(self._last).clear()

    @property
    def _last(self) -> ValueStateDescriptor[Any]:
        return ValueStateDescriptor[Any]("last", self.element_type)

    def __str__(self) -> str:
        return f"DeltaTrigger({self.threshold})"


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result is TriggerResult.FIRE else result


def _merge_processing_time(context: OnMergeContext) -> None:
    """Registers the next firing in processing time of the merged windows."""
    context.merge_partitioned_state(_NEXT)
    time = context.get_partitioned_state(_NEXT).get()
    if time is not None:
        context.register_processing_time_timer(time)


def _clear_processing_time(context: TriggerContext) -> bool:
    """Deletes the timer of the next firing in processing time; returns whether there was one."""
    upcoming = context.get_partitioned_state(_NEXT)
    time = upcoming.get()
    if time is not None:
        context.delete_processing_time_timer(time)
        upcoming.clear()
    return time is not None
