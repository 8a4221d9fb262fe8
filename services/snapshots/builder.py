"""Creates a snapshot: folds the log from the newest snapshot to an end offset, and writes the states.

A leader does not pause for it: it runs in a separate process that needs the log and the store only.
"""

from __future__ import annotations

import msgspec

from ..core.replica import Replica, tune_gc_for_replay
from ..log import EventLog
from ..log.event_log import read_to_end
from ..log.newer_release import UnreadableRecords
from ..roles import roles_at
from .fingerprint import schema_fingerprint
from .log_id import log_id_of
from .recovery import restore_newest
from .snapshot_file import Header, pack
from .store import SnapshotStore


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stored snapshot, as in SnapshotTaken. `fresh`: it was created by this call."""

    offset: int
    uri: str
    size: int
    schema_fingerprint: str
    state_hash: str
    fresh: bool = True


def all_roles() -> Replica:
    """Returns an empty replica of all roles that does not report illegal events."""
    replica = Replica(roles_at)
    replica.telling = False
    return replica


def create_snapshot(log: EventLog, store: SnapshotStore, end: int | None = None) -> SnapshotInfo | None:
    """Creates a snapshot of the log up to `end` (exclusive), or to its current end; None for a log without events.

    Raises LogUnavailable, LogTruncated, StorageError, NewerRelease.
    """
    tune_gc_for_replay()
    end = log.end() if end is None else min(end, log.end())
    replica = all_roles()
    base = restore_newest(replica, log, store, at_most=end - 1)
    log_id = "" if base is None else base.log_id
    last = None
    unread = UnreadableRecords(lambda: replica.leadership)
    for batch in read_to_end(log, replica.offset + 1, end=end, on_unreadable=unread):
        for record in unread.filter(batch):
            replica.apply(record)
        if base is None and last is None:
            log_id = log_id_of(batch[0])
        last = batch[-1]
    # Unreadable records at the end of the log are judged too.
    list(unread.filter(()))
    if last is None:
        if base is None:
            return None
        return _snapshot_info(base, store, store.size(base.offset), fresh=False)
    header, data = pack(
        replica,
        cluster=store.cluster,
        log_id=log_id,
        event_id=last.header.event_id,
        fingerprint=schema_fingerprint(),
        time=last.header.time,
    )
    store.write(header, data)
    store.retain(header.offset, None if base is None else base.offset)
    return _snapshot_info(header, store, len(data), fresh=True)


def _snapshot_info(header: Header, store: SnapshotStore, size: int, *, fresh: bool) -> SnapshotInfo:
    return SnapshotInfo(
        offset=header.offset,
        uri=store.uri_of(header.offset),
        size=size,
        schema_fingerprint=header.fingerprint,
        state_hash=header.state_hash,
        fresh=fresh,
    )
