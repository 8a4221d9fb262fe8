"""Finds the logs of clusters that no longer run: exported files, archives, and topics in Kafka.

An archive is named by a directory: `high-availability.storageDir`, or any directory below it that has the archive of a
cluster (log_archive.py); or a directory of exported files. A log that cannot be opened does not hide the others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ...infra.storage.errors import CheckpointError
from ...infra.storage.storage import Storage
from ..configuration import Configuration
from ..snapshots.store import SnapshotStore
from .archive.errors import ArchiveError
from .archive.file_log import FileLog
from .job_history_store import JobHistoryStore
from .log_source import LogSource, OpenSource, open_log_source
from .retention.log_archive import LogArchive
from .retention.segment import Segment, SegmentRange
from .retention.segment_log import SegmentLog

_DEPTH = 3
"""From storageDir: the cluster, `archive`, and the id of the log."""
_NO_ARCHIVES = frozenset({"blob", "snapshots", "history"})
_SUFFIX = ".avro"


@dataclass(frozen=True, slots=True)
class PastLog:
    """A log that can be opened. `version` changes with the content of a file; others only grow."""

    cluster: str
    place: str
    """The file, the URI of the archive, or the topic."""
    open: OpenSource = field(compare=False)
    """It can be pickled: another process can open the log."""
    histories: JobHistoryStore | None = field(default=None, compare=False)
    version: tuple[int, ...] = ()


@dataclass(slots=True)
class FoundLogs:
    """The logs that exist now, and one line for each place that cannot be read."""

    logs: list[PastLog] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogFinder:
    """`archives` are URIs; `clusters` are clusters whose topic is in Kafka."""

    files: Sequence[Path] = ()
    archives: Sequence[str] = ()
    clusters: Sequence[Configuration] = ()

    def find(self) -> FoundLogs:
        """Returns the logs that exist now, sorted by cluster and place."""
        found = FoundLogs()
        for path in self.files:
            _add_file(found, path)
        for uri in self.archives:
            _add_archives(found, uri)
        found.logs += [_kafka_log(each) for each in self.clusters]
        found.logs = sorted(
            {each.place: each for each in found.logs}.values(), key=lambda each: (each.cluster, each.place)
        )
        return found


def _kafka_log(configuration: Configuration) -> PastLog:
    return PastLog(
        configuration.cluster_id,
        f"Kafka at {configuration.bootstrap_servers}",
        functools.partial(open_log_source, configuration),
        JobHistoryStore.from_configuration(configuration),
    )


def _add_file(found: FoundLogs, path: Path) -> None:
    try:
        status = path.stat()
        with FileLog.open(path) as log:
            cluster = log.description.cluster
    except (ArchiveError, OSError) as error:
        reason = f"{path} can't be read: {error.strerror}" if isinstance(error, OSError) else str(error)
        found.errors[str(path)] = reason
        return
    version = (status.st_mtime_ns, status.st_size, status.st_ino)
    found.logs.append(PastLog(cluster, str(path), functools.partial(open_log_source, path), version=version))


def _add_archives(found: FoundLogs, uri: str) -> None:
    try:
        for storage in _directories(Storage.open(uri), _DEPTH):
            names = storage.sizes()
            ranges = sorted(each for name in names if (each := SegmentRange.from_name(name)) is not None)
            if ranges:
                _add_archive(found, storage, ranges[0])
            elif storage.is_local:
                for name in sorted(names):
                    if name.endswith(_SUFFIX) and not name.startswith("."):
                        _add_file(found, Path(storage.absolute(name)))
    except CheckpointError as error:
        found.errors[uri] = str(error)


def _directories(storage: Storage, depth: int) -> Iterator[Storage]:
    yield storage
    if depth:
        for name in sorted(storage.directories()):
            if name not in _NO_ARCHIVES:
                yield from _directories(Storage.open(storage.absolute(name)), depth - 1)


def _add_archive(found: FoundLogs, storage: Storage, first: SegmentRange) -> None:
    uri = storage.uri
    try:
        known = msgspec.json.decode(storage.read(first.manifest_name), type=Segment)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        found.errors[uri] = f"{storage.absolute(first.manifest_name)} is no manifest: {error}"
        return
    archive = LogArchive(storage, known.cluster, known.log_id)
    directory = uri.rstrip("/").rpartition("/")[0]
    base, _, name = directory.rpartition("/")
    # Snapshots and their histories are beside a cluster's archive.
    store = SnapshotStore(Storage.open(f"{base}/snapshots"), known.cluster) if name == "archive" else None
    histories = JobHistoryStore(Storage.open(f"{base}/history")) if name == "archive" else None
    found.logs.append(
        PastLog(
            known.cluster,
            uri,
            functools.partial(_open_archive, archive, store),
            histories,
        )
    )


def _open_archive(archive: LogArchive, store: SnapshotStore | None) -> LogSource:
    return LogSource(SegmentLog(archive), archive.cluster, store=store)
