"""The unpublished files of a sink, and their changelog.

A file is *filled* with chunks, *closed* in the transaction that has its last chunk, and *published* after that
transaction is committed; a later transaction records the publication. Applying the changelog in order to an empty state
gives all unpublished files with all their bytes. Publishing a file again does nothing.

A closed file keeps its name wherever its state goes, because it may have been published under it. An open file gets a
new name from the attempt that continues it: another job (whose savepoint was restored) may have closed it with other
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

_MAX_MESSAGE_BYTES: Final = 900_000
"""Bytes of a chunk in one message of the changelog, below Kafka's usual limit of 1 MiB."""


class Filled(msgspec.Struct, frozen=True, tag="f", array_like=True):
    """A chunk, or a part of one; `last` completes it."""

    number: int
    opened_at: int
    """The time of the file's first record (ms)."""
    records: int
    """The number of records in the chunk; 0 for all parts of it but the last."""
    data: bytes
    last: bool
    name: str = ""
    """Set with its first chunk."""


class Closed(msgspec.Struct, frozen=True, tag="c", array_like=True):
    """The file has all its chunks."""

    number: int


class Published(msgspec.Struct, frozen=True, tag="p", array_like=True):
    """The file is published, or (without a file of that number) numbers up to this one are used."""

    number: int


class Renamed(msgspec.Struct, frozen=True, tag="r", array_like=True):
    """The open file has another name."""

    number: int
    name: str


FileChange = Filled | Closed | Published | Renamed
_DECODER: Final = msgspec.msgpack.Decoder(FileChange)


class PendingFile:
    """One file that is not published yet."""

    def __init__(self, number: int, opened_at: int, name: str) -> None:
        self.number = number
        self.opened_at = opened_at
        self.name = name
        self.records = 0
        self.size = 0
        self.chunks: list[bytes] = []
        self.closed = False
        self._parts: list[bytes] = []

    def add(self, records: int, data: bytes, *, last: bool = True) -> None:
        """Adds a chunk, or a part of one."""
        self._parts.append(data)
        self.records += records
        self.size += len(data)
        if last:
            self.chunks.append(b"".join(self._parts))
            self._parts.clear()


class PendingFiles:
    """The pending files by ascending number; at most the last one is open."""

    def __init__(self, name_of: Callable[[int], str]) -> None:
        """`name_of` returns the name of a new file from its number."""
        self._name_of = name_of
        self._files: dict[int, PendingFile] = {}
        self._next = 0
        self._changes: list[FileChange] = []

    @property
    def open_file(self) -> PendingFile | None:
        """The file that is being filled."""
        last = next(reversed(self._files.values()), None)
        return None if last is None or last.closed else last

    @property
    def closed(self) -> list[PendingFile]:
        """Returns the files to publish once the changes that were taken are committed."""
        return [file for file in self._files.values() if file.closed]

    @property
    def first_unclosed(self) -> int:
        """The number of the open file, or of the next one."""
        file = self.open_file
        return self._next if file is None else file.number

    def fill(self, records: int, chunk: bytes, now: int) -> PendingFile:
        """Adds a chunk to the open file, opening one if there is none."""
        file = self.open_file or self._opened(self._next, now, self._name_of(self._next))
        self._changes += _filled(file, records, chunk)
        file.add(records, chunk)
        return file

    def close(self) -> None:
        """Closes the open file, if there is one."""
        if (file := self.open_file) is not None:
            file.closed = True
            self._changes.append(Closed(file.number))

    def published(self, number: int) -> None:
        """Records that a closed file is published."""
        del self._files[number]
        self._changes.append(Published(number))

    def take_changes(self) -> Iterator[bytes]:
        """Yields the changes since the last call."""
        changes, self._changes = self._changes, []
        return map(msgspec.msgpack.encode, changes)

    def full(self) -> Iterator[bytes]:
        """Yields the whole state as changes, as of the last `take_changes`."""
        if self._next:
            yield msgspec.msgpack.encode(Published(self._next - 1))
        for file in self._files.values():
            written = PendingFile(file.number, file.opened_at, file.name)
            records = file.records
            for chunk in file.chunks:
                yield from map(msgspec.msgpack.encode, _filled(written, records, chunk))
                written.add(records, chunk)
                records = 0
            if file.closed:
                yield msgspec.msgpack.encode(Closed(file.number))

    def restore(self, message: bytes) -> None:
        """Applies a change. Raises msgspec.DecodeError if it is invalid."""
        change: FileChange = _DECODER.decode(message)
        match change:
            case Filled(number, opened_at, records, data, last, name):
                file = self._files.get(number)
                if file is None:
                    file = self._opened(number, opened_at, name)
                file.add(records, data, last=last)
            case Closed(number):
                self._files[number].closed = True
            case Published(number):
                self._files.pop(number, None)
                self._next = max(self._next, number + 1)
            case Renamed(number, name):
                self._files[number].name = name

    def take_in(self, others: Iterable[PendingFiles]) -> None:
        """Adds the files of another subtask: they get numbers here, and open ones are closed."""
        for other in others:
            for file in other._files.values():
                number, self._next = self._next, self._next + 1
                if not file.closed:
                    file.name = self._name_of(number)
                    file.closed = True
                file.number = number
                self._files[number] = file

    def own(self) -> None:
        """Makes all files this subtask's own. Closed files are recorded again: the attempt that commits that
        publishes them."""
        self._changes += (Closed(file.number) for file in self.closed)
        file = self.open_file
        if file is not None and file.name != (name := self._name_of(file.number)):
            file.name = name
            self._changes.append(Renamed(file.number, name))

    def _opened(self, number: int, now: int, name: str) -> PendingFile:
        self._next = number + 1
        file = self._files[number] = PendingFile(number, now, name)
        return file


def _filled(file: PendingFile, records: int, chunk: bytes) -> Iterator[Filled]:
    """Yields the messages for a chunk of a file."""
    starts = range(0, max(1, len(chunk)), _MAX_MESSAGE_BYTES)
    for start in starts:
        last = start == starts[-1]
        part = chunk[start : start + _MAX_MESSAGE_BYTES] if len(starts) > 1 else chunk
        name = "" if file.chunks or start else file.name
        yield Filled(file.number, file.opened_at, records if last else 0, part, last, name)
