"""The event log in memory, for tests and simulations.

It stores encoded bytes, so that it refuses the same events as Kafka's.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from ...schemas.event import Event
from ..core.leadership import LeadershipState
from .codec import Codec
from .event_log import Concerns, LogTruncated, LogUnavailable, OnUnreadable, Tail
from .raw_record import DecodingTail, RawRecord, RawTail

Entry = tuple[tuple[str, str] | None, bytes | None]
"""Sender and recipient as in the key of a Kafka message, if it has them, and the value."""


class MemoryEventLog:
    """An EventLog that lives as long as its process. `skipped`: as in KafkaEventLog, and may be set later.
    `registers_schemas`: it registers the schemas of its writer, as KafkaEventLog does; it starts with the first event
    of a test otherwise."""

    def __init__(
        self,
        codec: Codec | None = None,
        topic: str = "memory.log",
        skipped: Collection[int] = (),
        registers_schemas: bool = False,
    ) -> None:
        self._registers_schemas = registers_schemas
        self.skipped = frozenset(skipped)
        self._codec = codec or Codec(topic)
        self._topic = topic
        self._first = 0
        self._entries: list[Entry] = []
        self._grown = threading.Condition()
        self._closed = False

    @property
    def topic(self) -> str:
        return self._topic

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        values = self._codec.encode_all(events, most_bytes)
        schemas = self._codec.registration(events[0]) if events and self._registers_schemas else None
        if schemas is None:
            return self._append(
                [(_addresses(event), value) for event, value in zip(events, values, strict=False)]
            )
        written = [(schemas, self._codec.encode(schemas)), *zip(events, values, strict=False)]
        _, *offsets = self._append([(_addresses(event), value) for event, value in written])
        self._codec.learn_from(schemas)
        return offsets

    def follow(self, leadership: LeadershipState) -> None:
        self._codec.follow(leadership)

    def append_all(self, entries: Sequence[Event | bytes | None]) -> list[int]:
        """Like KafkaEventLog.append_all."""
        return self._append(
            [
                (_addresses(entry), self._codec.encode(entry)) if isinstance(entry, Event) else (None, entry)
                for entry in entries
            ]
        )

    def append_with_key(self, addresses: tuple[str, str], event: Event) -> int:
        """Appends an event in a message whose key has these addresses, as a foreign writer could."""
        (offset,) = self._append([(addresses, self._codec.encode(event))])
        return offset

    def append_values(self, values: Sequence[bytes | None]) -> list[int]:
        """Appends raw bytes, as a foreign writer would."""
        return self._append([(None, value) for value in values])

    def _append(self, entries: Sequence[Entry]) -> list[int]:
        with self._grown:
            if self._closed:
                raise LogUnavailable(f"{self._topic} is closed")
            start = self._first + len(self._entries)
            self._entries.extend(entries)
            self._grown.notify_all()
            return list(range(start, start + len(entries)))

    def end(self) -> int:
        with self._grown:
            return self._first + len(self._entries)

    def truncate(self, first: int) -> None:
        """Deletes everything below offset `first`, as Kafka's DeleteRecords does."""
        with self._grown:
            del self._entries[: max(0, first - self._first)]
            self._first = max(first, self._first)

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        return self.decode(self.raw_tail(start, concerns=concerns), concerns, on_unreadable)

    def raw_tail(
        self,
        start: int,
        *,
        concerns: Concerns | None = None,
        prefetched: int = 0,
        timeout_s: float | None = None,
    ) -> RawTail:
        """Like KafkaEventLog.raw_tail."""
        del prefetched, timeout_s
        if start < self._first:
            raise LogTruncated(self._topic, start, self._first)
        return _MemoryTail(self, start, concerns)

    def decode(self, source: RawTail, concerns: Concerns | None, on_unreadable: OnUnreadable | None) -> Tail:
        """Like KafkaEventLog.decode."""
        return DecodingTail(source, self._codec, self._topic, lambda: self.skipped, concerns, on_unreadable)

    def close(self) -> None:
        with self._grown:
            self._closed = True
            self._grown.notify_all()

    def entries_from(self, offset: int, timeout_s: float) -> list[Entry]:
        """Returns addresses and values from `offset` on; waits up to `timeout_s` seconds for the first."""
        with self._grown:
            if offset < self._first:
                raise LogTruncated(self._topic, offset, self._first)
            self._grown.wait_for(lambda: self._closed or offset < self._first + len(self._entries), timeout_s)
            return self._entries[offset - self._first :]


def _addresses(event: Event) -> tuple[str, str]:
    return event.header.sender, event.header.recipient


class _MemoryTail:
    def __init__(self, log: MemoryEventLog, start: int, concerns: Concerns | None) -> None:
        self._log = log
        self.position = start
        self.bytes_read = 0
        self._concerns = concerns

    def poll(self, timeout_s: float) -> list[RawRecord]:
        records = []
        concerns = self._concerns
        for addresses, value in self._log.entries_from(self.position, timeout_s):
            offset = self.position
            self.position += 1
            self.bytes_read += len(value or b"")
            if concerns is None or addresses is None or concerns(*addresses):
                records.append(RawRecord(offset, addresses, None, value))
        return records

    def close(self) -> None:
        pass
