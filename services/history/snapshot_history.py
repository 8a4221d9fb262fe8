"""Writes the JobHistory beside a snapshot of the log's state.

The process that takes a snapshot writes it after the snapshot. No master reads it. If the write fails, `tailrace list`
and similar commands still work, but read the whole log.
"""

from __future__ import annotations

from ...infra.logging_setup import logger
from ...infra.storage.errors import CheckpointError
from ..log import EventLog
from ..snapshots.builder import SnapshotInfo, create_snapshot
from ..snapshots.store import SnapshotStore
from .job_history_store import JobHistoryStore
from .projection import HistoryProjection

_log = logger(__name__)


def create_snapshot_with_history(
    log: EventLog,
    snapshots: SnapshotStore,
    histories: JobHistoryStore,
    end: int | None = None,
) -> SnapshotInfo | None:
    """Creates a snapshot and stores its history; a failure to store the history is a warning. Raises as
    `create_snapshot`."""
    taken = create_snapshot(log, snapshots, end)
    if taken is not None:
        try:
            store_history(log, snapshots, histories, taken.offset)
        except CheckpointError as error:
            _log.warning(
                "cannot store the job history beside a snapshot", snapshot=taken.uri, error=str(error)
            )
    return taken


def store_history(log: EventLog, snapshots: SnapshotStore, histories: JobHistoryStore, offset: int) -> None:
    """Stores the history up to an offset, and deletes the histories of snapshots that are gone.

    Stores nothing if the head of the log is gone and there is no older history. Raises LogUnavailable, LogTruncated,
    StorageError.
    """
    if offset not in histories.offsets():
        fold, event_id = HistoryProjection(), None
        for entry in fold.read(log, offset + 1, snapshots, histories):
            event_id = entry.record.header.event_id
        if fold.whole and event_id is not None and fold.replica.offset == offset:
            histories.write(offset, event_id, fold.past())
    histories.retain(snapshots.offsets())
