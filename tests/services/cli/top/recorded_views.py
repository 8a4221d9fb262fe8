"""Simulated histories, and the view of `tailrace top` after each event."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from polling import TIMEOUT_S

from tailrace.services.cli.top.event_player import EventPlayer, OpenLog, PlayerMode
from tailrace.services.cli.top.view import View
from tailrace.services.cli.top.view_builder import ViewBuilder
from tailrace.services.history.log_source import LogSource
from tailrace.services.log.memory import MemoryEventLog

from ...snapshots.simulated_logs import LONG, create_log, history

SEEDS = (LONG, LONG + 1, LONG + 2)


def create_view_builder(name: str | int, offset: int | None = None) -> ViewBuilder:
    """Returns a builder that has applied a history, or its prefix up to an offset."""
    builder = ViewBuilder("sim")
    for record in history(name):
        if offset is None or record.offset <= offset:
            builder.apply(record)
    return builder


@functools.cache
def read_views(name: str | int) -> dict[int, View]:
    """Returns by offset the view of a builder whose view is read after every event."""
    builder = ViewBuilder("sim")
    result = {-1: builder.view()}
    for record in history(name):
        builder.apply(record)
        result[record.offset] = builder.view()
    return result


def open_log(name: str | int | MemoryEventLog) -> OpenLog:
    """Returns a live log."""
    return OpenLog(LogSource(name if isinstance(name, MemoryEventLog) else create_log(name), "sim"))


@contextmanager
def open_player(
    log: str | int | MemoryEventLog, reopen: Callable[[], OpenLog] | None = None, *, speed: float = 1.0
) -> Iterator[EventPlayer]:
    """Returns a player of a live log, which the test steps."""
    opened = open_log(log)
    player = EventPlayer(opened, reopen or (lambda: opened), speed=speed, retry_s=0.01)
    try:
        yield player
    finally:
        player.stop()


def play_until(player: EventPlayer, condition: Callable[[], bool], elapsed_s: float = 0.05) -> None:
    """Steps the player, and the virtual clock with it, until the condition holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s: {player.status()}"
        player.step(elapsed_s, budget_s=0.005)
        time.sleep(0.0005)


def is_ready(player: EventPlayer) -> bool:
    return player.status().mode is not PlayerMode.READING


def go(player: EventPlayer, place: str | None) -> None:
    """Goes to a position, and waits until the player is there."""
    player.go_to(place)
    play_until(player, lambda: is_ready(player))
