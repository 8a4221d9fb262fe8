"""Reads Parquet files: a split for each row group, batches of columns as in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ....types import RecordType
from .column_selection import select_columns
from .file_reader import FileChunk, unreadable
from .source_storage import FoundFile, open_file

ROWS: Final = 16_384
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
        there = parquet.schema_arrow.names
        selected = select_columns(file.path, there, self._record_type, self._columns)
        # A batch without columns would have no rows.
        names = selected.in_file or there[:1]
        try:
            for batch in parquet.iter_batches(ROWS, row_groups=[split], columns=names):
                if batch.num_rows:
                    yield selected.to_chunk(batch)
        except _ERRORS as error:
            raise unreadable(file.path, f"row group {split}", error) from error

    def place(self, split: int, record: int) -> str:
        return f"row {record + 1} of row group {split}"

    def _open(self, file: FoundFile) -> Any:
        if self._opened is None or self._opened[0] != file.path:
            try:
                self._opened = file.path, pq.ParquetFile(open_file(file.path))
            except _ERRORS as error:
                raise unreadable(
                    file.path, "its end, where a Parquet file says what is in it", error
                ) from error
        return self._opened[1]
