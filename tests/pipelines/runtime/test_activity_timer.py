"""The times of a task are those of its activities, and they sum to the time since its start. A task that waits for a
worker of Spark is busy."""

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


WORK = st.tuples(st.integers(0, 2), st.floats(0, 10), st.booleans())
"""The partition of a worker, how long it works, and whether it says so before."""


@given(st.lists(st.tuples(st.sampled_from(Activity), st.floats(0, 10), st.lists(WORK, max_size=3))))
def test_task_is_as_busy_as_its_thread_or_its_busiest_worker(
    steps: list[tuple[Activity, float, list[tuple[int, float, bool]]]],
) -> None:
    clock = Clock()
    timer = ActivityTimer(clock)
    timer.start()
    before = timer.read()
    for activity, seconds, works in steps:
        timer.switch(activity)
        for partition, _, is_announced in works:
            if is_announced:
                timer.workers.begin((0, partition))
        clock.now += seconds
        worked = dict.fromkeys(range(3), 0.0)
        for partition, part_s, _ in works:
            worked[partition] += min(part_s, seconds)
            timer.workers.add((0, partition), min(part_s, seconds))
        now = timer.read()
        is_idle = activity is Activity.IDLE
        most = min(max(worked.values()), seconds) if is_idle else 0.0
        busy = seconds if activity is Activity.BUSY else most
        assert math.isclose(now.busy_s - before.busy_s, busy, abs_tol=1e-6)
        assert math.isclose(now.measured_s - before.measured_s, seconds, abs_tol=1e-6)
        assert now.idle_s >= before.idle_s - 1e-9
        before = now


def test_task_is_busy_as_soon_as_a_worker_begins() -> None:
    clock = Clock()
    timer = ActivityTimer(clock)
    timer.start()
    timer.switch(Activity.IDLE)
    clock.now += 2
    timer.workers.begin((0, 3))
    clock.now += 5
    assert timer.read() == TaskActivity(busy_s=5.0, idle_s=2.0)
    clock.now += 1
    timer.workers.add((0, 3), 5.5)
    assert timer.read() == TaskActivity(busy_s=5.5, idle_s=2.5)
    timer.workers.begin((0, 3))
    timer.workers.end((0, 3))
    clock.now += 4
    assert timer.read() == TaskActivity(busy_s=5.5, idle_s=6.5)


def test_records_are_counted_until_now_only_while_nothing_is_processed() -> None:
    clock = Clock()
    timer = ActivityTimer(clock)
    timer.has_input = lambda: False
    timer.has_counted = lambda: True
    timer.start()
    timer.switch(Activity.IDLE)
    clock.now += 3
    assert timer.read().counted_s == 3
    timer.workers.begin((0, 0))
    clock.now += 3
    assert timer.read().counted_s == 3
    timer.workers.add((0, 0), 3)
    timer.switch(Activity.BUSY)
    clock.now += 1
    found = timer.read()
    assert (found.counted_s, found.counted_busy_s, found.busy_s) == (3, 0, 4)
    found = timer.read(is_count=True)
    assert (found.counted_s, found.counted_busy_s) == (7, 4)
