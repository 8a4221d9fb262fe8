"""Reads ORC files: a split for each stripe, with the columns of the record only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.orc as orc

from ....types import RecordType
from .column_selection import select_columns
from .file_reader import FileChunk, unreadable
from .parquet_reader import ROWS
from .source_storage import FoundFile, open_file

_ERRORS: Final = (OSError, pa.ArrowException)


class OrcFileReader:
    """Records by column name; dictionaries for a pickled record type. `columns`: only these; None: all needed."""

    def __init__(self, record_type: RecordType, columns: Sequence[str] | None) -> None:
        self._record_type = record_type
        self._columns = columns
        self._opened: tuple[str, Any] | None = None

    def splits(self, file: FoundFile) -> int:
        count: int = self._open(file).nstripes
        return count

    def read(self, file: FoundFile, split: int) -> Iterator[FileChunk]:
        reader = self._open(file)
        there = reader.schema.names
        selected = select_columns(file.path, there, self._record_type, self._columns)
        try:
            stripe = reader.read_stripe(split, columns=selected.in_file or there[:1])
        except _ERRORS as error:
            raise unreadable(file.path, f"stripe {split}", error) from error
        for start in range(0, stripe.num_rows, ROWS):
            yield selected.to_chunk(stripe.slice(start, ROWS))

    def place(self, split: int, record: int) -> str:
        return f"row {record + 1} of stripe {split}"

    def _open(self, file: FoundFile) -> Any:
        if self._opened is None or self._opened[0] != file.path:
            try:
                self._opened = file.path, orc.ORCFile(open_file(file.path))
            except _ERRORS as error:
                raise unreadable(file.path, "its end, where an ORC file says what is in it", error) from error
        return self._opened[1]
