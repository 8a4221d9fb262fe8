"""Helpers for commands that read the state at an offset or time: the replica, and the formatting of its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....infra.sanitize import local_time
from .log_source import position_at

if TYPE_CHECKING:
    from ....schemas.event import Record
    from ...core.replica import Replica
    from ...history.log_source import LogSource


def replica_at(source: LogSource, place: str | None) -> Replica:
    """Returns the replica at OFFSET|TIME, or now. A long read prints its progress on stderr.

    Raises InvalidPosition, PositionOutOfRange, LogUnavailable, LogTruncated, ArchiveError.
    """
    from ...history import time_travel
    from ..render.progress import ProgressLine

    offset = position_at(source, place)
    with ProgressLine(f"reads {source.log.topic}") as progress:

        def on_progress(done: int, total: int) -> None:
            progress.total = total
            progress(done)

        return time_travel.replica_at(source, offset, on_progress)


def event_at(source: LogSource, offset: int) -> Record | None:
    """Returns the event at an offset; None if there is none."""
    from ...log.event_log import read_to_end

    if offset < 0:
        return None
    found = next(read_to_end(source.log, offset, end=offset + 1), None)
    return found[0] if found else None


def time_of(source: LogSource, offset: int) -> int | None:
    """Returns the time of the event at an offset, in microseconds since the epoch; None if there is none."""
    record = event_at(source, offset)
    return None if record is None else record.header.time


def format_moment(time: int | None) -> str:
    """Formats local date and time, to the millisecond; empty for None."""
    return "" if time is None else local_time(time, f"%Y-%m-%d %H:%M:%S.{time // 1000 % 1000:03}")
