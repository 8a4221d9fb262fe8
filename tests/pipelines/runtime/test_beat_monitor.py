"""Who is silent for the timeout is given up, once; what stood still itself gives up nobody for that."""

from __future__ import annotations

import pytest

from tailrace.pipelines.runtime.task_runtime import beat_monitor
from tailrace.pipelines.runtime.task_runtime.beat_monitor import BeatMonitor


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(beat_monitor, "time", made)
    return made


def look(
    monitor: BeatMonitor[str], clock: Clock, seconds: float, beating: str = ""
) -> list[tuple[float, str]]:
    """Looks when it is due; `beating` are heard each time. When who was given up."""
    found = []
    end = clock.now + seconds
    while (due := monitor.due_s()) is not None and clock.now + due <= end:
        clock.now += due
        for each in beating:
            monitor.on_beat(each)
        found += [(clock.now, each) for each in monitor.find_silent()]
    return found


def test_the_silent_one_is_given_up_once_and_within_the_timeout(clock: Clock) -> None:
    monitor: BeatMonitor[str] = BeatMonitor(50.0)
    assert monitor.due_s() is None
    for each in "ab":
        monitor.watch(each)
    ((at, given_up),) = look(monitor, clock, 200.0, "a")
    assert given_up == "b"
    assert 35.0 <= at <= 50.0 - monitor.interval_s + 0.01
    monitor.forget("a")
    assert monitor.due_s() is None


def test_time_for_which_nobody_looked_hardly_counts(clock: Clock) -> None:
    monitor: BeatMonitor[str] = BeatMonitor(50.0)
    monitor.watch("a")
    clock.now += 1000.0
    assert monitor.find_silent() == []
    assert len(look(monitor, clock, 50.0)) == 1
