"""Simulated histories, and what a person would have seen behind each of their events."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from polling import TIMEOUT_S

from tailrace.services.cli.top.event_player import EventPlayer
from tailrace.services.cli.top.log_reader import LogReader, OpenLog
from tailrace.services.cli.top.view import View
from tailrace.services.cli.top.view_builder import ViewBuilder
from tailrace.services.history.log_source import LogSource
from tailrace.services.log.memory import MemoryEventLog

from ...snapshots.simulated_logs import LONG, create_log, history

SEEDS = (LONG, LONG + 1, LONG + 2)


def create_view_builder(name: str | int, offset: int | None = None) -> ViewBuilder:
    """One that was told a history, or its beginning up to an offset."""
    watch = ViewBuilder("sim")
    for record in history(name):
        if offset is None or record.offset <= offset:
            watch.apply(record)
    return watch


@functools.cache
def read_views(name: str | int) -> dict[int, View]:
    """Offset -> the view, of one who looked behind every event."""
    watch = ViewBuilder("sim")
    found = {-1: watch.view()}
    for record in history(name):
        watch.apply(record)
        found[record.offset] = watch.view()
    return found


def open_log(name: str | int | MemoryEventLog) -> OpenLog:
    """A live log."""
    return OpenLog(LogSource(name if isinstance(name, MemoryEventLog) else create_log(name), "sim"))


def create_player(reader: LogReader, *, speed: float = 1.0) -> EventPlayer:
    return EventPlayer(reader, live=True, cluster="sim", speed=speed)


def play_until(player: EventPlayer, condition: Callable[[], bool], elapsed_s: float = 0.05) -> None:
    """Makes steps, each of which lets the virtual clock go on, until something is so."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"it never came to that: {player.status()}"
        player.step(elapsed_s, budget_s=0.005)
        time.sleep(0.0005)
