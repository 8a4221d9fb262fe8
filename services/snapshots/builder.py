"""Taking a snapshot: fold from the newest one to an end, and write what came of it.

Nobody who leads pauses for it: it is done beside, in a process of its own, with nothing but the log and the store.
"""

from __future__ import annotations

import msgspec

from ..core.replica import Replica, tune_gc_for_replay
from ..dispatcher import Dispatcher
from ..job_master import JobMaster
from ..log import EventLog
from ..log.event_log import read_to_end
from ..log.newer_release import UnreadableRecords
from ..resource_manager import ResourceManager
from ..task_executor import TaskExecutor
from .fingerprint import schema_fingerprint
from .recovery import restore_newest
from .snapshot_file import Header, pack
from .store import SnapshotStore


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that is there, as SnapshotTaken has it; `fresh`: it was not there before."""

    offset: int
    uri: str
    size: int
    schema_fingerprint: str
    state_hash: str
    fresh: bool = True


def all_roles() -> Replica:
    """A replica of all roles, in which nothing was folded yet; it does not tell of what is illegal."""
    replica = Replica([Dispatcher(), ResourceManager(), JobMaster(), TaskExecutor()])
    replica.telling = False
    return replica


def create_snapshot(log: EventLog, store: SnapshotStore, end: int | None = None) -> SnapshotInfo | None:
    """A snapshot of the log up to `end` (exclusive), or to the end that it has now; None for a log without events.

    Raises LogUnavailable, LogTruncated, StorageError, NewerRelease.
    """
    tune_gc_for_replay()
    end = log.end() if end is None else min(end, log.end())
    replica = all_roles()
    base = restore_newest(replica, log, store, at_most=end - 1)
    last = None
    unread = UnreadableRecords(lambda: replica.leadership)
    for batch in read_to_end(log, replica.offset + 1, end=end, on_unreadable=unread):
        for record in unread.filter(batch):
            replica.apply(record)
        last = batch[-1]
    # What could not be read at the end of the log is judged too.
    list(unread.filter(()))
    if last is None:
        if base is None:
            return None
        return _snapshot_info(base, store, store.size(base.offset), fresh=False)
    header, data = pack(
        replica,
        cluster=store.cluster,
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
