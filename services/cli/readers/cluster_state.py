"""Replays the log of a cluster for commands, from the newest snapshot that has its history."""

from __future__ import annotations

from ....infra.logging_setup import log_to_stderr
from ...configuration import Configuration
from ...history import HistoryProjection
from ...history.job_history_store import JobHistoryStore
from ...history.log_source import open_log_source
from ...log.event_log import read_to_end


def replay_log(configuration: Configuration, fold: HistoryProjection | None = None) -> HistoryProjection:
    """Reads the log up to its current end; `fold`: continues after what that has read.

    Reports snapshots that cannot be used on stderr. Raises LogUnavailable, LogTruncated.
    """
    log_to_stderr()
    with open_log_source(configuration) as source:
        if fold is None:
            fold = HistoryProjection()
            histories = None if source.store is None else JobHistoryStore.from_configuration(configuration)
            for _ in fold.read(source.log, store=source.store, histories=histories):
                pass
            return fold
        for batch in read_to_end(source.log, fold.replica.offset + 1):
            for record in batch:
                fold.apply(record)
        return fold
