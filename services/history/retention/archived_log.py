"""The log of a cluster as one: the segments of the archive, and then the topic.

A reader below the first offset of the topic reads the archive, and continues in the topic as soon as that has the next
offset. It does so also if events are deleted from the topic while it reads. The archive must have the same event as the
topic where both have one: an archive of another log is not used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ....infra.logging_setup import logger
from ....schemas.event import Event, Record
from ...configuration import Configuration
from ...core.leadership import LeadershipState
from ...log.codec import Codec
from ...log.event_log import Concerns, EventLog, LogTruncated, OnUnreadable, Tail
from ...log.factory import open_event_log, skipped_offsets
from ..archive.file_log import ItemReader
from ..archive.manifest import Item
from .errors import LogNotContinued
from .log_archive import ClusterArchive, LogArchive
from .segment import Segment, find_covering

_POLL_S = 1.0
_log = logger(__name__)


class ArchivedLog:
    """An EventLog of the archive and a topic; thread-safe. Its tails also raise ArchiveError.

    `skipped`: offsets of records that every reader skips.
    """

    def __init__(
        self,
        live: EventLog,
        archive: ClusterArchive,
        *,
        codec: Codec | None = None,
        skipped: Collection[int] = (),
    ) -> None:
        self.live = live
        """The topic."""
        self.archive = archive
        """The archives of the cluster's logs."""
        self._codec = codec
        self._skipped = frozenset(skipped)
        self._found: LogArchive | None = None

    @property
    def topic(self) -> str:
        return self.live.topic

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        return self.live.append(events, most_bytes)

    def follow(self, leadership: LeadershipState) -> None:
        self.live.follow(leadership)

    def end(self) -> int:
        return self.live.end()

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        """Raises LogTruncated, with the first offset of the archive if there is one; ArchiveError."""
        return _ArchivedTail(self, start, concerns, on_unreadable, self._codec, self._skipped)

    def close(self) -> None:
        self.live.close()

    def archive_below(self, first: int) -> LogArchive | None:
        """Returns the archive of this log, which now begins at `first`; None if there is none.

        Raises LogNotContinued if there are only archives of other logs; LogUnavailable, ArchiveError.
        """
        if self._found is None:
            self._found = find_archive(self.live, self.archive, first)
        return self._found


def open_archived_log(configuration: Configuration, *, timeout_s: float = 30.0) -> ArchivedLog:
    """Opens the cluster's log with its archive. It raises LogUnavailable on first use, not here."""
    return add_archive(configuration, open_event_log(configuration, timeout_s=timeout_s))


def add_archive(configuration: Configuration, live: EventLog) -> ArchivedLog:
    """Returns an open log with the cluster's archive before it."""
    codec = getattr(live, "codec", None)
    skipped = skipped_offsets(configuration)
    return ArchivedLog(live, ClusterArchive.from_configuration(configuration), codec=codec, skipped=skipped)


def find_archive(live: EventLog, archive: ClusterArchive, first: int) -> LogArchive | None:
    """Returns the archive of a topic that begins at offset `first`, above 0. Raises like
    `ArchivedLog.archive_below`."""
    others: list[LogArchive] = []
    ended: list[LogArchive] = []
    for log_id in archive.log_ids():
        found = archive.of_log(log_id)
        ranges = found.ranges()
        if find_covering(ranges, first) is not None:
            if _is_archive_of(live, found, first):
                return found
            others.append(found)
        elif ranges:
            ended.append(found)
    if len(ended) == 1 and not others:
        # It cannot be compared. The reader names what is missing between.
        return ended[0]
    others += ended
    if others:
        raise LogNotContinued(
            f"{live.topic} begins at offset {first}, and the archive {others[0].uri} is of another log: the topic was "
            "created again, or is of another Kafka; restore the topic"
        )
    return None


def _is_archive_of(live: EventLog, archive: LogArchive, first: int) -> bool:
    """Returns whether both have the same event, the first from offset `first` on in the segment with that offset."""
    segment = archive.covering(first)
    archived = next(
        (item for items in archive.read(segment, first) for item in items if isinstance(item, Record)), None
    )
    return archived is None or has_event(live, archived)


def has_event(live: EventLog, archived: Record) -> bool:
    """Returns whether a topic has that event at its offset. Raises LogUnavailable, LogTruncated."""
    end = live.end()
    tail = live.tail(archived.offset)
    try:
        while tail.position <= archived.offset < end:
            for record in tail.poll(_POLL_S):
                ours, theirs = archived.header, record.header
                return record.offset == archived.offset and (ours.event_id, ours.time) == (
                    theirs.event_id,
                    theirs.time,
                )
    finally:
        tail.close()
    return False


class _ArchivedTail:
    def __init__(
        self,
        log: ArchivedLog,
        start: int,
        concerns: Concerns | None,
        on_unreadable: OnUnreadable | None,
        codec: Codec | None,
        skipped: Collection[int],
    ) -> None:
        self._log = log
        self._position = start
        self._concerns = concerns
        self._on_unreadable = on_unreadable
        self._reader = ItemReader(log.topic, concerns, on_unreadable, codec=codec, skipped=skipped)
        self._live: Tail | None = None
        self._segment: Segment | None = None
        self._items: Iterator[list[Item]] = iter(())
        self._continue()

    @property
    def position(self) -> int:
        return self._position if self._live is None else self._live.position

    @property
    def bytes_read(self) -> int:
        return 0 if self._live is None else self._live.bytes_read

    def poll(self, timeout_s: float) -> list[Record]:
        """Raises ArchiveError, too."""
        if self._live is not None:
            try:
                return self._live.poll(timeout_s)
            except LogTruncated:
                # Events were deleted while this tail was behind.
                self.close()
                self._continue()
                return []
        batch = next(self._items, None)
        if batch is None:
            assert self._segment is not None
            self._position = max(self._position, self._segment.last + 1)
            self._continue()
            return []
        self._position = batch[-1].offset + 1
        return self._reader.read(batch)

    def close(self) -> None:
        if self._live is not None:
            self._position = self._live.position
            self._live.close()
            self._live = None
        self._items = iter(())

    def _continue(self) -> None:
        """Opens the topic at the position, or the segment with it."""
        try:
            self._live = self._log.live.tail(
                self._position, concerns=self._concerns, on_unreadable=self._on_unreadable
            )
            return
        except LogTruncated as error:
            first = error.first
            archive = self._log.archive_below(first)
            if archive is None:
                raise
            ranges = archive.ranges()
            if self._position < min(found.first for found in ranges):
                raise LogTruncated(self._log.topic, self._position, ranges[0].first) from None
        self._segment = archive.covering(self._position, first)
        self._items = archive.read(self._segment, self._position)
