"""An exported log as an Avro object container file (Avro specification, "Object Container Files").

    header   magic, metadata (avro.schema, avro.codec, tailrace.description, tailrace.check), sync marker (avro_header)
    blocks   number of entries, bytes, deflated entries (log_entry), sync marker

Events are written and read in Avro's binary form, by the compiled functions that the log itself uses. Where blocks
begin is found by going from one head to the next, without inflating more of a block than its first entry's offset.
"""

from __future__ import annotations

import bisect
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ....schemas import binary
from ....schemas.event import Record
from ....schemas.primitives import read_long, read_size, write_bytes, write_long
from ...log.event_log import LARGEST_EVENT, Unreadable
from .avro_header import SYNC, header_bytes, read_header, sync_marker
from .errors import CorruptArchive, UnknownEventType
from .manifest import ArchiveManifest, Item
from .record_schema import CHECK, NO_CHECK, UnknownType, branches

_BLOCK = 256 << 10
"""Bytes of a block before it is deflated."""
_LARGEST_BLOCK = _BLOCK + 2 * LARGEST_EVENT
_LEVEL = 3
_CHECK = struct.Struct(">I")
_HEAD = 20
"""Bytes that the two numbers at a block's head take at most."""
_PEEK = 512
"""Deflated bytes that an offset is found in: deflate's own tables come before it."""
_DEFLATE = -15
"""zlib's word for deflate without a head or a checksum of its own."""


class AvroWriter:
    """Writes into a file that can be sought."""

    def __init__(self, file: BinaryIO, description: ArchiveManifest) -> None:
        """`description`: as far as it is known."""
        self._file = file
        self._description = description
        self._sync = b""
        self._entries: list[bytes] = []
        self._size = 0
        self._branches = {name: b"\x00" + write_long(index) for name, index in branches().items()}
        self._writers: dict[str, binary.Write] = {}

    def write(self, items: Sequence[Item]) -> None:
        """The next ones, in order. Raises OSError."""
        entries, writers, size = self._entries, self._writers, self._size
        for item in items:
            if isinstance(item, Record):
                name = item.body.AVRO_NAME
                write = writers.get(name)
                if write is None:
                    write = writers[name] = binary.functions(name).write
                # Header and body are all that is read of it.
                entry = write_long(item.offset) + self._branches[name] + write(item)  # type: ignore[arg-type]
            else:
                value = b"\x00" if item.value is None else b"\x02" + write_bytes(item.value)
                entry = write_long(item.offset) + value + b"\x00"
            entries.append(entry)
            size += len(entry)
            if size >= _BLOCK:
                self._flush()
                entries, size = self._entries, 0
        self._size = size

    def finish(self, description: ArchiveManifest) -> None:
        """What is left, and what the file says of itself."""
        if self._entries or not self._sync:
            self._flush()
        self._file.seek(0)
        self._file.write(header_bytes(description, self._sync))

    def abandon(self) -> None:
        """Nothing more is written."""

    def _flush(self) -> None:
        entries, self._entries, self._size = self._entries, [], 0
        data = NO_CHECK.join(entries)
        if not self._sync:
            self._sync = sync_marker(self._description, data)
            self._file.write(header_bytes(self._description, self._sync))
        if not entries:
            return
        deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _DEFLATE)
        packed = deflate.compress(data) + deflate.compress(CHECK + _CHECK.pack(zlib.crc32(data)))
        packed += deflate.flush()
        self._file.write(write_long(len(entries)) + write_bytes(packed) + self._sync)


class _Block(NamedTuple):
    """Where a block is: its offset in the log, its number of entries, and where and how long its deflated bytes are."""

    first: int
    entries: int
    at: int
    size: int


class AvroReader:
    """Reads a file of any release that is compatible; for one thread."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        """Raises NoArchive; DamagedArchive where nothing can be read of it."""
        self._path = path
        self._file = file
        self.description, self._readers, self._sync, start = read_header(path, file)
        self._blocks: list[_Block] = []
        self._firsts: list[int] = []
        self._torn: tuple[int, str] | None = None
        self._scan(start)

    def read(self, start: int) -> Iterator[list[Item]]:
        """All from offset `start` on, a block at a time. Raises DamagedArchive, UnknownEvent when it comes to it."""
        number = max(0, bisect.bisect_right(self._firsts, start) - 1)
        while number < len(self._blocks):
            items, unknown = self._items(number)
            if items and items[0].offset < start:
                items = [each for each in items if each.offset >= start]
            if items:
                yield items
            if unknown is not None:
                raise unknown
            number += 1
        if self._torn is not None:
            at, why = self._torn
            raise self._damaged(number, at, why)

    def close(self) -> None:
        """Gives the file back."""
        self._file.close()

    def _scan(self, at: int) -> None:
        """Finds the blocks, up to the first that is torn."""
        size = self._file.seek(0, 2)
        entries = 0
        while at < size:
            try:
                block, end = self._block(at, size)
            except (ValueError, IndexError, zlib.error) as error:
                self._torn = (at, _words(error))
                return
            self._blocks.append(block)
            self._firsts.append(block.first)
            entries += block.entries
            at = end
        if entries != self.description.entries:
            self._torn = (at, f"it ends after {entries:,} of {self.description.entries:,} entries")

    def _block(self, at: int, file_size: int) -> tuple[_Block, int]:
        self._file.seek(at)
        head = self._file.read(_HEAD + _PEEK)
        count, behind = read_size(head, 0)
        size, behind = read_size(head, behind)
        end = at + behind + size
        if count < 1 or end + SYNC > file_size:
            raise ValueError("the file ends within a block" if end + SYNC > file_size else "an empty block")
        offset = zlib.decompressobj(_DEFLATE).decompress(head[behind:], _HEAD)
        first, _ = read_long(offset, 0)
        if self._firsts and first <= self._firsts[-1]:
            raise ValueError(f"offset {first} follows {self._firsts[-1]}")
        self._file.seek(end)
        if self._file.read(SYNC) != self._sync:
            raise ValueError("no sync marker follows the block")
        return _Block(first, count, at + behind, size), end + SYNC

    def _items(self, number: int) -> tuple[list[Item], UnknownEventType | None]:
        """A block's entries up to the first that is not known. Raises DamagedArchive."""
        block = self._blocks[number]
        try:
            return self._decode(block, self._inflate(block))
        except (ValueError, IndexError, TypeError, KeyError, struct.error, EOFError, zlib.error) as error:
            raise self._damaged(number, block.at, _words(error)) from None

    def _inflate(self, block: _Block) -> bytes:
        """Raises ValueError, zlib.error."""
        self._file.seek(block.at)
        inflate = zlib.decompressobj(_DEFLATE)
        data = inflate.decompress(self._file.read(block.size), _LARGEST_BLOCK)
        if not inflate.eof or inflate.unused_data:
            raise ValueError("its compressed bytes do not end where the block ends")
        body = len(data) - len(CHECK) - _CHECK.size
        if body < 0 or data[body : body + 1] != CHECK:
            raise ValueError("its last entry has no checksum")
        if zlib.crc32(memoryview(data)[:body]) != _CHECK.unpack_from(data, body + 1)[0]:
            raise ValueError("its checksum is another")
        return data

    def _decode(self, block: _Block, data: bytes) -> tuple[list[Item], UnknownEventType | None]:
        items: list[Item] = []
        at, last = 0, block.first - 1
        for _ in range(block.entries):
            offset, at = read_long(data, at)
            if offset <= last:
                raise ValueError(f"offset {offset} follows {last}")
            last = offset
            value = None
            if data[at] == 2:
                size, at = read_size(data, at + 1)
                value = data[at : at + size]
                at += size
            else:
                at += 1
            branch, at = read_long(data, at)
            if branch:
                try:
                    event, at = self._readers[branch](data, at)
                except UnknownType as error:
                    return items, UnknownEventType(self._path, offset, str(error))
                items.append(Record(offset, event.header, event.body))
            else:
                items.append(
                    Unreadable(str(self._path), 0, offset, "no event when it was exported", None, value)
                )
            at += 1 if data[at] == 0 else len(CHECK) + _CHECK.size
        if at != len(data):
            raise ValueError(f"its {block.entries} entries do not end where the block ends")
        return items, None

    def _damaged(self, number: int, at: int, why: str) -> CorruptArchive:
        """The block with that number is; `at`: where in the file."""
        place = f"byte {at:,} (block {number + 1})"
        for before in range(number - 1, -1, -1):
            try:
                items, _ = self._items(before)
            except CorruptArchive:
                continue
            if items:
                return CorruptArchive(self._path, place, why, items[-1].offset)
        return CorruptArchive(self._path, place, why, None)


def _words(error: Exception) -> str:
    if isinstance(error, IndexError):
        return str(error) if "ends within" in str(error) else "the file ends within it"
    return " ".join(str(error).split())[:200] or type(error).__name__
