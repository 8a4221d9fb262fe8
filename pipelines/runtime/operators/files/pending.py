"""The files of a sink that are not there yet, and their changelog.

A file is *filled* with chunks, *closed* in the transaction that holds its last one, and *published* after that
transaction has been committed; that it has been is said in a later one. Whoever applies the changelog in order onto
nothing knows what is to be published, with all its bytes: publishing again what is there already does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

_MESSAGE_LIMIT: Final = 900_000
"""Bytes of a chunk in one message of the changelog, below Kafka's usual limit of 1 MiB."""


class Filled(msgspec.Struct, frozen=True, tag="f", array_like=True):
    """A chunk, or a part of one, which is complete with its `last`."""

    number: int
    opened_at: int
    """When the file got its first record (ms)."""
    records: int
    """In the chunk; 0 with all its parts but the last."""
    data: bytes
    last: bool


class Closed(msgspec.Struct, frozen=True, tag="c", array_like=True):
    """The file has all its chunks."""

    number: int


class Published(msgspec.Struct, frozen=True, tag="p", array_like=True):
    """The file is there."""

    number: int


Change = Filled | Closed | Published
_DECODER: Final = msgspec.msgpack.Decoder(Change)


class PendingFile:
    """One file that is not there yet."""

    def __init__(self, number: int, opened_at: int) -> None:
        self.number = number
        self.opened_at = opened_at
        self.records = 0
        self.size = 0
        self.chunks: list[bytes] = []
        self.closed = False
        self._parts: list[bytes] = []

    def add(self, records: int, data: bytes, *, last: bool = True) -> None:
        """A chunk, or a part of one."""
        self._parts.append(data)
        self.records += records
        self.size += len(data)
        if last:
            self.chunks.append(b"".join(self._parts))
            self._parts.clear()


class PendingFiles:
    """Numbers rise; at most the last file is open."""

    def __init__(self) -> None:
        self._files: dict[int, PendingFile] = {}
        self._next = 0
        self._changes: list[Change] = []

    @property
    def open_file(self) -> PendingFile | None:
        """The file that is being filled."""
        last = next(reversed(self._files.values()), None)
        return None if last is None or last.closed else last

    @property
    def closed(self) -> list[PendingFile]:
        """Those to be published once the changes that have been taken are committed."""
        return [file for file in self._files.values() if file.closed]

    def fill(self, records: int, chunk: bytes, now: int) -> PendingFile:
        """Adds a chunk to the open file, opening one if there is none."""
        file = self._opened(self._next, now) if self.open_file is None else self.open_file
        file.add(records, chunk)
        starts = range(0, len(chunk), _MESSAGE_LIMIT)
        for start in starts:
            last = start == starts[-1]
            part = chunk[start : start + _MESSAGE_LIMIT] if len(starts) > 1 else chunk
            self._changes.append(Filled(file.number, file.opened_at, records if last else 0, part, last))
        return file

    def close(self) -> None:
        """Closes the open file, if there is one."""
        if (file := self.open_file) is not None:
            file.closed = True
            self._changes.append(Closed(file.number))

    def published(self, number: int) -> None:
        """Notes that a closed file is there."""
        del self._files[number]
        self._changes.append(Published(number))

    def take_changes(self) -> Iterator[bytes]:
        """The changes since the last call."""
        changes, self._changes = self._changes, []
        return map(msgspec.msgpack.encode, changes)

    def restore(self, message: bytes) -> None:
        """Applies a change. Raises msgspec.DecodeError for what is none."""
        change: Change = _DECODER.decode(message)
        match change:
            case Filled(number, opened_at, records, data, last):
                file = self._files.get(number) or self._opened(number, opened_at)
                file.add(records, data, last=last)
            case Closed(number):
                self._files[number].closed = True
            case Published(number):
                self._files.pop(number, None)

    def _opened(self, number: int, now: int) -> PendingFile:
        self._next = number + 1
        file = self._files[number] = PendingFile(number, now)
        return file
