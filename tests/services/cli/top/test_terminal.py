"""The screen on a terminal, as textual's pilot uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from polling import TIMEOUT_S
from textual.pilot import Pilot

from tailrace.services.cli.top.canvas import UNICODE
from tailrace.services.cli.top.event_player import EventPlayer, PlayerMode
from tailrace.services.cli.top.live_processes import LiveProcesses
from tailrace.services.cli.top.log_reader import LogReader
from tailrace.services.cli.top.terminal import TopApp

from ...snapshots.simulated_logs import LONG
from .recorded_views import create_player, open_log, read_views

SEED = LONG
Session = Callable[[Callable[[TopApp, Pilot[None]], Awaitable[None]]], None]


def shown(app: TopApp) -> list[str]:
    """What is on the terminal."""
    return [app.rectangle.render_line(y).text.rstrip() for y in range(app.size.height)]


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await pilot.pause()


@pytest.fixture
def session() -> Iterator[Session]:
    made = open_log(SEED)
    reader = LogReader(made, lambda: made)
    reader.start()

    def run(script: Callable[[TopApp, Pilot[None]], Awaitable[None]]) -> None:
        async def play() -> None:
            player: EventPlayer = create_player(reader)
            player.go_to("200")
            player.pause()
            app = TopApp(player, UNICODE)
            async with app.run_test(size=(100, 30)) as pilot:
                await until(pilot, lambda: player.status().mode is not PlayerMode.READING)
                await until(pilot, lambda: "offset 200 of" in shown(app)[0])
                await script(app, pilot)

        asyncio.run(play())

    yield run
    reader.stop()


def test_a_person_looks_around(session: Session) -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        assert "PAUSED" in shown(app)[0]
        await pilot.press("right")
        await until(pilot, lambda: "offset 201 of" in shown(app)[0])
        await pilot.press("g", *"100", "enter")
        await until(pilot, lambda: "offset 100 of" in shown(app)[0])
        job = read_views(SEED)[100].jobs[1].job
        await pilot.press("down", "enter")
        await until(pilot, lambda: job.job_id in shown(app)[1])
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: "Keys" in shown(app)[1])
        await pilot.press("escape", "slash", *"te-1", "enter")
        await until(pilot, lambda: "only what has 'te-1'" in shown(app)[1])
        await pilot.press("l")
        await until(pilot, lambda: "LIVE" in shown(app)[0])

    session(script)


def test_another_size_is_filled(session: Session) -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        for width, height in ((80, 24), (200, 60), (20, 5)):
            await pilot.resize_terminal(width, height)
            await until(pilot, lambda w=width: app.rectangle.render_line(0).cell_length == w)
            await until(pilot, lambda h=height: len(app.rectangle.lines) == h)

    session(script)


def test_q_ends_it(session: Session) -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)

    session(script)


@pytest.mark.parametrize("resized", [False, True])
def test_a_mistake_ends_the_screen_and_is_told_behind_it(session: Session, resized: bool) -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        def broken() -> LiveProcesses:
            raise ZeroDivisionError

        app.presence = broken
        if resized:
            await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: not app.is_running)
        assert isinstance(app.error, ZeroDivisionError)

    session(script)
