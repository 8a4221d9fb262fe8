"""An archive as an EventLog for reading, without Kafka."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from ....infra.closing import Closeable
from ....schemas.event import Event, Record
from ...core.leadership import LeadershipState
from ...log.codec import Codec, Undecodable
from ...log.event_log import SKIPPED, Concerns, LogUnavailable, OnUnreadable, Tail, Unreadable
from .avro_file import AvroReader
from .errors import NotAnArchive, PartialArchive
from .manifest import ArchiveManifest, Item


class FileLog(Closeable):
    """The log in a file. Close it, or use it in a `with` statement."""

    def __init__(self, path: Path, reader: AvroReader) -> None:
        self.path = path
        self.reader = reader
        self.description: ArchiveManifest = reader.description

    @classmethod
    def open(cls, path: Path, *, selections: bool = False) -> FileLog:
        """Opens a file. `selections`: also one with only some events. Raises ArchiveError."""
        try:
            reader = AvroReader(path)
        except OSError as error:
            raise NotAnArchive(f"{path} can't be read: {error.strerror or error}") from None
        if not reader.description.whole and not selections:
            reader.close()
            raise PartialArchive(path, reader.description.selected or "events are left out")
        return cls(path, reader)

    @property
    def topic(self) -> str:
        return str(self.path)

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        raise LogUnavailable(f"{self.path} is an exported file, and takes no events")

    def follow(self, leadership: LeadershipState) -> None:
        """A file has its schemas, and is not written."""

    def end(self) -> int:
        return self.description.last + 1

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        """The tail's `poll` raises CorruptArchive, UnknownEventType."""
        return _FileTail(self, start, concerns, on_unreadable)

    def close(self) -> None:
        self.reader.close()


class ItemReader:
    """Returns the events of a file's entries as the tail of a log does: it tries to decode what was no event for the
    writer of the file, skips configured offsets, and reports what is unreadable."""

    def __init__(
        self,
        topic: str,
        concerns: Concerns | None,
        on_unreadable: OnUnreadable | None,
        *,
        codec: Codec | None = None,
        skipped: Collection[int] = (),
    ) -> None:
        self._topic = topic
        self._concerns = concerns
        self._on_unreadable = on_unreadable
        self._codec = codec
        self._skipped = skipped

    def read(self, items: Sequence[Item]) -> list[Record]:
        """Returns the wanted events."""
        records = [record for record in map(self._event, items) if record is not None]
        if self._concerns is None:
            return records
        return [record for record in records if self._concerns(record.header.sender, record.header.recipient)]

    def _event(self, item: Item) -> Record | None:
        if isinstance(item, Record) and item.offset not in self._skipped:
            return item
        # Created at its first use, because that takes time.
        self._codec = codec = self._codec or Codec(self._topic)
        if isinstance(item, Record):
            value = codec.encode(Event(item.header, item.body))
            self._report(Unreadable(self._topic, 0, item.offset, SKIPPED, None, value))
            return None
        try:
            if item.offset in self._skipped:
                raise Undecodable(SKIPPED)
            # This release may know events that the writer of the file did not know.
            event = codec.decode(item.value)
        except Undecodable as reason:
            self._report(replace(item, topic=self._topic, reason=str(reason), header=reason.header))
            return None
        return Record(item.offset, event.header, event.body)

    def _report(self, value: Unreadable) -> None:
        if self._on_unreadable is not None:
            self._on_unreadable(value)


class _FileTail:
    def __init__(
        self, log: FileLog, start: int, concerns: Concerns | None, on_unreadable: OnUnreadable | None
    ) -> None:
        self._log = log
        self.position = start
        # Bytes show the growth of a live log only.
        self.bytes_read = 0
        self._reader = ItemReader(log.topic, concerns, on_unreadable)
        self._batches: Iterator[list[Item]] = log.reader.read(start)

    def poll(self, timeout_s: float) -> list[Record]:
        """Returns the next batch; there is nothing to wait for."""
        try:
            batch = next(self._batches, None)
        except OSError as error:
            raise NotAnArchive(f"{self._log.path} can't be read: {error.strerror or error}") from None
        if batch is None:
            # The last offsets may have no entries.
            self.position = max(self.position, self._log.end())
            return []
        self.position = batch[-1].offset + 1
        return self._reader.read(batch)

    def close(self) -> None:
        self._batches = iter(())
