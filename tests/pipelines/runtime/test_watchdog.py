"""A call that lasts too long is noticed while it lasts; one that has returned is not."""

from __future__ import annotations

import threading

from tailrace.pipelines.runtime.stream_task.watchdog import Watchdog


def test_a_call_that_does_not_return_is_told_of() -> None:
    told: list[str] = []
    noticed = threading.Event()

    def overdue(what: str) -> None:
        told.append(what)
        noticed.set()

    watchdog = Watchdog(0.05, overdue)
    with watchdog.watching("one that returns"):
        pass
    with watchdog.watching("one that hangs"):
        assert noticed.wait(60)
    assert told == ["one that hangs"]
