"""Reads the rows of a table from a range of offsets of a log. Spark's Python workers run it.

Each worker opens the log itself. Ranges consist of offsets, so each event is in exactly one. Spark itself reads Parquet
files; here only their extent is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ....schemas.event import Record
from ...configuration import Configuration
from ...log import EventLog
from ..archive.errors import CorruptArchive, NotAnArchive
from ..archive.exporter import entries
from ..archive.manifest import Item
from ..archive.parquet import DESCRIPTION
from ..log_position import LogPosition, PositionOutOfRange, first_offset
from ..log_source import open_log_source
from .errors import SqlError
from .tables import UNREADABLE, Table

_BATCH = 4_096
_PARQUET = b"PAR1"


def is_parquet(of: Configuration | Path) -> bool:
    """Returns whether Spark reads the file itself. Raises NotAnArchive."""
    if not isinstance(of, Path):
        return False
    try:
        with of.open("rb") as opened:
            return opened.read(len(_PARQUET)) == _PARQUET
    except OSError as error:
        raise NotAnArchive(f"{of} can't be read: {error.strerror or error}") from None


def extent(of: Configuration | Path, first: str | int | None, last: str | int | None) -> tuple[int, int]:
    """Returns (start, end) of the entries between two positions; without them, of all current entries.

    Raises InvalidPosition, PositionOutOfRange, LogUnavailable, ArchiveError; SqlError if the last is before the first.
    """
    begin, last_place = (None if text is None else LogPosition.parse(str(text)) for text in (first, last))
    if is_parquet(of):
        assert isinstance(of, Path)
        start, end = _parquet_extent(of, begin, last_place)
    else:
        with open_log_source(of, selections=True) as source:
            entry = first_offset(source.log) if source.first is None else source.first
            start = entry if begin is None else max(entry, source.start(begin))
            end = source.log.end() if last_place is None else source.at(last_place) + 1
    if begin is not None and last_place is not None and end < start:
        raise SqlError(f"{first} (offset {start}) is after {last} (offset {end - 1})")
    return start, end


def _parquet_extent(file: Path, first: LogPosition | None, last: LogPosition | None) -> tuple[int, int]:
    if file.name.startswith(("_", ".")):
        raise NotAnArchive(f"{file} is hidden from Spark by the first character of its name: rename it")
    try:
        if DESCRIPTION not in (pq.read_metadata(file).metadata or {}):
            raise NotAnArchive(
                f"{file} is a Parquet file, but not of a log: `tailrace log export` writes one"
            )
        rows = pq.read_table(file, columns=["offset", "time"], page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptArchive(file, "its columns or its foot", " ".join(str(error).split()), None) from None
    offsets: list[int] = rows.column("offset").to_pylist()
    if not offsets:
        return 0, 0
    # The highest time so far, because the clocks of senders differ.
    times = pc.cumulative_max(rows.column("time").cast(pa.int64()).fill_null(-(1 << 62))).to_pylist()

    def place(position: LogPosition, at_most: int) -> int:
        """Returns the offset of the position; for a time, the first offset with a time above `at_most`."""
        if position.offset is None:
            return next((o for o, t in zip(offsets, times, strict=True) if t > at_most), offsets[-1] + 1)
        if not offsets[0] - 1 <= position.offset <= offsets[-1]:
            raise PositionOutOfRange(
                f"offset {position.offset} is outside {file}: its first offset is {offsets[0]}, its last {offsets[-1]}"
            )
        return position.offset

    start = offsets[0] if first is None else place(first, (first.time or 0) - 1)
    if last is None:
        return start, offsets[-1] + 1
    return start, place(last, last.time or 0) + (last.offset is not None)


def rows(log: EventLog, table: Table, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the table from offset `start` to `end` (exclusive), in order of offsets.

    Raises LogUnavailable, LogTruncated, ArchiveError.
    """
    waiting: list[Item] = []
    for items in entries(log, start, end):
        waiting += [item for item in items if _is_in(table, item)]
        while len(waiting) >= _BATCH:
            yield table.batch(waiting[:_BATCH])
            del waiting[:_BATCH]
    if waiting:
        yield table.batch(waiting)


def _is_in(table: Table, item: Item) -> bool:
    if not isinstance(item, Record):
        return table.name == UNREADABLE
    return table.name != UNREADABLE and table.event in (None, item.body.AVRO_NAME)
