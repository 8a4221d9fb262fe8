"""Simulated histories, and what a person would have seen behind each of their events."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from polling import PATIENCE_S

from tailrace.services.cli.top.event_player import Player
from tailrace.services.cli.top.log_reader import Opened, Reader
from tailrace.services.cli.top.view import View
from tailrace.services.cli.top.view_builder import Watch
from tailrace.services.history.log_source import Source
from tailrace.services.log.memory import MemoryEventLog

from ...snapshots.simulated_logs import LONG, history, log_of

SEEDS = (LONG, LONG + 1, LONG + 2)


def watched(name: str | int, offset: int | None = None) -> Watch:
    """One that was told a history, or its beginning up to an offset."""
    watch = Watch("sim")
    for record in history(name):
        if offset is None or record.offset <= offset:
            watch.tell(record)
    return watch


@functools.cache
def seen(name: str | int) -> dict[int, View]:
    """Offset -> the view, of one who looked behind every event."""
    watch = Watch("sim")
    found = {-1: watch.view()}
    for record in history(name):
        watch.tell(record)
        found[record.offset] = watch.view()
    return found


def opened(name: str | int | MemoryEventLog) -> Opened:
    """A live log."""
    return Opened(Source(name if isinstance(name, MemoryEventLog) else log_of(name), "sim"))


def player_of(reader: Reader, *, speed: float = 1.0) -> Player:
    return Player(reader, live=True, cluster="sim", speed=speed)


def until(player: Player, condition: Callable[[], bool], elapsed_s: float = 0.05) -> None:
    """Makes steps, each of which lets the virtual clock go on, until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"it never came to that: {player.status()}"
        player.step(elapsed_s, budget_s=0.005)
        time.sleep(0.0005)
