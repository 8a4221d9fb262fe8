"""The unpublished files of a sink, and their changelog.

A file is *filled* with chunks, *closed* in the transaction that has its last chunk, and *published* after that
transaction is committed; a later transaction records the publication. Applying the changelog in order to an empty state
gives all unpublished files with all their bytes. Publishing a file again does nothing.

A file's name begins with its bucket, a relative path. Each bucket has at most one open file.

A file has the *form* of its chunks, by which the sink reads them. A later program may write another one.

A closed file keeps its name wherever its state goes, because it may have been published under it. An open file gets a
new name from the attempt that continues it: another job (whose savepoint was restored) may have closed it with other
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from ...records.buffers import NO_WATERMARK

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
    form: bytes = b""
    """Set with its first chunk; empty in state of a release that had no forms."""


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


class Dated(msgspec.Struct, frozen=True, tag="d", array_like=True):
    """A bucket with records has no commit marker yet."""

    bucket: str
    end: int
    """When it ends (ms)."""


class Passed(msgspec.Struct, frozen=True, tag="t", array_like=True):
    """The records of buckets that end until this time are in closed files."""

    time: int


class Marked(msgspec.Struct, frozen=True, tag="m", array_like=True):
    """The bucket has its commit marker."""

    bucket: str


FileChange = Filled | Closed | Published | Renamed | Dated | Passed | Marked
_DECODER: Final = msgspec.msgpack.Decoder(FileChange)


class PendingFile:
    """One file that is not published yet."""

    def __init__(self, number: int, opened_at: int, name: str, form: bytes) -> None:
        self.number = number
        self.opened_at = opened_at
        self.name = name
        self.form = form
        self.records = 0
        self.size = 0
        self.chunks: list[bytes] = []
        self.closed = False
        self._parts: list[bytes] = []

    @property
    def bucket(self) -> str:
        """The directory of the file, below that of the sink."""
        return self.name.rpartition("/")[0]

    def add(self, records: int, data: bytes, *, last: bool = True) -> None:
        """Adds a chunk, or a part of one."""
        self._parts.append(data)
        self.records += records
        self.size += len(data)
        if last:
            self.chunks.append(b"".join(self._parts))
            self._parts.clear()


class PendingFiles:
    """The pending files by ascending number."""

    def __init__(self, name_of: Callable[[int, str], str], form: bytes = b"") -> None:
        """`name_of` returns the name of a new file from its number and bucket. `form`: that of new files."""
        self._name_of = name_of
        self._form = form
        self._files: dict[int, PendingFile] = {}
        self.open_files: dict[str, PendingFile] = {}
        """The files that are being filled, by bucket."""
        self.unmarked: dict[str, int] = {}
        """The ends of buckets with records that have no commit marker yet."""
        self.passed = NO_WATERMARK
        """All records of buckets that end until then are in closed files."""
        self._next = 0
        self._changes: list[FileChange] = []

    @property
    def open_file(self) -> PendingFile | None:
        """The file that is being filled, without a bucket."""
        return self.open_files.get("")

    @property
    def closed(self) -> list[PendingFile]:
        """Returns the files to publish once the changes that were taken are committed."""
        return [file for file in self._files.values() if file.closed]

    def is_published(self, number: int) -> bool:
        """Whether the file with that number, of this subtask, was closed."""
        return number < self._next and all(file.number != number for file in self.open_files.values())

    def fill(self, records: int, chunk: bytes, now: int, bucket: str = "") -> PendingFile:
        """Adds a chunk to the open file of a bucket, opening one if there is none."""
        file = self.open_files.get(bucket)
        if file is None:
            file = self._opened(self._next, now, self._name_of(self._next, bucket), self._form)
        self._changes += _filled(file, records, chunk)
        file.add(records, chunk)
        return file

    def close(self, bucket: str = "") -> bool:
        """Closes the open file of a bucket. Returns whether there was one."""
        if (file := self.open_files.pop(bucket, None)) is None:
            return False
        file.closed = True
        self._changes.append(Closed(file.number))
        return True

    def date(self, bucket: str, end: int) -> None:
        """Records that a bucket has records."""
        if bucket not in self.unmarked:
            self.unmarked[bucket] = end
            self._changes.append(Dated(bucket, end))

    def mark(self, bucket: str) -> None:
        """Records that a bucket has its commit marker."""
        if self.unmarked.pop(bucket, None) is not None:
            self._changes.append(Marked(bucket))

    def pass_time(self, time: int) -> None:
        """Records that all records of buckets that end until this time are in closed files."""
        self.passed = time
        self._changes.append(Passed(time))

    def published(self, number: int) -> None:
        """Records that a closed file is published."""
        del self._files[number]
        self._changes.append(Published(number))

    def skip_to(self, number: int) -> None:
        """Gives new files no number below this one."""
        if self._next < number:
            self._next = number
            self._changes.append(Published(number - 1))

    def take_changes(self) -> Iterator[bytes]:
        """Yields the changes since the last call."""
        changes, self._changes = self._changes, []
        return map(msgspec.msgpack.encode, changes)

    def full(self) -> Iterator[bytes]:
        """Yields the whole state as changes, as of the last `take_changes`."""
        if self._next:
            yield msgspec.msgpack.encode(Published(self._next - 1))
        for file in self._files.values():
            written = PendingFile(file.number, file.opened_at, file.name, file.form)
            records = file.records
            for chunk in file.chunks:
                yield from map(msgspec.msgpack.encode, _filled(written, records, chunk))
                written.add(records, chunk)
                records = 0
            if file.closed:
                yield msgspec.msgpack.encode(Closed(file.number))
        for bucket, end in self.unmarked.items():
            yield msgspec.msgpack.encode(Dated(bucket, end))
        if self.passed != NO_WATERMARK:
            yield msgspec.msgpack.encode(Passed(self.passed))

    def restore(self, message: bytes) -> None:
        """Applies a change. Raises msgspec.DecodeError if it is invalid."""
        change: FileChange = _DECODER.decode(message)
        match change:
            case Filled(number, opened_at, records, data, last, name, form):
                file = self._files.get(number)
                if file is None:
                    file = self._opened(number, opened_at, name, form)
                file.add(records, data, last=last)
            case Closed(number):
                file = self._files[number]
                file.closed = True
                if self.open_files.get(file.bucket) is file:
                    del self.open_files[file.bucket]
            case Published(number):
                self._files.pop(number, None)
                self._next = max(self._next, number + 1)
            case Renamed(number, name):
                self._files[number].name = name
            case Dated(bucket, end):
                self.unmarked[bucket] = end
            case Marked(bucket):
                self.unmarked.pop(bucket, None)
            case Passed(time):
                self.passed = time

    def take_in(self, others: Iterable[PendingFiles]) -> None:
        """Adds the files of another subtask: they get numbers here, and open ones are closed."""
        for other in others:
            for file in other._files.values():
                number, self._next = self._next, self._next + 1
                if not file.closed:
                    file.name = self._name_of(number, file.bucket)
                    file.closed = True
                file.number = number
                self._files[number] = file
            for bucket, end in other.unmarked.items():
                self.unmarked[bucket] = end

    def own(self) -> None:
        """Makes all files this subtask's own. Closed files are recorded again: the attempt that commits that
        publishes them. Open files of another form are closed."""
        for bucket, file in list(self.open_files.items()):
            if file.form != self._form:
                self.close(bucket)
        self._changes += (Closed(file.number) for file in self.closed)
        for file in self.open_files.values():
            if file.name != (name := self._name_of(file.number, file.bucket)):
                file.name = name
                self._changes.append(Renamed(file.number, name))

    def _opened(self, number: int, now: int, name: str, form: bytes) -> PendingFile:
        self._next = number + 1
        file = self._files[number] = PendingFile(number, now, name, form)
        self.open_files[file.bucket] = file
        return file


def _filled(file: PendingFile, records: int, chunk: bytes) -> Iterator[Filled]:
    """Yields the messages for a chunk of a file."""
    starts = range(0, max(1, len(chunk)), _MAX_MESSAGE_BYTES)
    for start in starts:
        last = start == starts[-1]
        part = chunk[start : start + _MAX_MESSAGE_BYTES] if len(starts) > 1 else chunk
        first = () if file.chunks or start else (file.name, file.form)
        yield Filled(file.number, file.opened_at, records if last else 0, part, last, *first)
