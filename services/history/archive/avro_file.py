"""The archive: an exported log as an Avro object container file (Avro specification, "Object Container Files").

    header   the schema (record_schema.py), `tailrace.description` (manifest.py), `tailrace.schema`, `tailrace.check`
    blocks   number of entries, bytes, deflated entries, sync marker

fastavro writes and reads the header. Entries are written and read by the compiled functions that the log itself uses:
fastavro's way through dicts costs several times as much. A reader walks from one block's head to the next, and inflates
only as much of a block as its first offset needs. So any offset is found quickly, and damage is found block by block.

`tailrace.description` is padded: it is complete only when the last entry is written. `tailrace.check` is the CRC-32 of
the description and the schema. The sync marker follows from the cluster's id: the same log gives the same file.
"""

from __future__ import annotations

import bisect
import hashlib
import io
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from ....schemas import binary
from ....schemas.event import Record
from ....schemas.primitives import read_long, read_size, write_bytes, write_long
from ...log.event_log import LARGEST_EVENT, Unreadable
from .errors import CorruptArchive, NotAnArchive, UnknownEventType
from .manifest import ArchiveManifest, Item, padded, parse_description
from .record_schema import (
    CHECK,
    NO_CHECK,
    SchemaReaders,
    UnknownType,
    branches,
    schema_digest,
    schema_readers,
    schema_text,
)

MAGIC = b"Obj\x01"
_BLOCK = 256 << 10
"""The size of a block before compression."""
_LARGEST_BLOCK = _BLOCK + 2 * LARGEST_EVENT
_LEVEL = 3
_CHECK = struct.Struct(">I")
_SYNC = 16
"""The size of the sync marker."""
_HEAD = 20
"""The largest size of the two numbers at a block's head."""
_PEEK = 512
"""The number of compressed bytes in which an offset is found: deflate's tables come before it."""
_DEFLATE = -15
"""zlib's value for deflate without header and checksum."""
_BROKEN = (ValueError, IndexError, TypeError, KeyError, struct.error, EOFError, zlib.error)
"""The errors of reading a damaged block."""


def write_avro(
    file: BinaryIO, batches: Iterable[list[Item]], describe: Callable[[], ArchiveManifest]
) -> None:
    """Writes the entries, in order, into a file that can be sought. `describe` returns the manifest so far. Raises
    OSError."""
    write_header(file, describe())
    for count, data in _blocks(batches):
        file.write(_packed(count, data, describe().cluster))
    file.seek(0)
    write_header(file, describe())


def write_header(file: BinaryIO, description: ArchiveManifest) -> None:
    """Writes the header; its length is the same for each description."""
    from fastavro.write import Writer

    schema, text = json.loads(schema_text()), padded(msgspec.json.encode(description)).decode()
    metadata = {"tailrace.description": text, "tailrace.schema": schema_digest()}
    metadata["tailrace.check"] = _header_check(text, json.dumps(schema))
    Writer(file, schema, codec="deflate", metadata=metadata, sync_marker=_sync_marker(description.cluster))


def _header_check(description: str, schema: str) -> str:
    return f"{zlib.crc32(f'{description}{schema}'.encode()):08x}"


def _sync_marker(cluster: str) -> bytes:
    return hashlib.blake2b(cluster.encode(), digest_size=_SYNC).digest()


def _blocks(batches: Iterable[list[Item]]) -> Iterator[tuple[int, bytes]]:
    """Number of entries, and the entries but for the end of the last one."""
    writers: dict[str, tuple[bytes, binary.Write]] = {}
    entries: list[bytes] = []
    size = 0
    for items in batches:
        for item in items:
            if isinstance(item, Record):
                name = item.body.AVRO_NAME
                if name not in writers:
                    writers[name] = b"\x00" + write_long(branches()[name]), binary.functions(name).write
                branch, write = writers[name]
                # Header and body are all that is read of it.
                entry = write_long(item.offset) + branch + write(item)  # type: ignore[arg-type]
            else:
                kept = item.archived_value
                value = b"\x00" if kept is None else b"\x02" + write_bytes(kept)
                entry = write_long(item.offset) + value + b"\x00"
            entries.append(entry)
            size += len(entry)
            if size >= _BLOCK:
                yield len(entries), NO_CHECK.join(entries)
                entries, size = [], 0
    if entries:
        yield len(entries), NO_CHECK.join(entries)


def _packed(count: int, data: bytes, cluster: str) -> bytes:
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _DEFLATE)
    packed = (
        deflate.compress(data) + deflate.compress(CHECK + _CHECK.pack(zlib.crc32(data))) + deflate.flush()
    )
    return write_long(count) + write_bytes(packed) + _sync_marker(cluster)


class _Block(NamedTuple):
    """Where a block is: its first offset, its number of entries, and where and how long its deflated bytes are."""

    first: int
    entries: int
    at: int
    size: int


class AvroReader:
    """Reads a file of any compatible release. Several reads may run at once, in any thread."""

    def __init__(self, path: Path) -> None:
        """Raises NotAnArchive; CorruptArchive if nothing of it can be read; OSError."""
        self._path = path
        self._file = path.open("rb")
        self._blocks: list[_Block] = []
        self._torn: tuple[int, str] | None = None
        try:
            self.description, self._readers = self._read_header()
            self._scan(self._file.tell())
        except BaseException:
            self._file.close()
            raise

    def read(self, start: int) -> Iterator[list[Item]]:
        """Yields the entries from offset `start` on, a block at a time. Raises CorruptArchive, UnknownEventType at
        such a place."""
        number = max(0, bisect.bisect_right(self._blocks, start, key=lambda block: block.first) - 1)
        for place in range(number, len(self._blocks)):
            items, unknown = self._items(place)
            if items and items[0].offset < start:
                items = [item for item in items if item.offset >= start]
            if items:
                yield items
            if unknown is not None:
                raise unknown
        if self._torn is not None:
            raise self._damaged(len(self._blocks), *self._torn)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _read_header(self) -> tuple[ArchiveManifest, SchemaReaders]:
        import fastavro

        path = self._path
        begin = self._file.read(len(MAGIC))
        if begin != MAGIC:
            raise NotAnArchive(_foreign(path, begin))
        self._file.seek(0)
        try:
            metadata = fastavro.block_reader(self._file).metadata
        except Exception as error:
            # fastavro raises all kinds of errors for a truncated or changed header.
            raise CorruptArchive(path, "byte 0 (its header)", _one_line(error), None) from None
        text, digest = metadata.get("tailrace.description"), metadata.get("tailrace.schema")
        if text is None:
            raise NotAnArchive(
                f"{path} is an Avro file, but not of a log: it has no tailrace.description in its metadata; "
                "`tailrace log export` writes one"
            )
        schema = metadata["avro.schema"]
        description = parse_description(path, text.encode())
        has_check = description.tailrace_log > 1
        if has_check and metadata.get("tailrace.check") != _header_check(text, schema):
            raise CorruptArchive(path, "byte 0 (its header)", "its checksum is another", None)
        try:
            return description, schema_readers(schema, digest)
        except Exception as error:
            raise NotAnArchive(f"the schema of {path} is invalid: {_one_line(error)}") from None

    def _scan(self, at: int) -> None:
        """Finds the blocks, up to the first truncated one."""
        self._file.seek(at - _SYNC)
        sync = self._file.read(_SYNC)
        size = self._file.seek(0, io.SEEK_END)
        while at < size:
            try:
                block, end = self._block(at, size, sync)
            except _BROKEN as error:
                self._torn = (at, _one_line(error))
                return
            self._blocks.append(block)
            at = end
        entries = sum(block.entries for block in self._blocks)
        if entries != self.description.entries:
            self._torn = (at, f"it ends after {entries:,} of {self.description.entries:,} entries")

    def _block(self, at: int, file_size: int, sync: bytes) -> tuple[_Block, int]:
        self._file.seek(at)
        head = self._file.read(_HEAD + _PEEK)
        count, behind = read_size(head, 0)
        size, behind = read_size(head, behind)
        end = at + behind + size
        if count < 1 or end + _SYNC > file_size:
            raise ValueError("the file ends within a block" if end + _SYNC > file_size else "an empty block")
        offset = zlib.decompressobj(_DEFLATE).decompress(head[behind:], _HEAD)
        first, _ = read_long(offset, 0)
        if self._blocks and first <= self._blocks[-1].first:
            raise ValueError(f"offset {first} follows {self._blocks[-1].first}")
        self._file.seek(end)
        if self._file.read(_SYNC) != sync:
            raise ValueError("no sync marker follows the block")
        return _Block(first, count, at + behind, size), end + _SYNC

    def _items(self, number: int) -> tuple[list[Item], UnknownEventType | None]:
        """A block's entries up to the first whose type is unknown. Raises CorruptArchive."""
        block = self._blocks[number]
        try:
            return self._decode(block, self._inflate(block))
        except _BROKEN as error:
            raise self._damaged(number, block.at, _one_line(error)) from None

    def _inflate(self, block: _Block) -> bytes:
        inflate = zlib.decompressobj(_DEFLATE)
        data = inflate.decompress(os.pread(self._file.fileno(), block.size, block.at), _LARGEST_BLOCK)
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
        """The error for the block with that number, at byte `at`; for an earlier block if that is damaged, too."""
        last = None
        try:
            for before in range(number - 1, -1, -1):
                items, _ = self._items(before)
                if items:
                    last = items[-1].offset
                    break
        except CorruptArchive as earlier:
            return earlier
        return CorruptArchive(self._path, f"byte {at:,} (block {number + 1})", why, last)


def _foreign(path: Path, begin: bytes) -> str:
    if not begin:
        return f"{path} is empty: no exported log"
    kind = "Parquet" if begin == b"PAR1" else "JSON" if begin[:1] == b"{" else None
    if kind is not None:
        return (
            f"{path} is {kind}, which is for other programs to read: only the Avro format can be read as a log; "
            "`tailrace log export history.avro` writes it"
        )
    return f"{path} is no exported log in the Avro format: `tailrace log export history.avro` writes one"


def _one_line(error: Exception) -> str:
    if isinstance(error, IndexError | EOFError):
        return str(error) if "branch" in str(error) else "the file ends within it"
    return " ".join(str(error).split())[:200] or type(error).__name__
