"""Replays the log of a cluster for commands, from the newest snapshot that has its history."""

from __future__ import annotations

from ....infra.logging_setup import log_to_stderr
from ...configuration import Configuration
from ...history import HistoryProjection
from ...history.job_history_store import JobHistoryStore
from ...history.retention.archived_log import open_archived_log
from ...log.event_log import read_to_end
from ...snapshots.store import SnapshotStore


def replay_log(configuration: Configuration, fold: HistoryProjection | None = None) -> HistoryProjection:
    """Reads the log up to its current end; `fold`: continues after what that has read.

    Reports snapshots that cannot be used on stderr. Raises LogUnavailable, LogTruncated.
    """
    log_to_stderr()
    log = open_archived_log(configuration, timeout_s=10.0)
    try:
        if fold is None:
            fold = HistoryProjection()
            store = SnapshotStore.from_configuration(configuration)
            histories = JobHistoryStore.from_configuration(configuration)
            for _ in fold.read(log, store=store, histories=histories):
                pass
            return fold
        for batch in read_to_end(log, fold.replica.offset + 1):
            for record in batch:
                fold.apply(record)
        return fold
    finally:
        log.close()
