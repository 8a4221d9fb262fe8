"""The watchdog reports a call that takes too long while it runs; a returned call is not reported."""

from __future__ import annotations

import threading
import time

import pytest
from polling import wait_until

from tailrace.pipelines.runtime.stream_task.output import watchdog as watchdog_module
from tailrace.pipelines.runtime.stream_task.output.watchdog import Watchdog


def test_hanging_call_is_reported() -> None:
    reports: list[str] = []
    noticed = threading.Event()

    def overdue(what: str) -> None:
        reports.append(what)
        noticed.set()

    watchdog = Watchdog(0.05, overdue)
    with watchdog.watch_call("one that returns"):
        pass
    with watchdog.watch_call("one that hangs"):
        assert noticed.wait(60)
    assert reports == ["one that hangs"]


def test_call_is_not_overdue_during_outage_of_kafka() -> None:
    reports: list[str] = []
    looks = 0
    back = threading.Event()

    def answers() -> bool:
        nonlocal looks
        looks += 1
        return back.is_set()

    watchdog = Watchdog(0.02, reports.append, answers, answering_s=0.1)
    with watchdog.watch_call("one that waits for Kafka"):
        wait_until(lambda: looks > 20)
        assert reports == []
        back.set()
        wait_until(lambda: reports)
    assert reports == ["one that waits for Kafka"]


def test_time_while_process_is_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a SIGSTOP: the clock has advanced without checks."""
    reports: list[str] = []
    looks = 0
    ahead = 0.0

    def answers() -> bool:
        nonlocal looks
        looks += 1
        return True

    class Clock:
        sleep = staticmethod(time.sleep)

        @staticmethod
        def monotonic() -> float:
            return time.monotonic() + ahead

    monkeypatch.setattr(watchdog_module, "time", Clock)
    monkeypatch.setattr(watchdog_module, "_LOOKS_S", 0.01)
    watchdog = Watchdog(3600.0, reports.append, answers)
    with watchdog.watch_call("one that is stopped"):
        wait_until(lambda: looks > 3)
        ahead += 7200.0
        before = looks
        wait_until(lambda: looks > before + 5)
    assert reports == []
