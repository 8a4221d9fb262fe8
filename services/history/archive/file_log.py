"""An exported file as an EventLog: what reads a log reads a file, without Kafka. Nothing is ever appended."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from ....schemas.event import Event, Record
from ...log.codec import Codec, Undecodable
from ...log.event_log import Concerns, LogUnavailable, OnUnreadable, Tail
from ..unreadable_entries import UnreadableEntries
from .errors import NotAnArchive, PartialArchive
from .formats import ArchiveReader, reader
from .manifest import ArchiveManifest, Item


class FileLog:
    """The log that a file holds; to be closed, or used in a `with`. Each tail has the file open for itself."""

    def __init__(self, path: Path, opened: ArchiveReader) -> None:
        self._path = path
        self._spare: ArchiveReader | None = opened
        self._lock = threading.Lock()
        self._closed = False
        self.description: ArchiveManifest = opened.description
        self.passed_over = UnreadableEntries()
        """What is no event, as far as the file was read."""

    @classmethod
    def open(cls, path: Path, *, selections: bool = False) -> FileLog:
        """`selections`: also a file where events are left out. Raises ArchiveError."""
        opened = reader(path)
        if not opened.description.whole and not selections:
            opened.close()
            raise PartialArchive(path, opened.description.selected or "events are left out")
        return cls(path, opened)

    @property
    def topic(self) -> str:
        return str(self._path)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        raise LogUnavailable(f"{self._path} is an exported file, and takes no events")

    def end(self) -> int:
        return self.description.last + 1

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        """As any log's; `poll` raises DamagedArchive, UnknownEvent where it comes to such a place."""
        return _FileTail(self, start, concerns, on_unreadable)

    def close(self) -> None:
        with self._lock:
            spare, self._spare, self._closed = self._spare, None, True
        if spare is not None:
            spare.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def borrow(self) -> ArchiveReader:
        """A reader for one tail: opening a file is not free, and most tails come one after another."""
        with self._lock:
            spare, self._spare = self._spare, None
        return reader(self._path) if spare is None else spare

    def return_reader(self, used: ArchiveReader) -> None:
        """When the tail is closed."""
        with self._lock:
            if self._spare is None and not self._closed:
                self._spare = used
                return
        used.close()


class _FileTail:
    def __init__(
        self, log: FileLog, start: int, concerns: Concerns | None, on_unreadable: OnUnreadable | None
    ) -> None:
        self._log = log
        self._position = start
        self._concerns = concerns
        self._on_unreadable = on_unreadable
        self._codec: Codec | None = None
        self._reader: ArchiveReader | None = None
        self._batches: Iterator[list[Item]] = iter(())

    @property
    def position(self) -> int:
        return self._position

    @property
    def bytes_read(self) -> int:
        # Who counts bytes wants to know when a live log has grown.
        return 0

    def poll(self, timeout: float) -> list[Record]:
        """What comes next; there is nothing to wait for."""
        try:
            if self._reader is None:
                self._reader = self._log.borrow()
                self._batches = self._reader.read(self._position)
            batch = next(self._batches, None)
        except OSError as error:
            raise NotAnArchive(f"{self._log.path} can't be read: {error.strerror or error}") from None
        if batch is None:
            # The log's last offsets may hold no entries.
            self._position = max(self._position, self._log.end())
            return []
        self._position = batch[-1].offset + 1
        records = [each for each in map(self._event, batch) if each is not None]
        if self._concerns is None:
            return records
        return [each for each in records if self._concerns(each.header.sender, each.header.recipient)]

    def _event(self, item: Item) -> Record | None:
        if isinstance(item, Record):
            return item
        # Made when it is first needed: it takes a moment.
        self._codec = codec = self._codec or Codec(self._log.topic)
        try:
            # What the release that wrote the file did not know, this one may.
            event = codec.decode(item.value)
        except Undecodable as reason:
            value = replace(item, reason=str(reason))
            self._log.passed_over.note(value)
            if self._on_unreadable is not None:
                self._on_unreadable(value)
            return None
        return Record(item.offset, event.header, event.body)

    def close(self) -> None:
        if self._reader is not None:
            self._batches = iter(())
            self._log.return_reader(self._reader)
            self._reader = None
