"""The columns of a record among those of a file and those of its directories.

A directory `name=value` is a column of all files below it, as Hive, Spark and Flink write them (bucket.py). A column in
the file comes first. Values of directories are text; a declared type converts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from ....types import Pickled, RecordType, RecordTypeError
from ...common.failures import TaskError
from ..schema_coercion import coerce_batch, places
from .file_reader import FileChunk

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""In place of a missing value, and of an empty text."""


class ColumnSelection(msgspec.Struct, frozen=True):
    """The columns that are read from one file."""

    path: str
    record_type: RecordType
    names: Sequence[str]
    """In the order of the record type."""
    in_file: Sequence[str]
    of_directories: Mapping[str, pa.Scalar]

    def to_chunk(self, batch: pa.RecordBatch) -> FileChunk:
        """Returns the records of rows of the file, which have the columns `in_file`. Raises TaskError."""
        if self.of_directories:
            rows = batch.num_rows
            columns = [
                pa.repeat(self.of_directories[name], rows)
                if name in self.of_directories
                else batch.column(name)
                for name in self.names
            ]
            batch = pa.RecordBatch.from_arrays(columns, names=list(self.names))
        else:
            batch = batch.select(self.names)
        if isinstance(self.record_type, Pickled):
            return FileChunk(rows=batch.to_pylist())
        try:
            return FileChunk(columns=coerce_batch(batch, self.record_type))
        except RecordTypeError as error:
            raise TaskError(f"{self.path}: {error}") from error


def select_columns(
    path: str, there: Sequence[str], record_type: RecordType, columns: Sequence[str] | None
) -> ColumnSelection:
    """Returns the columns to read. `columns`: only these; None: all needed. Raises TaskError with the names of missing
    ones."""
    values = {name: value for name, value in directory_values(path).items() if name not in there}
    names = wanted_columns(path, [*there, *values], record_type, columns)
    types: Sequence[tuple[str, RecordType | None]]
    if isinstance(record_type, Pickled):
        types = [(name, None) for name in names]
    else:
        types = [(name, of) for name, (_, of) in zip(names, record_type.columns(), strict=True)]
    constants = {name: _typed(path, name, values[name], of) for name, of in types if name in values}
    return ColumnSelection(path, record_type, names, [n for n in names if n not in constants], constants)


def wanted_columns(
    path: str, there: list[str], record_type: RecordType, columns: Sequence[str] | None
) -> list[str]:
    """Returns the columns to read, of those that are there. Raises TaskError with the names of missing ones."""
    names = list(there) if columns is None else list(columns)
    missing = [name for name in names if name not in there]
    if missing:
        raise TaskError(f"{path} has no column {', '.join(missing)}; it has {', '.join(there)}")
    if isinstance(record_type, Pickled):
        return names
    try:
        return [names[place] for place in places(names, record_type)]
    except RecordTypeError as error:
        raise TaskError(f"{path}: {error}") from error


def directory_values(path: str) -> dict[str, str | None]:
    """Returns the columns that the directories of a path name, with their values."""
    parts = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    return {unquote(name): None if value == NO_VALUE else unquote(value) for name, _, value in parts if name}


def _typed(path: str, name: str, value: str | None, of: RecordType | None) -> Any:
    wanted = pa.string() if of is None or isinstance(of, Pickled) else of.arrow_type()
    try:
        return pa.scalar(value, pa.string()).cast(wanted)
    except pa.ArrowException as error:
        raise TaskError(
            f"{path}: the value of the directory {name}={value} is no {of}: declare another record type"
        ) from error
