"""Restores a replica from the newest usable snapshot; the rest of the log follows as the tail.

A snapshot is skipped, with one warning, if it is damaged, of another cluster, of other state types, newer than the log,
or of another log of the same name; then the next older one is tried. Without any the log is read from its first event.
If the head of the log is missing and no snapshot covers the gap, nothing can be restored: LogTruncated.
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
    """The snapshot was created of another log."""


def restore_newest(
    replica: Replica, log: EventLog, store: SnapshotStore, *, at_most: int | None = None
) -> Header | None:
    """Restores an empty replica from the newest usable snapshot; returns its header, or None if there is none.

    `at_most`: snapshots of higher offsets are skipped. Raises LogUnavailable; LogTruncated if the log starts after the
    event that follows the snapshot.
    """
    found = _newest(log, store, at_most, lambda snapshot: snapshot.restore(replica), _log.warning)
    if found is None:
        return None
    # The head of the log, which registers the schemas, may be deleted.
    log.follow(replica.leadership)
    return found[0]


def read_newest_leadership(
    log: EventLog, store: SnapshotStore, *, at_most: int | None = None
) -> tuple[LeadershipState, int]:
    """Like `read_newest_client_view`, without the configuration. `at_most`: snapshots of higher offsets are skipped."""
    leadership, _, start = read_newest_client_view(log, store, at_most=at_most)
    return leadership, start


def read_newest_client_view(
    log: EventLog, store: SnapshotStore, *, at_most: int | None = None
) -> tuple[LeadershipState, Mapping[str, str], int]:
    """Returns the leadership and the cluster's configuration from the newest usable snapshot, and the offset at
    which the log continues; from the start if there is none. Does not warn of unusable snapshots. Raises like
    `restore_newest`."""

    def read(snapshot: Snapshot) -> tuple[LeadershipState, Mapping[str, str]]:
        return snapshot.read_leadership(), snapshot.read_configuration()

    found = _newest(log, store, at_most, read, lambda *_, **__: None)
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
            warn("skipped an unusable snapshot", snapshot=store.uri_of(offset), reason=str(error))
    return None


def check_same_log(header: Header, log: EventLog) -> None:
    """Raises SnapshotOfOtherLog if the snapshot with this header was created of another log; LogUnavailable;
    LogTruncated if the log starts after the event that follows the snapshot."""
    end = log.end()
    if header.offset >= end:
        raise _newer(log, end)
    _check_same_event(header, log)


def _newer(log: EventLog, end: int) -> SnapshotOfOtherLog:
    return SnapshotOfOtherLog(f"it is newer than {log.topic}, which ends before offset {end}")


def _check_same_event(header: Header, log: EventLog) -> None:
    """Raises SnapshotOfOtherLog if the log has another event at that offset; LogTruncated."""
    try:
        tail = log.tail(header.offset)
    except LogTruncated:
        # Nothing is left to compare. The log must at least continue after the snapshot.
        log.tail(header.offset + 1).close()
        return
    try:
        while tail.position <= header.offset:
            found = tail.poll(_LOG_TIMEOUT_S)
            if found:
                # Ids are derived: two logs with the same beginning have equal ids, but not equal times.
                there = found[0].header
                if found[0].offset == header.offset and (there.event_id, there.time) == (
                    header.event_id,
                    header.time,
                ):
                    return
                break
    finally:
        tail.close()
    raise SnapshotOfOtherLog(f"{log.topic} has another event at offset {header.offset}: it is of another log")
