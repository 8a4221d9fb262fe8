"""Reads files: their splits, and the records of a split in chunks of moderate size.

One subtask reads a split from beginning to end; a file has one or more. The bytes of a split depend only on the file
and the number of the split, so subtasks need no agreement: text and Avro files are cut every SPLIT_BYTES, and a line or
block belongs to the split in which it begins; a Parquet file is cut into its row groups, an ORC file into its stripes.
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
"""Small enough to divide a file between subtasks, large enough that the search for its ends costs little."""
_SEARCH_BYTES: Final = 1 << 16


class FileChunk(msgspec.Struct, frozen=True):
    """Some records of a split: rows, or columns of the record type."""

    rows: list[Any] | None = None
    columns: list[pa.Array] | None = None
    numbers: pa.Array | None = None
    """The ascending numbers of the records, if some have been dropped; None: there are all."""

    def __len__(self) -> int:
        if self.rows is not None:
            return len(self.rows)
        return len(self.columns[0]) if self.columns else 0

    def slice(self, start: int) -> FileChunk:
        """Returns the records from `start` on."""
        if self.rows is not None:
            return FileChunk(rows=self.rows[start:])
        numbers = None if self.numbers is None else self.numbers.slice(start)
        return FileChunk(columns=[column.slice(start) for column in self.columns or []], numbers=numbers)

    def number_of(self, index: int, first: int) -> int:
        """Returns the number of a record in its split. `first`: that of the first record, if there are all."""
        return first + index if self.numbers is None else int(self.numbers[index].as_py())

    @property
    def size(self) -> int:
        """The bytes of its columns."""
        return sum(column.nbytes for column in self.columns or ())

    def batch(self, start: int, stop: int, timestamp: int, record_type: RecordType) -> Batch:
        """Returns the records from `start` to before `stop`, all with this timestamp."""
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
        """Returns the number of splits of the file. Raises TaskError."""

    def read(self, file: FoundFile, split: int) -> Iterator[FileChunk]:
        """Yields the records of a split in order, in chunks that are never empty. Raises TaskError, RecordTypeError."""

    def place(self, split: int, record: int) -> str:
        """Returns the location of a record in the file, for messages. `record`: its number in the split, from 0."""


def place_in_split(split: int, unit: str, record: int) -> str:
    """Returns a location in a file with splits of SPLIT_BYTES. It counts from the start of the split: counting the
    records before would require reading them."""
    behind = f" behind byte {split * SPLIT_BYTES}" if split else ""
    return f"{unit} {record + 1}{behind}"


def unreadable(path: str, where: str, error: BaseException) -> TaskError:
    """Returns the error for a file that cannot be read."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return TaskError(f"{path} could not be read at {where}: {reason}")


def byte_splits(size: int) -> int:
    """Returns the number of splits of a file of `size` bytes."""
    return max(1, -(-size // SPLIT_BYTES))


def bounds(source: Any, size: int, split: int, mark: bytes, first: int = 0) -> tuple[int, int]:
    """Returns where the units of a split begin and end (bytes): each begins after a mark, the first one at `first`.

    A unit belongs to the split that has the last byte of the mark before it; the first unit belongs to split 0.
    """
    start, stop = split * SPLIT_BYTES, (split + 1) * SPLIT_BYTES
    begin = first if split == 0 else _behind(source, size, start, mark, first)
    return begin, max(begin, size if stop >= size else _behind(source, size, stop, mark, first))


def _behind(source: Any, size: int, place: int, mark: bytes, first: int) -> int:
    """Returns the end of the first mark that ends after `place`; the size if there is none."""
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
    """Returns these bytes of a file. Raises TaskError if the file has become shorter."""
    source.seek(begin)
    data: bytes = source.read(end - begin)
    if len(data) < end - begin:
        raise TaskError(
            f"{path} has become shorter than {end} bytes since it was listed: do not change a file after it is written"
        )
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
