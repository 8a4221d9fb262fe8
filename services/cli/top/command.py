"""`tailrace top`: shows the cluster as a live screen on a terminal, and as one printed screen elsewhere."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output
from ..args.log_source import PLACE, File
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_progress, print_result

if TYPE_CHECKING:
    from ...configuration import Configuration
    from ...log.event_log import Unreadable
    from .canvas import Glyphs
    from .live_processes import LiveProcesses
    from .log_reader import OpenLog
    from .view_builder import ViewBuilder

_SLOWEST, _FASTEST = 0.01, 100_000.0


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
    file: File = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Watch a cluster live, or play its history: masters, TaskExecutors, slots, jobs, checkpoints, events.

    Press ? for the keys. Without --replay-from, a file plays from its start; --once prints its end. -o json prints the
    data of one screen.
    """
    if not _SLOWEST <= speed <= _FASTEST:
        raise CommandFailure(
            ExitCode.USAGE, f"--speed {speed:g} is not between {_SLOWEST:g} and {_FASTEST:g}"
        )
    from .log_opener import LogOpener

    opener = LogOpener(home, bootstrap_servers, cluster_id, file)
    opened = opener.open()
    try:
        # textual reads from the one and writes to the last.
        terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
        if once or output is Format.JSON or not terminal:
            return _print(opened, opener.configuration, replay_from, speed, output, _glyphs(ascii_only))
        replay_from = _beginning(opened, replay_from)
    except BaseException:
        opened.source.close()
        raise
    from .terminal import show

    show(opener, opened, replay_from, speed, _glyphs(ascii_only))
    return ExitCode.OK


def _beginning(opened: OpenLog, place: str | None) -> str | None:
    """Returns where the playback starts; None: show the live end. Checks the place before the screen opens."""
    from ...history.log_position import LogExtent
    from ..args.log_source import position_at

    if place is not None:
        position_at(opened.source, place)
        # The reader thread opens its own index.
        opened.source.index.close()
    elif opened.live:
        # Raises LogUnavailable here if the cluster does not exist.
        opened.source.log.end()
    else:
        extent = LogExtent.from_log(opened.source.log)
        place = str(extent.first) if extent.end > extent.first else None
    return place


def _glyphs(ascii_only: bool) -> Glyphs:
    from .canvas import ASCII, glyphs_of

    return ASCII if ascii_only else glyphs_of(sys.stdout.encoding)


def _print(
    opened: OpenLog,
    configuration: Configuration | None,
    place: str | None,
    speed: float,
    output: Format,
    glyphs: Glyphs,
) -> int:
    import time

    from ....infra.logging_setup import log_to_stderr
    from .event_player import PlayerMode, PlayerStatus
    from .live_processes import LiveProcesses
    from .screen import draw
    from .ui_state import UiState

    log_to_stderr()
    with opened.source:
        watch, end = _read(opened, place)
    view = watch.view()
    if output is Format.JSON:
        import msgspec

        print_result(msgspec.json.encode(view).decode())
        return ExitCode.OK
    live = opened.live and place is None
    status = PlayerStatus(
        mode=PlayerMode.LIVE if live else PlayerMode.PAUSED if view.offset + 1 < end else PlayerMode.END,
        now=max(time.time_ns() // 1000, view.time or 0) if live else view.time,
        speed=speed,
        end=end,
    )
    presence = _presence(configuration) if live and configuration is not None else LiveProcesses()
    size = shutil.get_terminal_size((120, 40))
    lines = draw(view, UiState(), status, presence, size.columns, size.lines, glyphs).lines
    # The last line lists the keys.
    texts = [line.text for line in lines[:-1]]
    while texts and not texts[-1]:
        texts.pop()
    print_result("\n".join(texts))
    return ExitCode.OK


def _presence(configuration: Configuration) -> LiveProcesses:
    from .live_processes import read_live_processes

    return read_live_processes(configuration)


def _read(opened: OpenLog, place: str | None) -> tuple[ViewBuilder, int]:
    """Reads the log up to `place` or its end. Returns the view builder and the log's end offset."""
    from ...core.replica import tune_gc_for_replay
    from ...log.event_log import read_to_end
    from ..args.log_source import position_at
    from ..render.progress import ProgressLine
    from .log_reader import CONTEXT
    from .view_builder import ViewBuilder

    tune_gc_for_replay()
    source = opened.source
    end = source.log.end()
    target = position_at(source, place)
    until = end if target is None else target + 1
    watch = ViewBuilder(source.cluster)
    start = watch.begin(source.log, source.store, opened.histories, until - 1 - CONTEXT)
    if watch.offset >= until:
        raise CommandFailure(
            ExitCode.NOT_FOUND,
            f"the first events of {source.log.topic} are deleted: no state is known before offset {start}",
        )
    unreadable: list[Unreadable] = []
    with ProgressLine(f"reads {source.log.topic}", max(0, until - start)) as progress:
        for batch in read_to_end(source.log, start, end=until, on_unreadable=unreadable.append):
            for record in batch:
                watch.apply(record)
            progress(batch[-1].offset + 1 - start)
    if unreadable:
        first = unreadable[0]
        count = f"{len(unreadable)} record{'' if len(unreadable) == 1 else 's'}"
        print_progress(
            f"skipped {count} that can't be read, the first at offset {first.offset}: {first.reason}"
        )
    return watch, end
