"""The files of a sink that are not there yet, and their changelog.

A file is *filled* with chunks, *closed* in the transaction that holds its last one, and *published* after that
transaction has been committed; that it has been is said in a later one. Whoever applies the changelog in order onto
nothing knows what is to be published, with all its bytes: publishing again what is there already does nothing.

A closed file keeps its name wherever its state goes, for it may have been published under it. One that is open gets a
name of whoever goes on with it: others may have closed it with other records (a job that a savepoint was taken of).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

_MAX_MESSAGE_BYTES: Final = 900_000
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
    name: str = ""
    """With its first chunk."""


class Closed(msgspec.Struct, frozen=True, tag="c", array_like=True):
    """The file has all its chunks."""

    number: int


class Published(msgspec.Struct, frozen=True, tag="p", array_like=True):
    """The file is there, or (without a file of that number) numbers up to this have been used."""

    number: int


class Renamed(msgspec.Struct, frozen=True, tag="r", array_like=True):
    """The open file has another name."""

    number: int
    name: str


FileChange = Filled | Closed | Published | Renamed
_DECODER: Final = msgspec.msgpack.Decoder(FileChange)


class PendingFile:
    """One file that is not there yet."""

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
        """A chunk, or a part of one."""
        self._parts.append(data)
        self.records += records
        self.size += len(data)
        if last:
            self.chunks.append(b"".join(self._parts))
            self._parts.clear()


class PendingFiles:
    """Numbers rise; at most the last file is open."""

    def __init__(self, name_of: Callable[[int], str]) -> None:
        """`name_of`: the name of a file that is begun here, by its number."""
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
        """Those to be published once the changes that have been taken are committed."""
        return [file for file in self._files.values() if file.closed]

    @property
    def first_unclosed(self) -> int:
        """The number of the open file, or of the next."""
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
        """Notes that a closed file is there."""
        del self._files[number]
        self._changes.append(Published(number))

    def take_changes(self) -> Iterator[bytes]:
        """The changes since the last call."""
        changes, self._changes = self._changes, []
        return map(msgspec.msgpack.encode, changes)

    def full(self) -> Iterator[bytes]:
        """All of it as changes, as of the last `take_changes`."""
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
        """Applies a change. Raises msgspec.DecodeError for what is none."""
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
        """Of others: their files get numbers here, and those that are open are closed."""
        for other in others:
            for file in other._files.values():
                number, self._next = self._next, self._next + 1
                if not file.closed:
                    file.name = self._name_of(number)
                    file.closed = True
                file.number = number
                self._files[number] = file

    def own(self) -> None:
        """All files are this one's from now on. What is closed is said again: it is shown by whoever commits that."""
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
    """A chunk that the file is to get, in messages."""
    starts = range(0, max(1, len(chunk)), _MAX_MESSAGE_BYTES)
    for start in starts:
        last = start == starts[-1]
        part = chunk[start : start + _MAX_MESSAGE_BYTES] if len(starts) > 1 else chunk
        name = "" if file.chunks or start else file.name
        yield Filled(file.number, file.opened_at, records if last else 0, part, last, name)
