"""The event log in memory, for tests and simulations.

It stores encoded bytes, so that it refuses the same events as Kafka's.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from ...schemas.event import Event, Record
from ..core.leadership import LeadershipState
from .codec import Codec, Undecodable
from .event_log import SKIPPED, Concerns, LogTruncated, LogUnavailable, OnUnreadable, Tail, Unreadable


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
        self._values: list[bytes | None] = []
        self._grown = threading.Condition()
        self._closed = False

    @property
    def topic(self) -> str:
        return self._topic

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        values = self._codec.encode_all(events, most_bytes)
        schemas = self._codec.registration(events[0]) if events and self._registers_schemas else None
        if schemas is None:
            return self.append_values(values)
        _, *offsets = self.append_values([self._codec.encode(schemas), *values])
        self._codec.learn_from(schemas)
        return offsets

    def follow(self, leadership: LeadershipState) -> None:
        self._codec.follow(leadership)

    def append_all(self, entries: Sequence[Event | bytes | None]) -> list[int]:
        """Like KafkaEventLog.append_all."""
        return self.append_values(
            [self._codec.encode(entry) if isinstance(entry, Event) else entry for entry in entries]
        )

    def append_values(self, values: Sequence[bytes | None]) -> list[int]:
        """Appends raw bytes, as a foreign writer would."""
        with self._grown:
            if self._closed:
                raise LogUnavailable(f"{self._topic} is closed")
            start = self._first + len(self._values)
            self._values.extend(values)
            self._grown.notify_all()
            return list(range(start, start + len(values)))

    def end(self) -> int:
        with self._grown:
            return self._first + len(self._values)

    def truncate(self, first: int) -> None:
        """Deletes everything below offset `first`, as Kafka's DeleteRecords does."""
        with self._grown:
            del self._values[: max(0, first - self._first)]
            self._first = max(first, self._first)

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        if start < self._first:
            raise LogTruncated(self._topic, start, self._first)
        return _MemoryTail(self, start, concerns, on_unreadable)

    def close(self) -> None:
        with self._grown:
            self._closed = True
            self._grown.notify_all()

    def values_from(self, offset: int, timeout_s: float) -> list[bytes | None]:
        """Returns the values from `offset` on; waits up to `timeout_s` seconds for the first."""
        with self._grown:
            if offset < self._first:
                raise LogTruncated(self._topic, offset, self._first)
            self._grown.wait_for(lambda: self._closed or offset < self._first + len(self._values), timeout_s)
            return self._values[offset - self._first :]


class _MemoryTail:
    def __init__(
        self, log: MemoryEventLog, start: int, concerns: Concerns | None, on_unreadable: OnUnreadable | None
    ) -> None:
        self._log = log
        self._position = start
        self._bytes_read = 0
        self._concerns = concerns
        self._on_unreadable = on_unreadable

    @property
    def position(self) -> int:
        return self._position

    @property
    def bytes_read(self) -> int:
        return self._bytes_read

    def poll(self, timeout_s: float) -> list[Record]:
        records = []
        for value in self._log.values_from(self._position, timeout_s):
            offset = self._position
            self._position += 1
            self._bytes_read += len(value or b"")
            try:
                if offset in self._log.skipped:
                    raise Undecodable(SKIPPED)
                event = self._log._codec.decode(value)
            except Undecodable as error:
                if self._on_unreadable:
                    self._on_unreadable(
                        Unreadable(
                            self._log.topic, 0, offset, str(error), None, value, error.header, error.release
                        )
                    )
                continue
            if self._concerns is None or self._concerns(event.header.sender, event.header.recipient):
                records.append(Record(offset, event.header, event.body))
        return records

    def close(self) -> None:
        pass
