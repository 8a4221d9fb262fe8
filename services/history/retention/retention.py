"""Archives the old events of the log, and deletes them from the topic.

1. Segments are written up to the oldest snapshot: full ones at once, a smaller one when its events are older than the
   retention.
2. Segments that the topic need not keep (cut.py) are read again and compared with their checksums.
3. Then the topic is cut, and the submissions that were admitted before the oldest snapshot are deleted.

Each step can be interrupted and repeated, also by two processes at once: segments of one range have the same entries,
and nothing is deleted that is not in the storage. A run does a limited part of the work, and the next one continues.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from immutables import Map

from ....infra.storage.errors import CheckpointError
from ...core.role import DISPATCHER
from ...dispatcher.state import DispatcherState
from ...dispatcher.submissions_topic import AdmittedTopics
from ...log import EventLog
from ...snapshots.builder import all_roles
from ...snapshots.recovery import SnapshotOfOtherLog, check_same_log
from ...snapshots.snapshot_file import UnusableSnapshot
from ...snapshots.store import SnapshotStore
from ..log_position import first_offset
from .archiver import LARGEST_SEGMENT, OnProgress, archive_log, archive_of
from .cut import RetentionPolicy, find_outdated, first_retained, is_old
from .log_archive import ClusterArchive, LogArchive

_SMALLEST_SEGMENT = 64 << 10
_PARTS = 4
"""The number of segments in the bytes that the topic keeps."""
_MOST_WRITTEN = 8
_MOST_VERIFIED = 64

DeleteBefore = Callable[[int], None]
"""(offset): deletes all events below it from the topic."""


class RetentionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run."""

    segments: int
    """The number of new segments."""
    archived: int | None
    """The offset before which everything is archived."""
    first: int
    """The first offset of the topic."""
    deleted: int
    """The number of offsets that were deleted from the topic."""


def apply_retention(
    log: EventLog,
    archive: ClusterArchive,
    oldest: tuple[int, str] | None,
    policy: RetentionPolicy,
    now: int,
    delete_before: DeleteBefore,
) -> RetentionReport | None:
    """Runs once; None without a snapshot. `log`: the topic; `oldest`: as of `find_oldest_snapshot`.

    Raises LogUnavailable, ArchiveError, CheckpointError.
    """
    if oldest is None:
        return None
    offset, log_id = oldest
    found = archive_of(log, archive, log_id)
    if found is None:
        return None
    written = archive_log(
        log,
        found,
        offset + 1,
        segment_bytes=_segment_bytes(policy),
        is_due=lambda time: is_old(time, policy, now),
        most_segments=_MOST_WRITTEN,
    )
    first, new_first = delete_archived(log, found, offset, policy, now, delete_before, most=_MOST_VERIFIED)
    return RetentionReport(
        segments=len(written), archived=found.end(), first=new_first, deleted=new_first - first
    )


def delete_archived(
    log: EventLog,
    archive: LogArchive,
    end: int,
    policy: RetentionPolicy,
    now: int,
    delete_before: DeleteBefore,
    *,
    most: int | None = None,
    on_progress: OnProgress = lambda _: None,
) -> tuple[int, int]:
    """Deletes the outdated segments that end at offset `end` or before from the topic, after it has verified them;
    returns the first offset before and after. `most`: the maximum number of segments.

    Raises MissingSegment, DamagedSegment, LogUnavailable, ArchiveUnavailable.
    """
    first = first_offset(log)
    # The topic keeps the last offset of the segments that were deleted before.
    outdated = find_outdated(archive.chain(first + 1), end, policy, now)[:most]
    for segment in outdated:
        archive.verify(segment)
        on_progress(segment.last + 1)
    new_first = first_retained(outdated) if outdated else first
    if new_first <= first:
        return first, first
    delete_before(new_first)
    return first, new_first


def _segment_bytes(policy: RetentionPolicy) -> int:
    if policy.max_bytes is None:
        return LARGEST_SEGMENT
    return min(LARGEST_SEGMENT, max(_SMALLEST_SEGMENT, policy.max_bytes // _PARTS))


def find_oldest_snapshot(log: EventLog, snapshots: SnapshotStore) -> tuple[int, str] | None:
    """Returns offset and log id of the oldest snapshot of the log, of any release; None unless this release can use one
    of them. Raises LogUnavailable, CheckpointError."""
    oldest, is_usable = None, False
    for offset in snapshots.offsets():
        try:
            header = snapshots.header(offset)
            check_same_log(header, log)
            oldest = offset, header.log_id
            is_usable = is_usable or _restore(snapshots, offset) is not None
        except (UnusableSnapshot, SnapshotOfOtherLog):
            continue
    return oldest if is_usable else None


def admitted_before(snapshots: SnapshotStore, offset: int) -> AdmittedTopics:
    """Returns the positions of the submissions topics before which everything was admitted, in a snapshot; empty if
    this release cannot use it. Raises CheckpointError."""
    dispatcher = _restore(snapshots, offset)
    return Map() if dispatcher is None else dispatcher.admitted


def _restore(snapshots: SnapshotStore, offset: int) -> DispatcherState | None:
    replica = all_roles()
    try:
        snapshots.read(offset).restore(replica)
    except (UnusableSnapshot, CheckpointError):
        return None
    state = replica.states.get(DISPATCHER, DispatcherState())
    return state if isinstance(state, DispatcherState) else None
