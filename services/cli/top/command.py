"""`tailrace top`: shows the cluster as a live screen on a terminal, and as one printed screen elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import Format, Output
from ..args.log_source import DEFAULT_LOG, PLACE, LogOptions, position_at
from ..exit_codes import CommandFailure, ExitCode
from ..render.formatting import format_count
from ..render.job_ids import shorten_job_ids
from ..render.output import print_json, print_progress, print_result

if TYPE_CHECKING:
    from .event_player import OpenLog, PlayerStatus
    from .live_processes import LiveProcesses
    from .view import View

_MIN_SPEED, _MAX_SPEED = 0.01, 100_000.0
_PAUSE_S = 0.01
_TIMEOUT_S = 5.0
"""A log without an answer for this time is unreachable."""


def top(
    replay_from: Annotated[
        str | None,
        typer.Option(
            "--replay-from",
            metavar=PLACE,
            help="Play the history from this offset or time: 2026-11-22T08:30, 08:30:05 (today), -10m (ago).",
        ),
    ] = None,
    speed: Annotated[
        float,
        typer.Option("--speed", help="The speed of the playback: 10 plays ten times as fast as it happened."),
    ] = 1.0,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Print one screen as text, and exit. This is the default without a terminal."
        ),
    ] = False,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII only.")] = False,
    output: Output = Format.TEXT,
    log_options: LogOptions = DEFAULT_LOG,
) -> int:
    """Watch a cluster live, or play its history: masters, TaskExecutors, slots, jobs, checkpoints, events.

    Press ? for the keys. Without --replay-from, a file plays from its start; --once prints its end. -o json prints the
    data of one screen.
    """
    if not _MIN_SPEED <= speed <= _MAX_SPEED:
        raise CommandFailure(
            ExitCode.USAGE, f"--speed {speed:g} is not between {_MIN_SPEED:g} and {_MAX_SPEED:g}"
        )

    def reopen() -> OpenLog:
        return open_log(log_options)

    from ...history.log_position import LogExtent

    opened = reopen()
    ascii_only = ascii_only or not _is_unicode(sys.stdout.encoding)
    try:
        # Raises here what is wrong with the place or the cluster, before the screen opens.
        position_at(opened.source, replay_from)
        extent = LogExtent.from_log(opened.source.log)
    except BaseException:
        opened.source.close()
        raise
    # textual reads from the first and writes to the last.
    is_terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if once or output is Format.JSON or not is_terminal:
        _print(opened, replay_from, speed, output, ascii_only)
        return ExitCode.OK
    if replay_from is None and not opened.live and extent.end > extent.first:
        replay_from = str(extent.first)
    from ....infra.logging_setup import disable_logging
    from ...core.replica import tune_gc_for_replay
    from .app import TopApp
    from .event_player import EventPlayer
    from .live_processes import read_live_processes

    tune_gc_for_replay()
    # Log lines would be printed over the screen.
    disable_logging()
    player = EventPlayer(opened, reopen, speed=speed)
    configuration = opened.configuration
    app = TopApp(
        player,
        None if configuration is None else lambda: read_live_processes(configuration),
        ascii_only=ascii_only,
    )
    player.go_to(replay_from)
    player.start()
    try:
        # The mouse is left to the terminal, which selects and copies ids.
        app.run(mouse=False)
    finally:
        player.stop()
    if app.error is not None:
        raise app.error
    return ExitCode.INTERNAL if app.return_code else ExitCode.OK


def open_log(log_options: LogOptions) -> OpenLog:
    """Opens the log that the command line names. Raises like `LogOptions.open`."""
    from ...history.job_history_store import JobHistoryStore
    from ...history.log_source import LogSource
    from ...history.retention.archived_log import open_archived_log
    from ...snapshots.store import SnapshotStore
    from .event_player import OpenLog

    if log_options.file is not None:
        return OpenLog(log_options.open())
    found = log_options.find()
    log = open_archived_log(found, timeout_s=_TIMEOUT_S)
    source = LogSource(log, found.cluster_id, store=SnapshotStore.from_configuration(found))
    return OpenLog(source, JobHistoryStore.from_configuration(found), found)


def _is_unicode(encoding: str | None) -> bool:
    try:
        "■◧□…→×".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _print(opened: OpenLog, place: str | None, speed: float, output: Format, ascii_only: bool) -> None:
    from ....infra.logging_setup import log_to_stderr
    from ...core.replica import tune_gc_for_replay
    from .app import to_ascii
    from .live_processes import LiveProcesses, read_live_processes

    log_to_stderr()
    tune_gc_for_replay()
    view, status = _read(opened, place, speed)
    if output is Format.JSON:
        print_json(view)
        return
    processes = LiveProcesses()
    if opened.live and place is None and opened.configuration is not None:
        processes = read_live_processes(opened.configuration)
    text = format_screen(view, status, processes)
    print_result(to_ascii(text) if ascii_only else text)


def _read(opened: OpenLog, place: str | None, speed: float) -> tuple[View, PlayerStatus]:
    """Returns what a player shows at `place`, or at the end of the log. Raises CommandFailure."""
    from ..render.progress import ProgressLine
    from .event_player import EventPlayer, PlayerMode

    player = EventPlayer(opened, lambda: opened, speed=speed)
    player.go_to(place)
    player.pause()
    try:
        with ProgressLine(f"reads {opened.source.log.topic}", 100, "%") as progress:
            while player.shown[1].mode is PlayerMode.READING:
                if not player.step(0.0):
                    time.sleep(_PAUSE_S)
                status = player.shown[1]
                if player.failure is not None:
                    raise player.failure
                if status.notice is not None:
                    raise CommandFailure(ExitCode.NOT_FOUND, status.notice)
                progress(round(100 * status.progress))
    finally:
        player.stop()
    if status.unreadable:
        count = format_count(len(status.unreadable), "record")
        print_progress(f"skipped {count} that can't be read, the first at {status.unreadable[0]}")
    return player.shown


def format_screen(view: View, status: PlayerStatus, processes: LiveProcesses) -> str:
    """The screen as plain text, as wide and as high as the terminal, COLUMNS and LINES, or 120 x 40."""
    from io import StringIO

    from rich.console import Console
    from rich.table import Table

    from . import panels

    size = shutil.get_terminal_size((120, 40))
    console = Console(
        file=StringIO(), width=size.columns, color_system=None, no_color=True, legacy_windows=False
    )
    with console.capture() as capture:
        console.print(panels.title_bar(view, status))
        if warnings := panels.warnings(view, status):
            console.print(warnings)
        shown = shorten_job_ids(line.job.job_id for line in view.jobs)
        jobs = {
            line.job.job_id: panels.job_row(line, shown[line.job.job_id], status.now) for line in view.jobs
        }
        for title, columns, rows in (
            ("Masters", panels.MASTER_COLUMNS, panels.master_rows(view, processes)),
            (panels.executor_title(view), panels.EXECUTOR_COLUMNS, panels.executor_rows(view)),
            (panels.job_title(view, len(jobs)), panels.JOB_COLUMNS, jobs),
        ):
            console.rule(title, align="left", style="none")
            table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
            for i, column in enumerate(columns):
                # The id in the first column stays whole.
                widest = max((row[i].cell_len for row in rows.values()), default=0)
                table.add_column(
                    column, no_wrap=True, overflow="ellipsis", min_width=widest if i == 0 else None
                )
            for row in rows.values():
                table.add_row(*row)
            console.print(table)
        console.rule("Log", align="left", style="none")
    head = capture.get().splitlines()
    with console.capture() as capture:
        for line in view.log[-size.lines :]:
            console.print(panels.log_line(line, size.columns), soft_wrap=False)
    room = max(1, size.lines - 1 - len(head))
    return "\n".join(line.rstrip() for line in [*head, *capture.get().splitlines()[-room:]])
