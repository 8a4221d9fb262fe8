"""Writes the log into the archive, segment by segment, from the end of the archive on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from ....schemas.event import Record
from ...log import EventLog
from ...log.event_log import Unreadable
from ...snapshots.log_id import read_log_id
from ..archive.exporter import merge_items
from ..archive.manifest import Item
from ..log_position import first_offset
from .archived_log import find_archive, has_event
from .errors import LogNotContinued
from .log_archive import ClusterArchive, LogArchive
from .segment import Segment, SegmentRange

LARGEST_SEGMENT = 32 << 20
"""Bytes of a segment's events in the topic."""
_POLL_S = 1.0
_COMPARED = 100
"""Offsets at the end of the archive, of which the last event is compared with the topic."""

OnProgress = Callable[[int], None]
"""(the offset up to which the log is archived, exclusive)."""
IsDue = Callable[[int | None], bool]
"""(time of the first event) -> whether to write a segment that is not full."""


def archive_of(log: EventLog, archive: ClusterArchive, log_id: str | None = None) -> LogArchive | None:
    """Returns the archive to continue for a topic; None for a topic without events. `log_id`: the id of the log in its
    newest snapshot.

    Raises LogNotContinued, LogUnavailable, ArchiveError.
    """
    first = first_offset(log)
    if first == 0:
        log_id = read_log_id(log)
        return None if log_id is None else archive.of_log(log_id)
    found = find_archive(log, archive, first)
    if found is not None:
        return found
    if not log_id:
        raise LogNotContinued(
            f"{log.topic} begins at offset {first}, and no snapshot has its id: `tailrace cluster snapshot` creates one"
        )
    return archive.of_log(log_id)


def archive_log(
    log: EventLog,
    archive: LogArchive,
    end: int,
    *,
    segment_bytes: int = LARGEST_SEGMENT,
    is_due: IsDue = lambda _: True,
    most_segments: int | None = None,
    on_progress: OnProgress | None = None,
) -> list[Segment]:
    """Archives a topic up to offset `end` (exclusive); returns the new segments.

    `is_due`: decides about the last segment, which is not full. `most_segments`: the maximum number. Raises
    LogNotContinued if events between the archive and the topic are missing; LogUnavailable, ArchiveError.
    """
    first, archived = first_offset(log), archive.end()
    if archived is not None and archived < first:
        raise LogNotContinued(
            f"{log.topic} begins at offset {first}, but its archive {archive.uri} ends before offset {archived}: the "
            "events between were deleted from the topic without an archive; move the archive to another directory to "
            "begin a new one"
        )
    if archived is not None:
        check_continued(log, archive, first, archived)
    start = first if archived is None else archived
    written: list[Segment] = []
    for part in _parts(log, start, min(end, log.end()), segment_bytes):
        is_full = part.log_bytes >= segment_bytes
        if not is_full and not is_due(part.first_time):
            break
        written.append(archive.write(part.range, part.items, part.log_bytes))
        if on_progress is not None:
            on_progress(part.range.last + 1)
        if most_segments is not None and len(written) >= most_segments:
            break
    return written


def archive_through_snapshots(
    log: EventLog,
    archive: LogArchive,
    end: int,
    snapshots: Iterable[int],
    *,
    on_progress: OnProgress | None = None,
) -> list[Segment]:
    """Like `archive_log`; a segment also ends at each of these snapshots. The topic is cut at the end of a segment, and
    can so be cut at any of the snapshots later, when it is the oldest one."""
    ends = [*sorted(offset + 1 for offset in snapshots if offset + 1 < end), end]
    return [segment for each in ends for segment in archive_log(log, archive, each, on_progress=on_progress)]


def check_continued(log: EventLog, archive: LogArchive, first: int, archived: int) -> None:
    """Raises LogNotContinued unless a topic that begins at `first` has the events of an archive that ends before offset
    `archived`; LogUnavailable, ArchiveError."""
    if archived > log.end():
        raise LogNotContinued(
            f"{log.topic} ends before offset {log.end()}, but its archive {archive.uri} has events up to "
            f"{archived - 1}: the topic has lost its end; restore it"
        )
    segment = archive.covering(archived - 1)
    start = max(first, segment.first, archived - _COMPARED)
    events = [item for items in archive.read(segment, start) for item in items if isinstance(item, Record)]
    if events and not has_event(log, events[-1]):
        raise LogNotContinued(
            f"{log.topic} has other events than its archive {archive.uri}: it was restored from an older copy, and "
            "has grown since; move the archive to another directory, or restore the topic"
        )


class _Part(msgspec.Struct):
    range: SegmentRange
    items: list[Item]
    log_bytes: int

    @property
    def first_time(self) -> int | None:
        return next((item.header.time for item in self.items if isinstance(item, Record)), None)


def _parts(log: EventLog, start: int, end: int, size: int) -> Iterator[_Part]:
    """Yields the log from `start` to `end` in parts of the size in bytes; the last one may be smaller."""
    if start >= end:
        return
    unreadable: list[Unreadable] = []
    items: list[Item] = []
    tail = log.tail(start, on_unreadable=unreadable.append)
    at_bytes = 0
    try:
        while tail.position < end:
            items += merge_items([record for record in tail.poll(_POLL_S) if record.offset < end], unreadable)
            position = min(tail.position, end)
            if tail.bytes_read - at_bytes >= size and position < end:
                items += _take(unreadable, position)
                yield _Part(SegmentRange(start, position - 1), items, tail.bytes_read - at_bytes)
                start, items, at_bytes = position, [], tail.bytes_read
    finally:
        tail.close()
    items += _take(unreadable, end)
    yield _Part(SegmentRange(start, end - 1), items, tail.bytes_read - at_bytes)


def _take(unreadable: list[Unreadable], end: int) -> list[Item]:
    """Removes the values below `end`, and returns them."""
    taken = [value for value in unreadable if value.offset < end]
    unreadable[:] = [value for value in unreadable if value.offset >= end]
    return list[Item](taken)
