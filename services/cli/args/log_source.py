"""The options of the history commands: which log to read, and which offset or time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_progress
from .common_options import ClusterOptions

if TYPE_CHECKING:
    from ...configuration import Configuration
    from ...history.log_source import LogSource

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Read the history from a file that `tailrace log export` wrote, instead of from a cluster.",
    ),
]
PLACE = "OFFSET|TIME"


def check_place(text: str | None) -> str | None:
    """Returns `text` if it is an offset or time. Raises BadParameter before the command looks for a cluster."""
    if text is not None:
        from ...history.log_position import InvalidPosition, LogPosition

        try:
            LogPosition.parse(text)
        except InvalidPosition as error:
            raise typer.BadParameter(str(error)) from None
    return text


At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar=PLACE,
        callback=check_place,
        help="The state after this offset or time: 2026-11-22T08:30, 08:30:05 (today), -10m (10 minutes ago). "
        "\\[default: the last one]",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar=PLACE,
        callback=check_place,
        help="The first offset or time: 2026-11-22T08:30, 08:30 (today), -10m (10 minutes ago).",
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar=PLACE, callback=check_place, help="The last offset or time. \\[default: the last one]"
    ),
]


@dataclass(frozen=True, slots=True)
class LogOptions(ClusterOptions):
    """The options that name a log: of a cluster, or in a file."""

    file: File = None

    def find_place(self) -> Configuration | Path:
        """Returns the file, or the configuration of the cluster. Raises CommandFailure if both a file and a cluster are
        named, or if no cluster is known."""
        if self.file is None:
            return self.find_or_rest()
        named = {
            "--bootstrap-servers": self.bootstrap_servers,
            "--cluster-id": self.cluster_id,
            "--home": self.home,
        }
        for name, value in named.items():
            if value is not None:
                raise CommandFailure(
                    ExitCode.USAGE, f"--file and {name} exclude each other: a file needs no cluster"
                )
        return self.file

    def open(self, *, selections: bool = False) -> LogSource:
        """Opens the log; the caller closes it. `selections`: see `open_log_source`. Raises like `find_place`, and
        ArchiveError."""
        from ....infra.logging_setup import log_to_stderr
        from ...history.log_source import open_log_source

        log_to_stderr()
        source = open_log_source(self.find_place(), selections=selections)
        source.when_closed = _report_unreadable
        return source


DEFAULT_LOG = LogOptions()


def _report_unreadable(source: LogSource) -> None:
    lines = source.passed_over.format_lines()
    if lines is not None:
        print_progress(f"tailrace: {lines}")


def position_at(source: LogSource, place: str | None) -> int | None:
    """Returns the offset of a place; None: the end. Raises InvalidPosition, PositionOutOfRange."""
    from ...history.log_position import LogPosition

    return None if place is None else source.at(LogPosition.parse(place))


def position_range(source: LogSource, first: str | None, last: str | None) -> tuple[int, int]:
    """Returns (start, end): the offset of the first event, and the offset after the last event.

    Raises CommandFailure if the first is after the last; InvalidPosition, PositionOutOfRange.
    """
    from ...history.log_position import LogPosition, first_offset

    start = first_offset(source.log) if first is None else source.start(LogPosition.parse(first))
    end = source.log.end() if last is None else source.at(LogPosition.parse(last)) + 1
    if first is not None and last is not None and end < start:
        raise CommandFailure(
            ExitCode.USAGE, f"--from {first} (offset {start}) is after --to {last} (offset {end - 1})"
        )
    return start, end
