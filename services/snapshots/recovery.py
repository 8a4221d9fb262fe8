"""Start-up from the newest snapshot that is fit for it; what follows it in the log is the tail.

A snapshot that is torn, another cluster's, of other types of states, newer than the log, or of another log of the same
name is set aside, with one warning that names it and says why, and the next older one is tried; without any, the log is
read from its first event. Where the log's head is gone, and no snapshot reaches over the gap, nothing can be rebuilt:
LogTruncated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from ...infra.logging_setup import logger
from ...infra.storage.errors import CheckpointError
from ..core.leadership import LeadershipState
from ..core.replica import Replica
from ..log import EventLog
from ..log.event_log import LogTruncated
from .snapshot_file import Header, Snapshot, UnusableSnapshot
from .store import SnapshotStore

_log = logger(__name__)
_LOG_TIMEOUT_S = 1.0
T = TypeVar("T")


class SnapshotOfOtherLog(UnusableSnapshot):
    """The snapshot was not taken of this log."""


def restore_newest(
    replica: Replica, log: EventLog, store: SnapshotStore, *, at_most: int | None = None
) -> Header | None:
    """Puts the replica, in which nothing was folded yet, behind the newest fit snapshot; None where there is none.

    `at_most`: those of higher offsets are not looked at. Raises LogUnavailable; LogTruncated where the log begins
    behind the event that follows the snapshot.
    """
    found = _newest(log, store, at_most, lambda snapshot: snapshot.restore(replica), _log.warning)
    return None if found is None else found[0]


def read_newest_leadership(log: EventLog, store: SnapshotStore) -> tuple[LeadershipState, int]:
    """As `read_newest_client_view`, without the configuration."""
    leadership, _, start = read_newest_client_view(log, store)
    return leadership, start


def read_newest_client_view(
    log: EventLog, store: SnapshotStore
) -> tuple[LeadershipState, Mapping[str, str], int]:
    """Who leads and the cluster's configuration, as the newest fit snapshot has them, and the offset from which the
    log tells the rest; from the start where there is none. Clients are not told of snapshots that are not fit.
    Raises as `restore`."""

    def read(snapshot: Snapshot) -> tuple[LeadershipState, Mapping[str, str]]:
        return snapshot.read_leadership(), snapshot.read_configuration()

    found = _newest(log, store, None, read, lambda *_, **__: None)
    return (LeadershipState(), {}, 0) if found is None else (*found[1], found[0].offset + 1)


def _newest(
    log: EventLog,
    store: SnapshotStore,
    at_most: int | None,
    use: Callable[[Snapshot], T],
    warn: Callable[..., object],
) -> tuple[Header, T] | None:
    end = log.end()
    try:
        offsets = store.offsets()
    except CheckpointError as error:
        warn("no snapshots: the log is read from its start", error=str(error))
        return None
    for offset in offsets:
        if at_most is not None and offset > at_most:
            continue
        try:
            if offset >= end:
                raise _newer(log, end)
            snapshot = store.read(offset)
            _check_same_event(snapshot.header, log)
            return snapshot.header, use(snapshot)
        except (UnusableSnapshot, CheckpointError) as error:
            warn("set a snapshot aside", snapshot=store.uri_of(offset), reason=str(error))
    return None


def check_same_log(header: Header, log: EventLog) -> None:
    """Raises OfAnotherLog where the snapshot with this header was taken of another log; LogUnavailable; LogTruncated
    where the log begins behind the event that follows the snapshot."""
    end = log.end()
    if header.offset >= end:
        raise _newer(log, end)
    _check_same_event(header, log)


def _newer(log: EventLog, end: int) -> SnapshotOfOtherLog:
    return SnapshotOfOtherLog(f"it is newer than {log.topic}, which ends before offset {end}")


def _check_same_event(header: Header, log: EventLog) -> None:
    """Raises OfAnotherLog where the log holds another event there; LogTruncated."""
    try:
        tail = log.tail(header.offset)
    except LogTruncated:
        # Nothing is left to compare. It must go on behind the snapshot at least.
        log.tail(header.offset + 1).close()
        return
    try:
        while tail.position <= header.offset:
            found = tail.poll(_LOG_TIMEOUT_S)
            if found:
                # Ids are derived: two logs that begin in the same way have the same ones, but not at the same time.
                there = found[0].header
                if found[0].offset == header.offset and (there.event_id, there.time) == (
                    header.event_id,
                    header.time,
                ):
                    return
                break
    finally:
        tail.close()
    raise SnapshotOfOtherLog(
        f"{log.topic} holds another event at offset {header.offset}: it is of another log"
    )
