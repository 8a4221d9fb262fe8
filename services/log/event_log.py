"""The contract of an event log, on Kafka or in memory.

1. Appended events get increasing offsets, in the given order. An append that returned is durable.
2. A tail delivers every readable event from its offset on, once, in order. Offsets may have gaps.
3. `read_to_end` reads the end first and stops exactly there, also if the last offsets hold no events (transaction
   markers, aborted events, unreadable values).
4. A log that was truncated beyond the wanted offset raises an error. It is never read as an empty log.

A record that can't be decoded is reported to the reader with its place and the reason (`Unreadable`); reading
continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from ...schemas.event import Event, Record
from ...schemas.types import Header

LARGEST_EVENT = 16 << 20
"""Bytes of an encoded event. Twice what a client may submit (`topics.LARGEST_SUBMISSION`): what the services say
because of a submission, with its graph in it, always fits."""
SKIPPED = "log.skipped-offsets names it"
"""Why a record is unreadable that is to be passed over by every reader."""


class LogUnavailable(Exception):
    """The log can't be reached or written; the message says where and what to do."""


class EventRefused(ValueError):
    """An event that no log takes: it does not fit its schema, or is too large; nothing of its batch was appended."""

    def __init__(self, place: int, reason: str) -> None:
        self.place = place
        """Where the event is in its batch, from 0."""
        super().__init__(reason)


class EventTooLarge(EventRefused):
    """An event of more than LARGEST_EVENT bytes."""

    def __init__(self, place: int, name: str, size: int) -> None:
        super().__init__(place, f"{name} has {size:,} bytes, but the log takes at most {LARGEST_EVENT:,}")


class LogTruncated(Exception):
    """The log no longer holds the offset that the reader needs."""

    def __init__(self, topic: str, wanted: int, first: int) -> None:
        self.first = first
        """The first offset that is left."""
        super().__init__(
            f"{topic} begins at offset {first}, but offset {wanted} is needed to rebuild the state: "
            "its head was deleted. Restore the topic, and set retention.ms=-1 and retention.bytes=-1 on it."
        )


class Unreadable(msgspec.Struct, frozen=True):
    """A record of the log that holds no event: where, why, and its bytes."""

    topic: str
    partition: int
    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    header: Header | None = None
    """What the record begins with, where it has the form of an event and only its schema is not known."""


OnUnreadable = Callable[[Unreadable], None]
Concerns = Callable[[str, str], bool]
"""(sender, recipient) -> whether the reader wants the event; others are skipped without being decoded."""


class Tail(Protocol):
    """A position in the log that moves forward; for one thread."""

    @property
    def position(self) -> int:
        """The next offset to be seen: everything below it has been returned, skipped or reported."""
        ...

    @property
    def bytes_read(self) -> int:
        """How many bytes the values had that lay below `position`, those of skipped and unreadable ones too."""
        ...

    def poll(self, timeout: float) -> list[Record]:
        """What is there, in order; waits up to `timeout` seconds for a first event. Raises LogUnavailable."""
        ...

    def close(self) -> None:
        """Gives the connection back."""
        ...


class EventLog(Protocol):
    """One log; safe for use by several threads."""

    @property
    def topic(self) -> str:
        """The name under which messages for people mention the log."""
        ...

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        """Appends in the given order; returns the offsets when all are durable.

        `most_bytes`: appends the first events that have so many bytes together, and at least one; returns as many
        offsets. Raises LogUnavailable; EventRefused for an event that can't be written, and then appends nothing.
        """
        ...

    def end(self) -> int:
        """The offset behind the last stable one."""
        ...

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        """Reads from offset `start` on. Raises LogTruncated."""
        ...

    def close(self) -> None:
        """Gives connections back."""
        ...


def read_to_end(
    log: EventLog, start: int = 0, *, end: int | None = None, on_unreadable: OnUnreadable | None = None
) -> Iterator[list[Record]]:
    """Batches of all events from `start` to the end that the log has now, or to `end` (exclusive), and no further."""
    end = log.end() if end is None else min(end, log.end())
    tail = log.tail(start, on_unreadable=on_unreadable)
    try:
        while tail.position < end:
            batch = tail.poll(1.0)
            if batch and batch[-1].offset >= end:
                batch = [record for record in batch if record.offset < end]
            if batch:
                yield batch
    finally:
        tail.close()
