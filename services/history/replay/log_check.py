"""Replays a log, or a part of it, and compares the roles' decisions with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ....schemas.event import Record
from ...core.replica import tune_gc_for_replay
from ...log.event_log import LogTruncated, read_to_end
from ...snapshots.builder import all_roles
from ...snapshots.recovery import restore_newest
from ..log_position import first_offset
from ..log_source import LogSource
from ..time_travel import replica_at
from .decision_check import DecisionCheck, ReplayCounts
from .decision_difference import DecisionDifference

_EARLIER_EVENTS: Final = 10_000
"""Leaders may decide so far behind the log: so many events before a part are replayed too."""


class LogCheck(msgspec.Struct):
    """A replay: the check after the last event, and the differences; `is_complete`: there are no more of them."""

    check: DecisionCheck
    differences: list[DecisionDifference]
    is_complete: bool


def check_log(
    source: LogSource,
    end: int,
    most: int,
    *,
    start: int | None = None,
    only_replays: bool = False,
    on_progress: Callable[[int], object] | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> LogCheck:
    """Replays up to `end` (exclusive), and compares all decisions until there are `most` differences, or `is_over`.

    `start`: only decisions in events from this offset on are compared; None: in all that the log has. `only_replays`:
    compares nothing. `on_progress` gets the offset that is reached. Raises LogTruncated, LogUnavailable, ArchiveError.
    """
    tune_gc_for_replay()
    if start is None:
        replica = all_roles()
        if first_offset(source.log) > 0 and (
            source.store is None or restore_newest(replica, source.log, source.store) is None
        ):
            raise LogTruncated(source.log.topic, 0, first_offset(source.log))
    else:
        replica = replica_at(source, max(start - _EARLIER_EVENTS, 0) - 1)
    check = DecisionCheck(replica)
    process: Callable[[Record], list[DecisionDifference]] = check.fold if only_replays else check.check_record
    found: list[DecisionDifference] = []
    is_before = start is not None
    for batch in read_to_end(source.log, replica.offset + 1, end=end):
        for record in batch:
            if is_before and start is not None and record.offset >= start:
                check.counts, found, is_before = ReplayCounts(), [], False
            found += process(record)
        if on_progress is not None:
            on_progress(batch[-1].offset + 1)
        if is_over() or (len(found) >= most and not is_before):
            return LogCheck(check, found[:most], False)
    check.finish()
    return LogCheck(check, found[:most], len(found) <= most)
