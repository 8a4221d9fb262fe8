"""The splits of files that one subtask reads, its position in them, and their changelog.

Files are in *shares*: those of one listing, or the unread rest of an old subtask after a change of parallelism. A share
has a number for ever; of a watched directory, shares that are read are dropped.

A watched directory needs the files that are *known*, so that each is read once. They may be forgotten: see KnownFiles.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ....operators.files.source_storage import FoundFile
from ....state_backend.stateful import Origin

_SHARE: Final = b"S"
_LISTED: Final = b"L"
_KNOWN: Final = b"K"
_POSITION: Final = b"P"
_FIRST: Final = b"F"
_AT_ONCE: Final = 2_000
"""The number of files in one message of the changelog, which may have 1 MiB."""


class SplitPosition(msgspec.Struct, frozen=True, array_like=True):
    """A record of a split of a file of a share."""

    file: int
    split: int
    records: int
    share: int = 0


class SplitOwner(msgspec.Struct, frozen=True, array_like=True):
    """One subtask of a number of subtasks."""

    subtask: int
    parallelism: int

    def first(self, path: str) -> int:
        """Returns the first split of a file that the subtask owns. The others follow in steps of the parallelism."""
        return (self.subtask - zlib.crc32(path.encode())) % self.parallelism


class SplitAssignment(msgspec.Struct, frozen=True, array_like=True):
    """Files with the owners of their splits. Only splits that belong to all of the owners are read, from one file,
    split and record on."""

    owners: tuple[SplitOwner, ...]
    file: int = 0
    split: int = 0
    records: int = 0


class KnownFiles:
    """The files that were found.

    A file is known if it was found, or if it is more than `max_age_ms` older than the newest one. So older ones may be
    forgotten, and the number of files that are kept is bounded by what appears in that time. A modification time in the
    future counts as the present. Where a file system tells no times, all files are kept.
    """

    def __init__(self, max_age_ms: int) -> None:
        self._max_age_ms = max_age_ms
        self._files: dict[str, FoundFile] = {}
        self._newest: int | None = None

    def __iter__(self) -> Iterator[FoundFile]:
        return iter(self._files.values())

    def add(self, file: FoundFile) -> None:
        """Adds a file, or what it is like now."""
        self._files[file.path] = file
        self._newest = file.modified_ms if self._newest is None else max(self._newest, file.modified_ms)

    def has(self, file: FoundFile, now: int) -> bool:
        """Whether the file is known."""
        return file.path in self._files or file.modified_ms < self._oldest(now)

    def is_changed(self, file: FoundFile) -> bool:
        """Whether a file has changed since it was found."""
        return self._files.get(file.path, file) != file

    def forget(self, now: int) -> None:
        """Forgets files that are too old to be read."""
        oldest = self._oldest(now)
        if any(file.modified_ms < oldest for file in self):
            self._files = {path: file for path, file in self._files.items() if file.modified_ms >= oldest}

    def _oldest(self, now: int) -> float:
        return float("-inf") if self._newest is None else min(self._newest, now) - self._max_age_ms


class FileSplits:
    """The assigned splits and the progress in them."""

    def __init__(self, known: KnownFiles | None = None) -> None:
        """`known`: None if no directory is watched."""
        self.shares: dict[int, SplitAssignment] = {}
        self.files: dict[int, list[FoundFile]] = {}
        self.position = SplitPosition(0, 0, 0)
        self.known = known
        self._next = 0

    def apply(self, message: bytes, owner: SplitOwner) -> None:
        """Applies a message. Raises ValueError. `owner`: the subtask that wrote it."""
        match message[:1]:
            case b"S":
                self.add(msgspec.msgpack.decode(message[1:], type=SplitAssignment), [])
            case b"L":
                if not self.shares:
                    self.add(SplitAssignment((owner,)), [])
                files = msgspec.msgpack.decode(message[1:], type=list[FoundFile])
                self.files[self._next - 1] += files
                self._add_known(files)
            case b"K":
                self._add_known(msgspec.msgpack.decode(message[1:], type=list[FoundFile]))
            case b"P":
                self.position = msgspec.msgpack.decode(message[1:], type=SplitPosition)
            case b"F":
                self._begin_with(msgspec.msgpack.decode(message[1:], type=int))
            case kind:
                raise ValueError(f"the changelog holds a message of unknown kind {kind!r}")

    def add(self, share: SplitAssignment, files: list[FoundFile]) -> int:
        """Adds an assignment after the others. Returns its number."""
        number, self._next = self._next, self._next + 1
        self.shares[number] = share
        self.files[number] = files
        self._add_known(files)
        if len(self.shares) == 1:
            self.position = SplitPosition(share.file, share.split, share.records, number)
        return number

    def take_over(self, origins: Mapping[Origin, FileSplits], own: SplitOwner, now: int) -> None:
        """Adds what is left of the subtasks before a change of parallelism; `own` takes its part of each.

        A file that only some of them have found is new for the others: their splits of it are read, too.
        """
        for origin in origins.values():
            for share, files in origin.left():
                self.add(msgspec.structs.replace(share, owners=(*share.owners, own)), files)
        if self.known is None:
            return
        found = {file.path: file for origin in origins.values() for file in origin.known or ()}
        self._add_known(found.values())
        for at, origin in origins.items():
            known = origin.known
            assert known is not None
            missed = [found[path] for path in sorted(found) if not known.has(found[path], now)]
            if missed:
                share = SplitAssignment((SplitOwner(at.subtask_index, at.parallelism), own))
                self.add(share, missed)

    def left(self) -> Iterator[tuple[SplitAssignment, list[FoundFile]]]:
        """Yields the assignments with unread files."""
        at = self.position
        for number in self.numbers():
            share = self.shares[number]
            if number == at.share:
                share = SplitAssignment(share.owners, at.file, at.split, at.records)
            yield share, self.files[number]

    def numbers(self) -> Sequence[int]:
        """Returns the numbers of the shares that are not read completely, in order."""
        return [number for number in self.shares if number >= self.position.share]

    def drop_read(self) -> Iterator[bytes]:
        """Drops the shares before the position. Yields the message that does so."""
        if any(number < self.position.share for number in self.shares):
            self._begin_with(self.position.share)
            yield _FIRST + msgspec.msgpack.encode(self.position.share)

    def share_messages(self, number: int) -> Iterator[bytes]:
        """Yields a share as messages for `apply`."""
        yield _SHARE + msgspec.msgpack.encode(self.shares[number])
        yield from _portions(_LISTED, self.files[number])

    def position_message(self) -> bytes:
        """Returns the position as a message for `apply`."""
        return _POSITION + msgspec.msgpack.encode(self.position)

    def messages(self) -> Iterator[bytes]:
        """Yields the whole state as messages for `apply`."""
        if first := min(self.shares, default=0):
            yield _FIRST + msgspec.msgpack.encode(first)
        for number in self.shares:
            yield from self.share_messages(number)
        listed = {file.path for files in self.files.values() for file in files}
        yield from _portions(_KNOWN, [file for file in self.known or () if file.path not in listed])
        if self.shares:
            yield self.position_message()

    def _begin_with(self, first: int) -> None:
        self._next = max(self._next, first)
        for number in [number for number in self.shares if number < first]:
            del self.shares[number], self.files[number]

    def _add_known(self, files: Iterable[FoundFile]) -> None:
        if self.known is not None:
            for file in files:
                self.known.add(file)


def _portions(kind: bytes, items: Sequence[object]) -> Iterator[bytes]:
    for start in range(0, len(items), _AT_ONCE):
        yield kind + msgspec.msgpack.encode(items[start : start + _AT_ONCE])
