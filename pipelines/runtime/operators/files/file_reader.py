"""What is in a file: splits, and the records of each in pieces of moderate size.

A split is what one subtask reads from beginning to end; a file has one or more. Which bytes belong to a split depends
on nothing but the file and its number, so that subtasks need not agree on anything: text and Avro files are cut every
SPLIT_BYTES, and a line or block belongs to where it begins; a Parquet file is cut into its row groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa

from ....types import RecordType
from ...common.failures import TaskError
from ...records.batch import Batch
from .source_storage import FoundFile, open_file

SPLIT_BYTES: Final = 8 << 20
"""Small enough to share a file between subtasks, large enough that finding its ends costs nothing beside it."""
_SEARCH_BYTES: Final = 1 << 16


class FileChunk(msgspec.Struct, frozen=True):
    """Some records of a split: rows, or columns of the record type."""

    rows: list[Any] | None = None
    columns: list[pa.Array] | None = None

    def __len__(self) -> int:
        if self.rows is not None:
            return len(self.rows)
        return len(self.columns[0]) if self.columns else 0

    def slice(self, start: int) -> FileChunk:
        """The records from start on."""
        if self.rows is not None:
            return FileChunk(rows=self.rows[start:])
        return FileChunk(columns=[column.slice(start) for column in self.columns or []])

    def batch(self, start: int, stop: int, timestamp: int, record_type: RecordType) -> Batch:
        """The records from start to before stop, all with this timestamp."""
        timestamps = pa.repeat(timestamp, stop - start)
        if self.rows is not None:
            return Batch.from_rows(timestamps, self.rows[start:stop])
        assert self.columns is not None
        return Batch.from_columns(
            timestamps, [column.slice(start, stop - start) for column in self.columns], record_type
        )


class FileReader(Protocol):
    """Reads files of one format as records of one type."""

    def splits(self, file: FoundFile) -> int:
        """How many there are in the file. Raises TaskError."""

    def read(self, file: FoundFile, split: int) -> Iterator[FileChunk]:
        """The records of a split in their order, never a piece without any. Raises TaskError, RecordTypeError."""

    def place(self, split: int, record: int) -> str:
        """Which one of the file's records that is, for people. `record`: its number in the split, from 0."""


def place_in_split(split: int, unit: str, record: int) -> str:
    """Of a file that is cut every SPLIT_BYTES. What lies before the split is not counted: that would be to read it."""
    behind = f" behind byte {split * SPLIT_BYTES}" if split else ""
    return f"{unit} {record + 1}{behind}"


def unreadable(path: str, where: str, error: BaseException) -> TaskError:
    """What is said of a file that cannot be read."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return TaskError(f"{path} could not be read at {where}: {reason}")


def byte_splits(size: int) -> int:
    """Into how many splits a file of so many bytes is cut."""
    return max(1, -(-size // SPLIT_BYTES))


def bounds(source: Any, size: int, split: int, mark: bytes, first: int = 0) -> tuple[int, int]:
    """Where a split's units begin and end (bytes): each begins behind a mark, the first at `first`.

    A unit belongs to the split in which the last byte of the mark in front of it is, or, the first, to split 0.
    """
    start, stop = split * SPLIT_BYTES, (split + 1) * SPLIT_BYTES
    begin = first if split == 0 else _behind(source, size, start, mark, first)
    return begin, max(begin, size if stop >= size else _behind(source, size, stop, mark, first))


def _behind(source: Any, size: int, place: int, mark: bytes, first: int) -> int:
    """The end of the first mark that ends behind `place`; the size if there is none."""
    at = max(first, place - len(mark) + 1)
    rest = b""
    while at < size:
        source.seek(at)
        data = source.read(min(_SEARCH_BYTES, size - at))
        if not data:
            break
        found: int = (rest + data).find(mark)
        if found >= 0:
            return at - len(rest) + found + len(mark)
        at += len(data)
        rest = (rest + data)[-(len(mark) - 1) :] if len(mark) > 1 else b""
    return size


def read_range(path: str, begin: int, end: int, source: Any) -> bytes:
    """These bytes of a file. Raises TaskError where the file has become shorter."""
    source.seek(begin)
    data: bytes = source.read(end - begin)
    if len(data) < end - begin:
        raise TaskError(f"{path} has become shorter than {end} bytes since it was listed: write files once")
    return data


__all__ = [
    "SPLIT_BYTES",
    "FileReader",
    "FileChunk",
    "bounds",
    "byte_splits",
    "open_file",
    "place_in_split",
    "read_range",
    "unreadable",
]
