"""Archives of simulated logs, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tailrace.infra.storage.storage import Storage
from tailrace.services.history.retention.archived_log import ArchivedLog
from tailrace.services.history.retention.archiver import archive_log, archive_of
from tailrace.services.history.retention.log_archive import ClusterArchive, LogArchive
from tailrace.services.log.memory import MemoryEventLog

CLUSTER = "c1"


def create_archive(directory: Path) -> ClusterArchive:
    """Returns the archive in a directory."""
    return ClusterArchive(Storage.open(str(directory / "archive")), CLUSTER)


def write_segments(log: MemoryEventLog, archive: ClusterArchive, ends: Iterable[int]) -> LogArchive:
    """Archives the log in segments that end before these offsets."""
    found = archive_of(log, archive)
    assert found is not None
    for end in ends:
        archive_log(log, found, end)
    return found


def cut(log: MemoryEventLog, archive: ClusterArchive, ends: Iterable[int], first: int) -> ArchivedLog:
    """Archives the log in segments, deletes everything below `first` from it, and returns both as one."""
    write_segments(log, archive, ends)
    log.truncate(first)
    return ArchivedLog(log, archive)
