"""Measures how a StreamTask spends its time: busy, idle, or waiting for Kafka (Flink's TaskIOMetricGroup).

It reads the clock when the task takes mail and when it commits, never for a single record.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from enum import IntEnum

from ...common.protocol import TaskActivity
from ...records.buffers import MAX_WATERMARK, NO_WATERMARK


class Activity(IntEnum):
    """The activities of a task; the values are indexes of the measured times."""

    BUSY = 0
    """It processes records, or prepares output."""
    IDLE = 1
    """It waits for input or for a time."""
    BACK_PRESSURED = 2
    """Input waits until Kafka has committed the task's output."""


class ActivityTimer:
    """The timer of one attempt: its task thread switches activities, any thread reads. It measures nothing before
    `start`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._state: tuple[Activity, float, tuple[float, float, float]] | None = None
        """The activity, since when, and the times before. One object, so that other threads read it whole."""
        self.watermark = NO_WATERMARK
        """The event time of the task's input (ms)."""
        self.has_input: Callable[[], bool] = lambda: True
        """Whether input waits for the task."""

    def start(self) -> None:
        """Begins to measure; the task is busy."""
        self._state = Activity.BUSY, self._clock(), (0.0, 0.0, 0.0)

    def switch(self, activity: Activity) -> None:
        """Ends the last activity and begins this one. Does nothing before `start`."""
        if self._state is not None:
            now = self._clock()
            self._state = activity, now, _times_at(self._state, now)

    @contextlib.contextmanager
    def waiting_for_kafka(self) -> Iterator[None]:
        """A context in which the task waits for Kafka; it is busy afterwards.

        A task that has processed its input would wait anyway: only if more waits, Kafka holds it up.
        """
        self.switch(Activity.BACK_PRESSURED if self.has_input() else Activity.IDLE)
        try:
            yield
        finally:
            self.switch(Activity.BUSY)

    def read(self) -> TaskActivity:
        """Returns the times until now, and the event time if there is one. Thread-safe."""
        state, watermark = self._state, self.watermark
        has_time = NO_WATERMARK < watermark < MAX_WATERMARK
        times = (0.0, 0.0, 0.0) if state is None else _times_at(state, self._clock())
        return TaskActivity(*times, watermark if has_time else None)


def _times_at(
    state: tuple[Activity, float, tuple[float, float, float]], now: float
) -> tuple[float, float, float]:
    activity, since, (busy, idle, back_pressured) = state
    passed = max(0.0, now - since)
    match activity:
        case Activity.BUSY:
            return busy + passed, idle, back_pressured
        case Activity.IDLE:
            return busy, idle + passed, back_pressured
        case Activity.BACK_PRESSURED:
            return busy, idle, back_pressured + passed
