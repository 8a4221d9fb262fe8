"""Reads Parquet files: a split for each row group, batches of columns as in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ....types import Pickled, RecordType, RecordTypeError
from ...common.failures import TaskError
from ..schema_coercion import coerce_batch, places
from .file_reader import FileChunk, unreadable
from .source_storage import FoundFile, open_file

_ROWS: Final = 16_384
_ERRORS: Final = (OSError, pa.ArrowException)


class ParquetFileReader:
    """Records by column name; dictionaries for a pickled record type. `columns`: only these; None: all needed."""

    def __init__(self, record_type: RecordType, columns: Sequence[str] | None) -> None:
        self._record_type = record_type
        self._columns = columns
        self._opened: tuple[str, Any] | None = None

    def splits(self, file: FoundFile) -> int:
        count: int = self._open(file).metadata.num_row_groups
        return count

    def read(self, file: FoundFile, split: int) -> Iterator[FileChunk]:
        parquet = self._open(file)
        names = self._find_columns(file.path, parquet.schema_arrow.names)
        try:
            for batch in parquet.iter_batches(_ROWS, row_groups=[split], columns=names):
                if batch.num_rows:
                    yield self._piece(file.path, batch.select(names))
        except _ERRORS as error:
            raise unreadable(file.path, f"row group {split}", error) from error

    def place(self, split: int, record: int) -> str:
        return f"row {record + 1} of row group {split}"

    def _piece(self, path: str, batch: pa.RecordBatch) -> FileChunk:
        if isinstance(self._record_type, Pickled):
            return FileChunk(rows=batch.to_pylist())
        try:
            return FileChunk(columns=coerce_batch(batch, self._record_type))
        except RecordTypeError as error:
            raise TaskError(f"{path}: {error}") from error

    def _open(self, file: FoundFile) -> Any:
        if self._opened is None or self._opened[0] != file.path:
            try:
                self._opened = file.path, pq.ParquetFile(open_file(file.path))
            except _ERRORS as error:
                raise unreadable(
                    file.path, "its end, where a Parquet file says what is in it", error
                ) from error
        return self._opened[1]

    def _find_columns(self, path: str, there: list[str]) -> list[str]:
        """Returns the names of the columns to read, in the order of the file or as requested."""
        return wanted_columns(path, there, self._record_type, self._columns)


def wanted_columns(
    path: str, there: list[str], record_type: RecordType, columns: Sequence[str] | None
) -> list[str]:
    """Returns the columns to read, of those in the file. Raises TaskError with the names of missing ones."""
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
