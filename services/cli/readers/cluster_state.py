"""Replays the log of a cluster for commands, from the newest snapshot that has its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...configuration import Configuration
    from ...history import HistoryProjection


def replay_log(configuration: Configuration) -> HistoryProjection:
    """All that the log tells now; people are told on stderr of snapshots that are not fit. Raises LogUnavailable."""
    from ....infra.logging_setup import log_to_stderr
    from ...history import HistoryProjection
    from ...history.job_history_store import JobHistoryStore
    from ...log.factory import open_event_log
    from ...snapshots.store import SnapshotStore

    log_to_stderr()
    fold, log = HistoryProjection(), open_event_log(configuration, timeout=10.0)
    snapshots, histories = (
        SnapshotStore.from_configuration(configuration),
        JobHistoryStore.from_configuration(configuration),
    )
    for _ in fold.read(log, store=snapshots, histories=histories):
        pass
    return fold
