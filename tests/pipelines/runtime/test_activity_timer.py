"""The times of a task are those of its activities, and they sum to the time since its start."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.protocol import TaskActivity
from tailrace.pipelines.runtime.records.buffers import MAX_WATERMARK, NO_WATERMARK
from tailrace.pipelines.runtime.stream_task.loop.activity_timer import Activity, ActivityTimer

STEPS = st.lists(st.tuples(st.sampled_from(Activity), st.floats(0, 1e6), st.booleans()))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@given(STEPS)
def test_times_are_those_of_activities(steps: list[tuple[Activity, float, bool]]) -> None:
    clock = Clock()
    timer = ActivityTimer(clock)
    timer.start()
    expected = dict.fromkeys(Activity, 0.0)
    for activity, seconds, reads in steps:
        timer.switch(activity)
        clock.now += seconds
        expected[activity] += seconds
        if reads:
            timer.read()
    found = timer.read()
    times = found.busy_s, found.idle_s, found.back_pressured_s
    assert all(
        math.isclose(time, expected[activity], abs_tol=1e-3)
        for time, activity in zip(times, Activity, strict=True)
    )
    assert math.isclose(sum(times), clock.now - 1000.0, abs_tol=1e-3)


@given(STEPS)
def test_times_never_fall(steps: list[tuple[Activity, float, bool]]) -> None:
    clock = Clock()
    timer = ActivityTimer(clock)
    timer.start()
    before = timer.read()
    for activity, seconds, _ in steps:
        timer.switch(activity)
        clock.now += seconds
        now = timer.read()
        assert now.busy_s >= before.busy_s
        assert now.idle_s >= before.idle_s
        assert now.back_pressured_s >= before.back_pressured_s
        before = now


def test_nothing_is_measured_before_start() -> None:
    clock = Clock()
    timer = ActivityTimer(clock)
    with timer.waiting_for_kafka():
        clock.now += 5
    assert timer.read() == TaskActivity()


def test_commit_without_more_input_is_no_back_pressure() -> None:
    clock = Clock()
    timer = ActivityTimer(clock)
    timer.start()
    timer.has_input = lambda: False
    with timer.waiting_for_kafka():
        clock.now += 5
    assert timer.read() == TaskActivity(idle_s=5.0)


def test_waiting_for_kafka_ends_with_error() -> None:
    clock = Clock()
    timer = ActivityTimer(clock)
    timer.start()
    try:
        with timer.waiting_for_kafka():
            clock.now += 5
            raise ValueError
    except ValueError:
        clock.now += 2
    assert timer.read() == TaskActivity(busy_s=2.0, back_pressured_s=5.0)


def test_event_time_is_missing_before_first_and_after_last() -> None:
    timer = ActivityTimer()
    for watermark, shown in ((NO_WATERMARK, None), (5, 5), (MAX_WATERMARK, None)):
        timer.watermark = watermark
        assert timer.read().watermark == shown
