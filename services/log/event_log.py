"""The contract of an event log, independent of its storage.

1. Appended events get increasing offsets in the given order; when an append returns, its events are durable.
2. A tail returns every readable event from its offset on, once, in order; offsets may have gaps.
3. `read_to_end` reads the end offset first and stops exactly there, also if the last offsets hold no events
   (transaction markers, aborted events, unreadable values).
4. A log whose first available offset is above the wanted one is refused, never read as an empty log.

A record that cannot be decoded is not silently dropped: the reader gets its location and the reason (`Unreadable`), and
continues.

The first append of a process that follows the log also appends the schemas that it writes with, unless the log has them
(SchemasRegistered).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from ...schemas.event import EVERYONE, Event, Record
from ...schemas.types import Header
from ..core.leadership import LeadershipState

LARGEST_EVENT = 16 << 20
"""The maximum bytes of an encoded event. It is twice what a client may submit (`topics.LARGEST_SUBMISSION`), so that
every event that the services derive from a submission, with its graph, fits."""
SKIPPED = "log.skipped-offsets names it"
"""The reason of an unreadable record that every reader skips."""


class LogUnavailable(Exception):
    """The log cannot be reached or written; the message says where and what to do."""


class EventRefused(ValueError):
    """An event that no log accepts: it does not fit its schema or is too large. Nothing of its batch was appended."""

    def __init__(self, place: int, reason: str) -> None:
        self.place = place
        """The index of the event in its batch, from 0."""
        super().__init__(reason)


class EventTooLarge(EventRefused):
    """An event of more than LARGEST_EVENT bytes."""

    def __init__(self, place: int, name: str, size: int) -> None:
        super().__init__(place, f"{name} has {size:,} bytes, but the log accepts at most {LARGEST_EVENT:,}")


class LogTruncated(Exception):
    """The log no longer holds the offset that the reader needs."""

    def __init__(self, topic: str, wanted: int, first: int) -> None:
        self.first = first
        """The first available offset."""
        super().__init__(
            f"{topic} begins at offset {first}, but offset {wanted} is needed to rebuild the state: "
            "its head was deleted, and this process finds no archive of it. Restore the topic or the archive below "
            "high-availability.storageDir, and set retention.ms=-1 and retention.bytes=-1 on the topic."
        )


class Unreadable(msgspec.Struct, frozen=True):
    """A record of the log that is not a readable event: its location, the reason, and its bytes."""

    topic: str
    partition: int
    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    header: Header | None = None
    """The Header at its beginning, if the record looks like an event with an unknown schema."""
    release: str | None = None
    """The release that has the schema, if the log names it."""
    contradicts_key: bool = False
    """Whether it is an event that the key of its message contradicts."""

    @property
    def archived_value(self) -> bytes | None:
        """The bytes to keep in a file. None for an event that contradicts its key: a file has no keys, so its
        readers would take the bytes for an event."""
        return None if self.contradicts_key else self.value


OnUnreadable = Callable[[Unreadable], None]
Concerns = Callable[[str, str], bool]
"""(sender, recipient) -> whether the reader wants the event; others are skipped without being decoded."""


class AddressFilter(msgspec.Struct, frozen=True):
    """A Concerns of the events to and from addresses, and of those to everyone."""

    addresses: frozenset[str]

    def __call__(self, sender: str, recipient: str) -> bool:
        return recipient in self.addresses or sender in self.addresses or recipient == EVERYONE


class Tail(Protocol):
    """A position in the log that moves forward; not thread-safe."""

    @property
    def position(self) -> int:
        """The next offset to read: everything below it has been returned, skipped or reported."""
        ...

    @property
    def bytes_read(self) -> int:
        """The bytes of all values below `position`, those of skipped and unreadable records included."""
        ...

    def poll(self, timeout_s: float) -> list[Record]:
        """Returns the available events, in order; waits up to `timeout_s` seconds for the first. Raises
        LogUnavailable."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class EventLog(Protocol):
    """One log; thread-safe."""

    @property
    def topic(self) -> str:
        """The name of the log in messages."""
        ...

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        """Appends in the given order; returns the offsets when all events are durable.

        `most_bytes`: appends only the first events that have at most so many bytes together, at least one; returns as
        many offsets. Raises LogUnavailable; EventRefused for an event that cannot be written, and then appends nothing.
        """
        ...

    def end(self) -> int:
        """Returns the end offset: the last stable offset plus one."""
        ...

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        """Reads from offset `start` on. Raises LogTruncated."""
        ...

    def follow(self, leadership: LeadershipState) -> None:
        """Writes with the schemas of this feature level from now on, and registers those that the log does not have
        with the next append. Called by a process that has read the log."""
        ...

    def close(self) -> None:
        """Closes the connections."""
        ...


def read_to_end(
    log: EventLog, start: int = 0, *, end: int | None = None, on_unreadable: OnUnreadable | None = None
) -> Iterator[list[Record]]:
    """Yields batches of all events from `start` to the current end of the log, or to `end` (exclusive) if it is
    lower."""
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
