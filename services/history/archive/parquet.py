"""An exported log as a Parquet file: to ask questions of with SQL (docs/history.md). Its columns are in
arrow_columns.py.

The description is among the file's key-value metadata (`tailrace.description`, and `tailrace.check`, its CRC-32). Pages
have checksums of their own; what lies around them has none, so each entry has a `check` besides, which a reader of the
same schemas holds against what it has read. A Parquet file is read from its foot: one that is torn off can't be read.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ....schemas.catalog import EVENTS
from .arrow_columns import PREFIX, as_columns, check, column_of, from_columns, schema
from .errors import CorruptArchive, NotAnArchive, UnknownEventType
from .manifest import ArchiveManifest, Item, parse_description
from .record_schema import schema_text

MAGIC = b"PAR1"
_ROW_GROUP = 64 << 10
"""Rows. Each group lists all columns once more, though most are empty."""
_BATCH = 4_096
_DESCRIPTION = b"tailrace.description"
_CHECK = b"tailrace.check"
_SCHEMA = b"tailrace.schema"
_BROKEN = (pa.ArrowException, OSError, ValueError, TypeError, IndexError, MemoryError, OverflowError)
"""What reading a damaged file raises."""


class ParquetWriter:
    """Writes into a new file."""

    def __init__(self, file: BinaryIO, description: ArchiveManifest) -> None:
        """`description`: as far as it is known."""
        self._writer = pq.ParquetWriter(
            file,
            schema(),
            compression="zstd",
            write_page_checksum=True,
            write_statistics=["offset", "type", "time", "sender", "recipient"],
        )
        self._batches: list[pa.Table] = []
        self._waiting: list[Item] = []
        self._rows = 0

    def write(self, items: Sequence[Item]) -> None:
        """The next ones, in order. Raises OSError."""
        self._waiting.extend(items)
        while len(self._waiting) >= _BATCH:
            self._take(_BATCH)
            if self._rows >= _ROW_GROUP:
                self._flush()

    def finish(self, description: ArchiveManifest) -> None:
        """What is left, and what the file says of itself."""
        self._take(len(self._waiting))
        self._flush()
        text = msgspec.json.encode(description)
        metadata = {_DESCRIPTION: text, _CHECK: b"%08x" % zlib.crc32(text), _SCHEMA: _schema_digest()}
        self._writer.add_key_value_metadata(metadata)
        self._writer.close()

    def abandon(self) -> None:
        """Nothing more is written: pyarrow's writer would add a foot when it is forgotten."""
        self._writer.is_open = False

    def _take(self, count: int) -> None:
        if count:
            self._batches.append(as_columns(self._waiting[:count]))
            del self._waiting[:count]
            self._rows += count

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(pa.concat_tables(self._batches), row_group_size=_ROW_GROUP)
            self._batches, self._rows = [], 0


class ParquetReader:
    """Reads a file of any release that is compatible; for one thread."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        """Raises NoArchive; DamagedArchive where nothing can be read of it."""
        self._path = path
        self._file = file
        try:
            self._parquet = pq.ParquetFile(file, page_checksum_verification=True)
            metadata = self._parquet.schema_arrow.metadata or {}
            metadata = {**metadata, **(self._parquet.metadata.metadata or {})}
            self._groups: int = self._parquet.num_row_groups
            self._columns = list(self._parquet.schema_arrow.names)
        except _BROKEN as error:
            raise CorruptArchive(path, "its foot", _words(error), None) from None
        if _DESCRIPTION not in metadata:
            raise NotAnArchive(
                f"{path} is a Parquet file, but not of a log: `tailrace log export` writes one"
            )
        text = metadata[_DESCRIPTION]
        if metadata.get(_CHECK) != b"%08x" % zlib.crc32(text):
            raise CorruptArchive(path, "its foot", "the checksum of its description is another", None)
        self.description: ArchiveManifest = parse_description(path, text)
        self._checked = metadata.get(_SCHEMA) == _schema_digest()
        if self._parquet.metadata.num_rows != self.description.entries:
            raise CorruptArchive(
                path,
                "its foot",
                f"it tells of {self._parquet.metadata.num_rows:,} rows, not of {self.description.entries:,}",
                None,
            )

    def read(self, start: int) -> Iterator[list[Item]]:
        """All from offset `start` on. Raises DamagedArchive, UnknownEvent when it comes to it."""
        number = self._find(start)
        last: int | None = None
        for group in range(number, self._groups):
            try:
                for row, items, checks in self._group(group, start):
                    begins = group == row == 0
                    self._check(items, checks, self.description.first - 1 if begins else last)
                    last = items[-1].offset
                    if items[0].offset < start:
                        items = [each for each in items if each.offset >= start]
                    if items:
                        yield items
            except _BROKEN as error:
                raise self._damaged(group, last, _words(error)) from None
        if last is not None and last != self.description.last:
            why = f"it ends after offset {last}, and should with {self.description.last}"
            raise self._damaged(self._groups, last, why)

    def close(self) -> None:
        """Gives the file back."""
        self._parquet.close()
        self._file.close()

    def _group(self, group: int, start: int) -> Iterator[tuple[int, list[Item], list[int]]]:
        """Its entries from a little before `start` on: the first one's row, and what they are known again by."""
        bodies = {column_of(name) for name in EVENTS}
        base = self._parquet.read_row_group(group, [name for name in self._columns if name not in bodies])
        present = {column_of(PREFIX + kind) for kind in base.column("type").unique().to_pylist() if kind}
        wanted = [name for name in self._columns if name in present]
        table = base
        if wanted:
            for name, column in zip(wanted, self._parquet.read_row_group(group, wanted).columns, strict=True):
                table = table.append_column(name, column)
        offsets = table.column("offset").to_numpy()
        begin = int(np.searchsorted(offsets, start)) // _BATCH * _BATCH
        for at in range(begin, table.num_rows, _BATCH):
            rows = table.slice(at, _BATCH)
            types = rows.column("type").to_pylist()
            unknown = next(
                (row for row, each in enumerate(types) if each and PREFIX + each not in EVENTS), None
            )
            known = rows.slice(0, unknown)
            if known.num_rows:
                yield at, from_columns(known, str(self._path)), known.column("check").to_pylist()
            if unknown is not None:
                raise UnknownEventType(self._path, int(offsets[at + unknown]), types[unknown])

    def _check(self, items: list[Item], checks: list[int], last: int | None) -> None:
        """Raises ValueError where the entries are not those that were written."""
        sparse = not self.description.whole or self.description.gaps > 0
        for item, known in zip(items, checks, strict=True):
            if last is not None and item.offset != last + 1 and not (sparse and item.offset > last):
                raise ValueError(f"offset {item.offset} follows {last}")
            if self._checked and check(item) != known:
                raise ValueError(f"the checksum of offset {item.offset} is another")
            last = item.offset

    def _find(self, start: int) -> int:
        """The row group that the offset is in, as far as the file's foot tells."""
        for group in range(self._groups):
            last = self._last_of(group)
            if last is None or last >= start:
                return group
        return max(0, self._groups - 1)

    def _last_of(self, group: int) -> int | None:
        try:
            statistics = self._parquet.metadata.row_group(group).column(0).statistics
            if statistics is None or not statistics.has_min_max:
                return None
            return int(statistics.max)
        except _BROKEN:
            return None

    def _damaged(self, group: int, last: int | None, why: str) -> CorruptArchive:
        if last is None and group:
            last = self._last_of(group - 1)
        good = None if last is None or last < self.description.first else last
        return CorruptArchive(self._path, f"row group {group + 1} of {self._groups}", why, good)


def _schema_digest() -> bytes:
    return hashlib.blake2b(schema_text().encode(), digest_size=8).hexdigest().encode()


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
