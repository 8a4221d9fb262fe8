"""Measures how a StreamTask spends its time: busy, idle, or waiting for Kafka (Flink's TaskIOMetricGroup).

It reads the clock when the task takes mail and when it commits, never for a single record.

Spark's workers run the functions at the head of the vertex, each for one partition, at the same time as the task thread
runs the others. A subtask is as busy as the busiest of these: its capacity is that of its slowest part. So the task is
busy, too, while it waits for input and a worker works longer than its thread does.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from enum import IntEnum

from ...common.protocol import TaskActivity
from ...records.buffers import MAX_WATERMARK, NO_WATERMARK
from .worker_times import Place, WorkerTimes


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
        self.has_counted: Callable[[], bool] = lambda: False
        """Whether the last report has all records that the task has taken."""
        self.workers = WorkerTimes(clock)
        self._reading = threading.Lock()
        self._read_times = (0.0, 0.0, 0.0)
        self._read_work: dict[Place, float] = {}
        self._waited_s = 0.0
        """The time of waiting for input in which a worker worked."""
        self._counted = (0.0, 0.0)
        """Until when all records are counted, and the time of work until then."""

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

    def read(self, *, is_count: bool = False) -> TaskActivity:
        """Returns the times until now, and the event time if there is one. Thread-safe. `is_count`: for
        a report that has all records that the task has taken."""
        with self._reading:
            state, watermark = self._state, self.watermark
            has_time = NO_WATERMARK < watermark < MAX_WATERMARK
            times = (0.0, 0.0, 0.0) if state is None else _times_at(state, self._clock())
            waited_s = self._waited_until(times)
            busy, idle, back_pressured = times[0] + waited_s, times[1] - waited_s, times[2]
            if is_count or (state is not None and self._has_nothing_to_count(state[0])):
                self._counted = sum(times), busy
            return TaskActivity(busy, idle, back_pressured, watermark if has_time else None, *self._counted)

    def _waited_until(self, times: tuple[float, float, float]) -> float:
        """Adds the time since the last call in which a worker worked longer than the task thread."""
        work = self.workers.read()
        longest = max(
            (seconds - self._read_work.get(place, 0.0) for place, seconds in work.items()), default=0.0
        )
        busy, idle = times[0] - self._read_times[0], times[1] - self._read_times[1]
        self._waited_s += min(idle, max(0.0, longest - busy))
        self._read_times = times
        self._read_work = {
            place: max(seconds, self._read_work.get(place, 0.0)) for place, seconds in work.items()
        }
        return self._waited_s

    def _has_nothing_to_count(self, activity: Activity) -> bool:
        return activity is Activity.IDLE and not self.workers.is_any_at_work and self.has_counted()


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
