"""The last records of the log in memory, by address.

TaskExecutors that start or reconnect together are served from here, and cost no read of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ...schemas.event import EVERYONE
from ..log.raw_record import RawRecord

_OVERHEAD_BYTES = 300
"""Of a record in memory, besides its value."""


def keys_of(record: RawRecord) -> tuple[str, ...]:
    """Returns the addresses whose readers get the record; EVERYONE for all readers."""
    if record.addresses is None or record.addresses[1] == EVERYONE:
        return (EVERYONE,)
    sender, recipient = record.addresses
    return (recipient,) if sender == recipient else (sender, recipient)


class RecentRecords:
    """All records from offset `first` on, up to `most_bytes`; older ones are dropped."""

    def __init__(self, first: int, most_bytes: int) -> None:
        self.first = first
        self._most_bytes = most_bytes
        self._bytes = 0
        self._records: deque[RawRecord] = deque()
        self._by_key: dict[str, deque[RawRecord]] = {}

    def add(self, record: RawRecord) -> None:
        """Takes the next record of the log."""
        self._records.append(record)
        for key in keys_of(record):
            of_key = self._by_key.get(key)
            if of_key is None:
                of_key = self._by_key[key] = deque()
            of_key.append(record)
        self._bytes += _size(record)
        while self._bytes > self._most_bytes:
            self._drop_oldest()

    def find(self, addresses: Iterable[str], start: int) -> list[RawRecord]:
        """Returns the records for these addresses from offset `start` on, in order."""
        found: dict[int, RawRecord] = {}
        for key in (EVERYONE, *addresses):
            for record in reversed(self._by_key.get(key, ())):
                if record.offset < start:
                    break
                found[record.offset] = record
        return [found[offset] for offset in sorted(found)]

    def _drop_oldest(self) -> None:
        oldest = self._records.popleft()
        for key in keys_of(oldest):
            of_key = self._by_key[key]
            of_key.popleft()
            if not of_key:
                del self._by_key[key]
        self._bytes -= _size(oldest)
        self.first = oldest.offset + 1


def _size(record: RawRecord) -> int:
    return len(record.value or b"") + len(record.key or b"") + _OVERHEAD_BYTES
