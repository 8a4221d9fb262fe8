"""An archive as an EventLog for reading, without the topic: for a cluster that no longer runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....schemas.event import Event, Record
from ...core.leadership import LeadershipState
from ...log.event_log import Concerns, LogTruncated, LogUnavailable, OnUnreadable, Tail
from ..archive.file_log import ItemReader
from ..archive.manifest import Item
from .log_archive import LogArchive
from .segment import find_chain


class SegmentLog:
    """The segments of one log, up to the first gap. New segments are seen. Its tails also raise ArchiveError."""

    def __init__(self, archive: LogArchive) -> None:
        self.archive = archive

    @property
    def topic(self) -> str:
        return self.archive.uri

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        raise LogUnavailable(f"{self.archive.uri} is an archive, and takes no events")

    def follow(self, leadership: LeadershipState) -> None:
        """An archive has its schemas, and is not written."""

    def end(self) -> int:
        """Raises ArchiveUnavailable."""
        ranges = self.archive.ranges()
        return find_chain(ranges, ranges[0].first)[-1].last + 1 if ranges else 0

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        """Raises LogTruncated, ArchiveUnavailable."""
        first = min((found.first for found in self.archive.ranges()), default=0)
        if start < first:
            raise LogTruncated(self.topic, start, first)
        return _SegmentTail(self, start, ItemReader(self.topic, concerns, on_unreadable))

    def close(self) -> None:
        """Segments are open only while they are read."""


class _SegmentTail:
    def __init__(self, log: SegmentLog, start: int, reader: ItemReader) -> None:
        self._log = log
        self.position = start
        # Bytes show the growth of a live log only.
        self.bytes_read = 0
        self._reader = reader
        self._last = start - 1
        """The last offset of the segment that is being read."""
        self._items: Iterator[list[Item]] = iter(())

    def poll(self, timeout_s: float) -> list[Record]:
        """Returns the next events; there is nothing to wait for. Raises ArchiveError."""
        batch = next(self._items, None)
        if batch is not None:
            self.position = batch[-1].offset + 1
            return self._reader.read(batch)
        self.position = max(self.position, self._last + 1)
        if self.position < self._log.end():
            segment = self._log.archive.covering(self.position)
            self._items, self._last = self._log.archive.read(segment, self.position), segment.last
        return []

    def close(self) -> None:
        self._items = iter(())
