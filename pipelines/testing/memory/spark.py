"""Spark as sources and sinks of files see it, in memory: JSON lines, Parquet, ORC and CSV, by Arrow.

As Spark does, it divides a file into splits, gives rows their numbers, and drops rows for which a condition is not
true; here some of them, as a seed decides.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.orc as orc
import pyarrow.parquet as pq

from ...runtime.common.failures import TaskError
from ...runtime.spark.file_requests import NUMBER, FileColumn, FileRead, SparkFormat
from ...sql.evaluation import evaluate

SPLIT_ROWS = 7
BATCH_ROWS = 3
_TYPES = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "STRING": pa.string(), "BOOLEAN": pa.bool_()}


class MemorySpark:
    """SparkFiles without Spark."""

    def __init__(self, seed: int | None) -> None:
        self._rng = None if seed is None else random.Random(seed)
        self.dropped = 0
        """Rows."""

    def count_splits(self, read: FileRead) -> int:
        rows: int = self._table(read).num_rows
        return -(-rows // SPLIT_ROWS)

    def read_split(self, read: FileRead, split: int) -> Iterator[pa.RecordBatch]:
        start = split * SPLIT_ROWS
        table = self._table(read).slice(start, SPLIT_ROWS)
        first = start if read.format == "parquet" else 0
        numbers = pa.array(range(first, first + table.num_rows), pa.int64())
        batch = table.append_column(NUMBER, numbers).combine_chunks().to_batches()[0]
        for begin in range(0, batch.num_rows, BATCH_ROWS):
            rows = batch.slice(begin, BATCH_ROWS)
            kept = rows.filter(self._kept(read, rows))
            self.dropped += rows.num_rows - kept.num_rows
            yield kept

    def write_file(self, rows: pa.Table, format: SparkFormat, options: Mapping[str, str]) -> bytes:
        out = BytesIO()
        match format:
            case "json":
                out.write("".join(f"{json.dumps(row, default=str)}\n" for row in rows.to_pylist()).encode())
            case "csv":
                header, delimiter = _csv_options(options)
                csv.write_csv(rows, out, csv.WriteOptions(include_header=header, delimiter=delimiter))
            case "orc":
                orc.write_table(rows, out)
            case "parquet":
                pq.write_table(rows, out)
        return out.getvalue()

    def _kept(self, read: FileRead, rows: pa.RecordBatch) -> pa.Array:
        columns = {name: rows.column(name) for name in rows.schema.names}
        kept = pa.repeat(True, rows.num_rows)
        for condition in read.conditions:
            kept = pc.and_(kept, evaluate(condition, columns, rows.num_rows).fill_null(False))
        if self._rng is None:
            return kept
        spared = pa.array([self._rng.random() < 0.3 for _ in range(rows.num_rows)], pa.bool_())
        return pc.or_(kept, spared)

    def _table(self, read: FileRead) -> pa.Table:
        names = [column.name for column in read.columns]
        types = {column.name: of for column in read.columns if (of := _type_of(column)) is not None}
        match read.format:
            case "json":
                rows = list(map(json.loads, Path(read.path).read_text().splitlines()))
                table = pa.table({name: [row.get(name) for row in rows] for name in names})
            case "csv":
                header, delimiter = _csv_options(read.options)
                table = csv.read_csv(
                    read.path,
                    csv.ReadOptions(column_names=None if header else names),
                    csv.ParseOptions(delimiter=delimiter),
                    csv.ConvertOptions(column_types=types, strings_can_be_null=True),
                ).select(names)
            case "orc":
                table = orc.read_table(read.path).select(names)
            case "parquet":
                table = pq.read_table(read.path).select(names)
        return table.cast(
            pa.schema(
                [
                    (column.name, _type_of(column) or table.schema.field(column.name).type)
                    for column in read.columns
                ]
            )
        )


def _type_of(column: FileColumn) -> pa.DataType | None:
    return _TYPES.get(column.type or "")


def _csv_options(options: Mapping[str, str]) -> tuple[bool, str]:
    """Returns whether there is a header, and the delimiter. Raises TaskError for other options of Spark."""
    others = [name for name in options if name.lower() not in ("header", "sep", "delimiter")]
    if others:
        raise TaskError(f"the option {others[0]!r} of CSV files needs Spark: run the program on a cluster")
    known = {name.lower(): value for name, value in options.items()}
    return known.get("header", "false").lower() == "true", known.get("sep", known.get("delimiter", ","))
