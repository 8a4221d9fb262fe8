"""Files of state: the messages of one owner, in order, in a range of a file. A StateFile names the range and its
checksum.

The range is a section: a head with the owner and the key groups, then each message after its length. A section ends
with its range. So a growing file is one section, and each checkpoint refers to a longer prefix of it. A file that is
written at once holds many sections, one for each owner and range of key groups, so that a reader takes only its own
part.

A reader checks the range before it returns anything: it returns nothing of a range that is too short or has other
bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from ...infra.storage.errors import CorruptFile
from ...infra.storage.storage import NewFile, Storage
from ...schemas.types import StateFile

_HEAD: Final = struct.Struct("<4sHii")
_MAGIC: Final = b"TRS1"
_LENGTH: Final = struct.Struct("<I")
_SENDER: Final = struct.Struct("<I")
_NO_SENDER: Final = 0xFFFFFFFF
_CHUNK: Final = 8 << 20
"""The number of bytes in one read. A longer range is read twice, first to be checked."""
ANY: Final = -1
"""As first and last key group: messages of any key group, or of none."""


class Section(msgspec.Struct, frozen=True):
    """The head of a section."""

    key: str
    """The owner of these messages: an operator id, `accumulators`, or the result of `in_flight_key`."""
    first_key_group: int = ANY
    last_key_group: int = ANY


class Sections:
    """Writes a file of sections at once: a full snapshot, records in flight, or the changes of a checkpoint if files
    cannot grow.

    Its StateFiles are valid after `close`. Without a section there is no file: no checkpoint would name it, and nothing
    would delete it. Use it as a context manager.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._place = path
        self._path = storage.relative(path)
        self._file: NewFile | None = None

    @property
    def length(self) -> int:
        """The number of bytes written."""
        return 0 if self._file is None else self._file.length

    def add(
        self, key: str, messages: Iterable[bytes], first_key_group: int = ANY, last_key_group: int = ANY
    ) -> StateFile:
        """Writes a section; the first creates the file. Messages may come from an iterator. Raises StorageError."""
        if self._file is None:
            self._file = self._storage.create(self._place)
        file = self._file
        offset = file.length
        crc = 0
        waiting = [_head_of(key, first_key_group, last_key_group)]
        size = len(waiting[0])
        for message in messages:
            waiting += (_LENGTH.pack(len(message)), message)
            size += _LENGTH.size + len(message)
            if size >= _CHUNK:
                crc = _written(file, waiting, crc)
                size = 0
        crc = _written(file, waiting, crc)
        return StateFile(
            path=self._path,
            offset=offset,
            length=file.length - offset,
            crc=crc,
            first_key_group=first_key_group,
            last_key_group=last_key_group,
        )

    def close(self) -> None:
        """Ends the file. Raises StorageError."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Sections:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.__exit__(*error)  # type: ignore[arg-type]


def _written(file: NewFile, waiting: list[bytes], crc: int) -> int:
    """Writes the buffered bytes and updates the checksum."""
    data = b"".join(waiting)
    waiting.clear()
    file.write(data)
    return zlib.crc32(data, crc)


class GrowingFile:
    """A file of one section that grows from checkpoint to checkpoint, for storage with `can_append`."""

    def __init__(self, storage: Storage, path: str, key: str) -> None:
        """Creates the file. Raises StorageError, also if there is one of that name."""
        head = _head_of(key, ANY, ANY)
        self._path = storage.relative(path)
        self._file: NewFile | None = storage.create(path)
        self._crc = 0
        self._write(head)

    @property
    def length(self) -> int:
        """The number of bytes written; 0 after it is closed."""
        return 0 if self._file is None else self._file.length

    def append(self, messages: Iterable[bytes]) -> None:
        """Adds messages. After a StorageError the file cannot be extended; its earlier prefixes stay valid."""
        framed = b"".join(part for message in messages for part in (_LENGTH.pack(len(message)), message))
        if framed:
            self._write(framed)

    def cut(self) -> StateFile:
        """Returns the range of everything added so far."""
        return StateFile(path=self._path, length=self._open().length, crc=self._crc)

    def close(self) -> None:
        """Closes the file; a second call does nothing. Raises StorageError."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self) -> NewFile:
        if self._file is None:
            raise ValueError(f"{self._path} is closed")
        return self._file

    def _write(self, data: bytes) -> None:
        file = self._open()
        try:
            file.write(data)
        except BaseException:
            # The end of the file is unknown now: nothing may be appended.
            self.close()
            raise
        self._crc = zlib.crc32(data, self._crc)


def read_messages(storage: Storage, file: StateFile, key: str | None = None) -> Iterator[bytes]:
    """Yields the messages of a range, in order, after a check of its length and checksum.

    `key`: the required owner. Raises MissingFile, CorruptFile, StorageError.
    """
    return _FileRange(storage, file).messages(key)


def read_section(storage: Storage, file: StateFile) -> Section:
    """Returns the head of a range without a check of its checksum. Raises MissingFile, CorruptFile, StorageError."""
    return _FileRange(storage, file).section()


def check(storage: Storage, file: StateFile) -> None:
    """Whether the range is unchanged. Raises MissingFile, CorruptFile, StorageError."""
    _FileRange(storage, file).check()


def in_flight_key(operator_id: str, input_index: int, partition: int) -> str:
    """Returns the owner of buffers that were in flight on an input of an operator, in one partition."""
    return f"in flight/{operator_id}/{input_index}/{partition}"


def in_flight_message(sender: int, buffer: bytes) -> bytes:
    """Encodes a buffer in flight and the subtask that sent it as a message."""
    return _SENDER.pack(sender) + buffer


def in_flight_type(layout: bytes) -> bytes:
    """Encodes the type of the records in the following buffers as a message."""
    return _SENDER.pack(_NO_SENDER) + layout


def read_in_flight(storage: Storage, file: StateFile) -> Iterator[tuple[int | None, bytes]]:
    """Yields (sender, buffer) of each message of a range in flight, or None and a type of records (`in_flight_type`).

    Raises MissingFile, CorruptFile, StorageError.
    """
    for message in read_messages(storage, file):
        if len(message) < _SENDER.size:
            raise CorruptFile(f"{storage.absolute(file.path)} holds {len(message)} bytes that are no buffer")
        (sender,) = _SENDER.unpack_from(message)
        yield None if sender == _NO_SENDER else sender, message[_SENDER.size :]


class _FileRange:
    """The range of a StateFile, read in chunks."""

    def __init__(self, storage: Storage, file: StateFile) -> None:
        self._storage = storage
        self._file = file

    def check(self) -> None:
        crc = 0
        for chunk in self._chunks():
            crc = zlib.crc32(chunk, crc)
        self._compare(crc)

    def section(self) -> Section:
        return self._head(self._read)[0]

    def messages(self, key: str | None) -> Iterator[bytes]:
        length = self._file.length
        if length <= _CHUNK:
            whole = self._read(0, length)
            self._compare(zlib.crc32(whole))
            read = _from(whole)
        else:
            self.check()
            read = self._read
        section, at = self._head(read)
        if key is not None and section.key != key:
            raise CorruptFile(f"{self._name} contains messages of {section.key!r}, not of {key!r}")
        rest = b""
        while at < length:
            more = read(at, min(_CHUNK, length - at))
            at += len(more)
            rest += more
            consumed = 0
            for message in self._split(rest, whole=at == length):
                consumed += _LENGTH.size + len(message)
                yield message
            rest = rest[consumed:]

    def _split(self, data: bytes, *, whole: bool) -> Iterator[bytes]:
        """Yields the messages at the beginning of the data. `whole`: the data ends with the last message."""
        at, end = 0, len(data)
        while at + _LENGTH.size <= end:
            until = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            if until > end:
                break
            yield data[at + _LENGTH.size : until]
            at = until
        if whole and at != end:
            raise CorruptFile(f"{self._name} ends in the middle of a message")

    def _head(self, read: Callable[[int, int], bytes]) -> tuple[Section, int]:
        """Returns the head, and the position of the first message."""
        if self._file.length < _HEAD.size:
            raise CorruptFile(f"{self._name} is too short to hold state")
        head = read(0, _HEAD.size)
        magic, length, first, last = _HEAD.unpack(head)
        begin = _HEAD.size + length
        if magic != _MAGIC or begin > self._file.length:
            raise CorruptFile(f"{self._name} is not a file of state: it begins {head[:8].hex()}")
        key = read(_HEAD.size, length).decode(errors="replace")
        return Section(key, first, last), begin

    def _chunks(self) -> Iterator[bytes]:
        for at in range(0, self._file.length, _CHUNK):
            yield self._read(at, min(_CHUNK, self._file.length - at))

    def _read(self, at: int, length: int) -> bytes:
        offset = self._file.offset + at
        data = self._storage.read(self._file.path, offset, length)
        if len(data) < length:
            whole = self._file.offset + self._file.length
            raise CorruptFile(
                f"{self._storage.absolute(self._file.path)} is truncated:"
                f" it has {offset + len(data)} of {whole} bytes"
            )
        return data

    def _compare(self, crc: int) -> None:
        if crc != self._file.crc:
            raise CorruptFile(f"{self._name} is corrupt: its checksum differs")

    @property
    def _name(self) -> str:
        begin = self._file.offset
        return f"{self._storage.absolute(self._file.path)}[{begin}:{begin + self._file.length}]"


def _head_of(key: str, first: int, last: int) -> bytes:
    name = key.encode()
    return _HEAD.pack(_MAGIC, len(name), first, last) + name


def _from(data: bytes) -> Callable[[int, int], bytes]:
    return lambda at, length: data[at : at + length]
