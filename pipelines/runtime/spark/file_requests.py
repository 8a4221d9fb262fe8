"""What a StreamTask asks of the TaskExecutor's Spark: to read a split of a file, or to write one.

A connection to the Unix socket SOCKET_NAME has one request, and ends with one answer. Between them are the rows of a
split, each batch with its kind before it. The worker of Spark that sends the rows connects to the same socket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, Protocol

import msgspec
import pyarrow as pa

from ...sql.tree import Node

SOCKET_NAME: Final = "spark-files.sock"
"""In the directory that all processes of a TaskExecutor share."""
NUMBER: Final = "~number"
"""The column of a row's number in its split, or in its file. The numbers of a split ascend; those of dropped rows are
missing."""
BATCH: Final = b"\x00"
"""Rows follow, as a stream of Arrow."""
ANSWER: Final = b"\x01"
"""The answer follows."""

SparkFormat = Literal["parquet", "orc", "json", "csv"]
HAS_SCHEMA: Final = frozenset({"parquet", "orc"})
"""The formats whose files have a schema."""


class FileColumn(msgspec.Struct, frozen=True):
    """A column to read."""

    name: str
    type: str | None
    """In Spark SQL; None if Spark has no such type."""
    is_required: bool
    """Whether a record cannot do without its value."""


class FileRead(msgspec.Struct, frozen=True):
    """How to read a file."""

    path: str
    format: SparkFormat
    columns: tuple[FileColumn, ...]
    options: Mapping[str, str] = {}
    conditions: tuple[Node, ...] = ()
    """Rows for which one of them is not true may be left out."""


class CountSplits(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> TaskExecutor: into how many splits does Spark divide the file? The answer is SplitCount."""

    read: FileRead


class ReadSplit(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> TaskExecutor: send the rows of a split. The answer is Done."""

    read: FileRead
    split: int


class WriteFile(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> TaskExecutor: write the rows of a Parquet file in another format, as one file. The answer is
    Done."""

    rows: str
    """The path of the Parquet file."""
    directory: str
    """Where Spark writes: it does not exist yet."""
    format: SparkFormat
    options: Mapping[str, str] = {}


class SendRows(msgspec.Struct, frozen=True, tag=True):
    """Spark's worker -> TaskExecutor: the rows of the read with this token follow, and then RowsSent."""

    token: str


class RowsSent(msgspec.Struct, frozen=True, tag=True):
    """Spark's worker -> TaskExecutor: these were all rows."""


class SplitCount(msgspec.Struct, frozen=True, tag=True):
    """The answer to CountSplits."""

    splits: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """The request is carried out."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The request cannot be carried out."""

    reason: str


FileRequest = CountSplits | ReadSplit | WriteFile | SendRows
FileAnswer = SplitCount | Done | Failed | RowsSent


class SparkFiles(Protocol):
    """Spark as sources and sinks of files see it. All methods block, and raise TaskError."""

    def count_splits(self, read: FileRead) -> int:
        """Returns the number of splits of the file."""

    def read_split(self, read: FileRead, split: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a split in order, with the column NUMBER."""

    def write_file(self, rows: pa.Table, format: SparkFormat, options: Mapping[str, str]) -> bytes:
        """Returns the content of a file of that format."""
