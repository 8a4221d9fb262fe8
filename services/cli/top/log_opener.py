"""Finds the log that is to be shown, and finds it again where it had gone away: a Kafka may come back elsewhere."""

from __future__ import annotations

from pathlib import Path

from ...configuration import Configuration
from ...history.job_history_store import JobHistoryStore
from ...history.log_source import LogSource
from ...log.factory import open_event_log
from ...snapshots.store import SnapshotStore
from ..args.common_options import find_cluster
from ..args.log_source import find_source
from .log_reader import OpenLog

_TIMEOUT_S = 5.0
"""A log that does not answer for so long has gone away."""


class LogOpener:
    """What the command line says of where the log is."""

    def __init__(
        self, home: Path | None, bootstrap_servers: str | None, cluster_id: str | None, file: Path | None
    ) -> None:
        self._home = home
        self._bootstrap_servers = bootstrap_servers
        self._cluster_id = cluster_id
        self._file = file
        self.configuration: Configuration | None = None
        """Of a live cluster, as it was found last."""

    def open(self) -> OpenLog:
        """Raises what `find_source` does."""
        if self._file is not None:
            return OpenLog(find_source(self._home, self._bootstrap_servers, self._cluster_id, self._file))
        found = find_cluster(self._home, self._bootstrap_servers, self._cluster_id)
        self.configuration = found
        log = open_event_log(found, timeout=_TIMEOUT_S)
        return OpenLog(
            LogSource(log, found.cluster_id, store=SnapshotStore.from_configuration(found)),
            JobHistoryStore.from_configuration(found),
        )

    @property
    def description(self) -> str:
        """Where the log is, for people."""
        if self._file is not None:
            return self._file.name
        return "" if self.configuration is None else f"Kafka at {self.configuration.bootstrap_servers}"
