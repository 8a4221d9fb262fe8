"""The screen, driven by textual's pilot: its content, its keys, and its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace
from polling import TIMEOUT_S
from textual.pilot import Pilot
from textual.widgets import DataTable

from tailrace.services.cli.top.app import JobScreen, LogPanel, MainScreen, PanelTable, TopApp
from tailrace.services.cli.top.event_player import EventPlayer, PlayerMode, PlayerStatus
from tailrace.services.cli.top.live_processes import LiveProcesses
from tailrace.services.cli.top.view import LogLine, MasterView, TaskExecutorView, View

from ...snapshots.simulated_logs import LONG
from .recorded_views import open_player, read_views

SEED = LONG
HOSTILE = "evil\x1b[2J\nname \u202e 漢字 é [red]"
Script = Callable[[TopApp, Pilot[None]], Awaitable[None]]


class FixedPlayer(EventPlayer):
    """A player that always shows one view."""

    def __init__(self, view: View, status: PlayerStatus | None = None) -> None:
        self.error = None
        self.shown = view, status or PlayerStatus(mode=PlayerMode.LIVE, now=view.time, end=view.offset + 1)

    def submit(self, command: Callable[[], None]) -> None:
        """Does nothing."""


def screen_lines(app: TopApp) -> list[str]:
    """Returns the lines on the terminal."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


def shows(app: TopApp, *texts: str) -> bool:
    content = "\n".join(screen_lines(app))
    return all(text in content for text in texts)


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        app = pilot.app
        assert time.monotonic() < deadline, "\n".join(screen_lines(app)) if isinstance(app, TopApp) else ""
        await pilot.pause(0.02)


def run(app: TopApp, script: Script, size: tuple[int, int] = (100, 30)) -> None:
    async def play() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await script(app, pilot)

    asyncio.run(play())


def run_at(place: str, script: Script) -> None:
    """Runs a script on the screen of a real player that is paused at a position."""
    with open_player(SEED) as player:
        player.go_to(place)
        player.pause()
        player.start()

        async def wait(app: TopApp, pilot: Pilot[None]) -> None:
            await until(pilot, lambda: shows(app, "PAUSED", f"offset {place} of"))
            await script(app, pilot)

        run(TopApp(player), wait)


def test_keys_navigate_pages() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: shows(app, "Masters", "TaskExecutors", "Jobs", "Log", "Quit", "Filter"))
        await pilot.press("right")
        await until(pilot, lambda: shows(app, "offset 201 of"))
        await pilot.press("left", "left")
        await until(pilot, lambda: shows(app, "offset 199 of"))
        await pilot.press("g", *"100", "enter")
        await until(pilot, lambda: shows(app, "offset 100 of"))
        job = read_views(SEED)[100].jobs[1].job
        await pilot.press("down", "enter")
        await until(
            pilot,
            lambda: isinstance(app.screen, JobScreen) and shows(app, job.job_id, "Tasks", "Checkpoints"),
        )
        await until(pilot, lambda: app.screen.query_one(PanelTable).row_count > 0)
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: shows(app, "One event back", "Focus Previous"))
        await pilot.press("escape", "slash", *"te-1", "enter")
        await until(pilot, lambda: shows(app, "only what contains 'te-1'"))
        assert app.screen.query_one("#executors", PanelTable).row_count == 1
        await pilot.press("escape", "plus", "l")
        await until(pilot, lambda: shows(app, "LIVE") and not shows(app, "only what contains"))
        await pilot.press("plus")
        await until(pilot, lambda: shows(app, "live events have no speed"))

    run_at("200", script)


def test_tables_and_log_show_view() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        for place in (60, 300, 200):
            await pilot.press("g", *str(place), "enter")
            await until(pilot, lambda at=place: shows(app, f"offset {at} of"))
            view = read_views(SEED)[place]
            jobs = app.screen.query_one("#jobs", PanelTable)
            for i, line in enumerate(view.jobs):
                assert jobs.get_row_at(i)[0].plain == line.job.job_id
            assert jobs.row_count == len(view.jobs)
            last = f"{view.log[-1].offset} "
            log = app.screen.query_one(LogPanel)
            await until(pilot, lambda end=last, log=log: any(end in line.text for line in log.lines[-5:]))

    run_at("100", script)


def test_cursor_stays_on_its_job_when_rows_change() -> None:
    first, second = read_views(SEED)[200], read_views(SEED)[300]
    wanted = next(
        line.job.job_id for line in first.jobs[1:] if line.job.job_id in {j.job.job_id for j in second.jobs}
    )
    player = FixedPlayer(first)

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        jobs = app.screen.query_one("#jobs", PanelTable)
        await until(pilot, lambda: jobs.row_count == len(first.jobs))
        jobs.move_cursor(row=[line.job.job_id for line in first.jobs].index(wanted))
        for view in (second, first, second):
            player.shown = view, replace(player.shown[1], now=view.time)
            await until(pilot, lambda shown=view: jobs.row_count == len(shown.jobs))
            assert jobs.key == wanted

    run(TopApp(player), script)


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("size", [(80, 24), (160, 45), (20, 6)])
def test_control_characters_are_escaped(size: tuple[int, int], ascii_only: bool) -> None:
    (job, *_) = read_views(LONG)[300].jobs
    view = View(
        HOSTILE,
        offset=1,
        masters=(MasterView(HOSTILE, epoch=1),),
        taskexecutors=(TaskExecutorView(HOSTILE, HOSTILE, 2, 1),),
        jobs=(replace(job, job=replace(job.job, name=HOSTILE, job_id=HOSTILE)),),
        log=(LogLine(1, 0, HOSTILE, HOSTILE * 20, "t", mark="!!"),),
    )
    status = PlayerStatus(mode=PlayerMode.LIVE, now=0, notice=HOSTILE, trouble=HOSTILE, source=HOSTILE)

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        for _ in range(2):
            await until(pilot, lambda: any(screen_lines(app)))
            for line in screen_lines(app):
                assert line.isprintable()
                assert not ascii_only or line.isascii()
            await pilot.press("enter")

    run(TopApp(FixedPlayer(view, status), ascii_only=ascii_only), script, size)


def test_standby_and_dead_masters_are_shown() -> None:
    view = View(
        "sim",
        offset=9,
        masters=(MasterView("host:1", ("dispatcher",), 2, 7, 3), MasterView("host:0", since=1)),
    )
    processes = LiveProcesses(
        names={"host:1": "jobmanager-1", "host:2": "jobmanager-2"},
        running={"host:1": False, "host:2": True},
        contenders=("host:2", "host:3"),
    )

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        masters = app.screen.query_one("#masters", PanelTable)
        await until(pilot, lambda: masters.row_count == 4)
        assert [tuple(cell.plain for cell in masters.get_row_at(i)) for i in range(4)] == [
            ("jobmanager-1 host:1", "dispatcher, 2 jobs  is gone"),
            ("jobmanager-2 host:2", "stands by"),
            ("host:3", "stands by"),
            ("host:0", "led before (elected at offset 1)"),
        ]

    run(TopApp(FixedPlayer(view), lambda: processes), script)


def test_hundred_taskexecutors_and_thousand_jobs_can_be_scrolled() -> None:
    (job, *_) = read_views(LONG)[300].jobs
    view = View(
        "sim",
        offset=10,
        taskexecutors=tuple(TaskExecutorView(f"te-{i:03}", "", 4, i % 5) for i in range(100)),
        jobs=tuple(replace(job, job=replace(job.job, job_id=f"j{i}")) for i in range(1000)),
    )

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: app.screen.query_one("#jobs", DataTable).row_count == 1000)
        await pilot.press("end")
        await until(pilot, lambda: shows(app, "j999"))
        await pilot.press("slash", *"j500", "enter")
        await until(pilot, lambda: shows(app, "j500", "1 shown"))

    run(TopApp(FixedPlayer(view)), script)


def test_warnings_are_at_top() -> None:
    status = PlayerStatus(
        mode=PlayerMode.LIVE,
        now=0,
        trouble="memory.log can't be read",
        retries=True,
        unreadable=("offset 7: bad",),
    )

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await until(
            pilot, lambda: shows(app, "UNREACHABLE", "memory.log can't be read; tries again", "offset 7")
        )
        app.player.shown = view, PlayerStatus(mode=PlayerMode.PLAYING, now=0, speed=10, skipped=200_000_000)
        await until(pilot, lambda: shows(app, "PLAYING ×10", "skips 3m20 without events"))

    view = read_views(LONG)[60]
    run(TopApp(FixedPlayer(view, status)), script)


def test_key_q_exits() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)

    run(TopApp(FixedPlayer(View("sim"))), script)


@pytest.mark.parametrize("by_processes", [False, True])
def test_error_closes_screen_and_is_reported_after_it(by_processes: bool) -> None:
    def broken() -> LiveProcesses:
        raise ZeroDivisionError

    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        if not by_processes:
            app.player.error = ZeroDivisionError()
        await until(pilot, lambda: not app.is_running)
        assert isinstance(app.error, ZeroDivisionError)

    run(TopApp(FixedPlayer(View("sim")), broken if by_processes else None), script)


def test_first_page_is_cluster() -> None:
    async def script(app: TopApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: isinstance(app.screen, MainScreen))

    run(TopApp(FixedPlayer(View("sim"))), script)
