"""Archives the log of a cluster by hand, for `log archive`."""

from __future__ import annotations

import time

import msgspec

from ....infra.storage.errors import CheckpointError
from ...configuration import Configuration
from ...history.log_position import LogPosition, first_offset
from ...history.retention.archived_log import add_archive
from ...history.retention.archiver import archive_of, archive_through_snapshots
from ...history.retention.cut import RetentionPolicy
from ...history.retention.log_archive import ClusterArchive
from ...history.retention.retention import delete_archived, find_oldest_snapshot
from ...history.retention.segment import Segment
from ...log import EventLog
from ...log.factory import create_admin_client, open_event_log
from ...log.truncation import delete_before
from ...snapshots.store import SnapshotStore
from ..exit_codes import CommandFailure, ExitCode
from ..render.progress import ProgressLine

_TIMEOUT_S = 10.0
_KEEP_NOTHING = RetentionPolicy(max_bytes=0)


class LogArchiving(msgspec.Struct, frozen=True, kw_only=True):
    """The result."""

    cluster: str
    topic: str
    archive: str
    """The URI of the archive."""
    log_id: str
    segments: list[Segment]
    """The new segments."""
    archived: int
    """The offset before which everything is archived."""
    first: int
    """The first offset of the topic."""
    deleted: int
    """The number of offsets that were deleted from the topic."""


def archive_log(configuration: Configuration, to: str | None, *, truncate: bool) -> LogArchiving:
    """Archives the log up to an offset or time. Raises CommandFailure, LogUnavailable, ArchiveError, and as
    `LogPosition.at`."""
    log = open_event_log(configuration, timeout_s=_TIMEOUT_S)
    try:
        return _archive_log(configuration, log, to, truncate=truncate)
    except CheckpointError as error:
        raise CommandFailure(ExitCode.UNREACHABLE, f"the storage does not answer: {error}") from error
    finally:
        log.close()


def _archive_log(
    configuration: Configuration, log: EventLog, to: str | None, *, truncate: bool
) -> LogArchiving:
    snapshots = SnapshotStore.from_configuration(configuration)
    oldest = find_oldest_snapshot(log, snapshots)
    archive = archive_of(
        log, ClusterArchive.from_configuration(configuration), None if oldest is None else oldest[1]
    )
    if archive is None:
        raise CommandFailure(ExitCode.NOT_FOUND, f"{log.topic} has no events: there is nothing to archive")
    end = log.end() if to is None else LogPosition.parse(to).at(add_archive(configuration, log)) + 1
    with ProgressLine(f"archives {log.topic}", end) as progress:
        written = archive_through_snapshots(log, archive, end, snapshots.offsets(), on_progress=progress)
    first = new_first = first_offset(log)
    if truncate and oldest is not None:
        with ProgressLine(f"verifies {archive.uri}", end) as progress:
            first, new_first = delete_archived(
                log,
                archive,
                min(oldest[0], end),
                _KEEP_NOTHING,
                time.time_ns() // 1000,
                lambda offset: delete_before(create_admin_client(configuration), log.topic, {0: offset}),
                on_progress=progress,
            )
    return LogArchiving(
        cluster=configuration.cluster_id,
        topic=log.topic,
        archive=archive.uri,
        log_id=archive.log_id,
        segments=written,
        archived=archive.end() or 0,
        first=new_first,
        deleted=new_first - first,
    )
