"""A peer that is silent for the timeout is reported once; a stall of the own process reports nobody."""

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
    """Checks whenever a check is due; `beating` peers send each time. Returns when which peer was reported."""
    results = []
    end = clock.now + seconds
    while (due := monitor.due_s()) is not None and clock.now + due <= end:
        clock.now += due
        for item in beating:
            monitor.on_beat(item)
        results += [(clock.now, element) for element in monitor.find_silent()]
    return results


def test_silent_peer_is_reported_once_within_timeout(clock: Clock) -> None:
    monitor: BeatMonitor[str] = BeatMonitor(50.0)
    assert monitor.due_s() is None
    for item in "ab":
        monitor.watch(item)
    ((at, given_up),) = look(monitor, clock, 200.0, "a")
    assert given_up == "b"
    assert 35.0 <= at <= 50.0 - monitor.interval_s + 0.01
    monitor.forget("a")
    assert monitor.due_s() is None


def test_time_without_checks_hardly_counts(clock: Clock) -> None:
    monitor: BeatMonitor[str] = BeatMonitor(50.0)
    monitor.watch("a")
    clock.now += 1000.0
    assert monitor.find_silent() == []
    assert len(look(monitor, clock, 50.0)) == 1
