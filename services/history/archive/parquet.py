"""Writes a log as a Parquet file, for SQL (docs/history.md) and any program that reads Parquet. Its columns are in
arrow_columns.py. tailrace reads it back with Spark only. The manifest is in the key-value metadata
(`tailrace.description`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from .arrow_columns import as_columns, schema
from .manifest import ArchiveManifest, Item

DESCRIPTION = b"tailrace.description"
_ROW_GROUP = 64 << 10
"""Rows per group. Each group lists all columns again, although most are empty."""
_BATCH = 4_096


def write_parquet(
    file: BinaryIO, batches: Iterable[list[Item]], describe: Callable[[], ArchiveManifest]
) -> None:
    """Writes the entries, in order. `describe` returns the manifest so far. Raises OSError."""
    with pq.ParquetWriter(
        file,
        schema(),
        compression="zstd",
        write_page_checksum=True,
        write_statistics=["offset", "type", "time", "sender", "recipient"],
    ) as writer:
        tables: list[pa.Table] = []
        for table in _tables(batches):
            tables.append(table)
            if len(tables) * _BATCH >= _ROW_GROUP:
                writer.write_table(pa.concat_tables(tables), row_group_size=_ROW_GROUP)
                tables = []
        if tables:
            writer.write_table(pa.concat_tables(tables), row_group_size=_ROW_GROUP)
        writer.add_key_value_metadata({DESCRIPTION: msgspec.json.encode(describe())})


def _tables(batches: Iterable[list[Item]]) -> Iterator[pa.Table]:
    waiting: list[Item] = []
    for items in batches:
        waiting += items
        while len(waiting) >= _BATCH:
            yield as_columns(waiting[:_BATCH])
            del waiting[:_BATCH]
    if waiting:
        yield as_columns(waiting)
