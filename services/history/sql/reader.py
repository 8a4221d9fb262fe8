"""The log as Spark's DataFrames, and as views for SQL.

Spark itself reads a Parquet file: only the columns and row groups that a query needs. Any other log (Kafka, Avro) is
divided into ranges of offsets. A Python worker reads each range, and returns Arrow batches (`mapInArrow`). A view costs
nothing until it is queried; Spark's Python data sources would start two processes for each of the hundred views. The
rows are the same in both cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ....infra.redaction import is_secret
from ...configuration import Configuration
from ..archive.arrow_columns import PREFIX, schema
from ..archive.arrow_columns import column_of as struct_of
from ..log_source import open_log_source
from .scan import extent, is_parquet, rows
from .tables import UNREADABLE, Table, table, tables, types_from_later_releases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_A_TASK = 50_000
"""The number of offsets that one Spark task reads: a second of work or less."""
_GLOB = str.maketrans({character: f"\\{character}" for character in "\\*?[]{}"})
_CHECKSUMS = "parquet.page.verify-checksum.enabled"


class LogTables:
    """The entries of a log from offset `start` to `end` (exclusive) as DataFrames, without later events."""

    def __init__(
        self,
        spark: SparkSession,
        of: Configuration | Path,
        start: int,
        end: int,
        *,
        offsets_a_task: int = OFFSETS_A_TASK,
    ) -> None:
        """`offsets_a_task`: the size of a range if Spark does not read the log itself. Raises ArchiveError."""
        self._spark = spark
        self._of = of.absolute() if isinstance(of, Path) else of
        self._step = offsets_a_task
        self.start = start
        self.end = end
        self.tables: Mapping[str, Table] = tables()
        """The tables by name; of a Parquet file also the types of a later release."""
        self._file: DataFrame | None = None
        if isinstance(self._of, Path) and is_parquet(self._of):
            self.tables = {**tables(), **types_from_later_releases(pq.read_schema(self._of))}
            self._file = self._parquet(self._of)

    def table(self, name: str) -> DataFrame:
        """Returns a table; its name is case-insensitive. Raises NoSuchTable."""
        wanted = self.tables.get(name) or table(name)
        return self._scan(wanted) if self._file is None else _select(self._file, wanted)

    def create_views(self, names: Iterable[str] | None = None) -> None:
        """Creates a temporary view for each table, or for the given ones. Raises NoSuchTable."""
        for name in self.tables if names is None else names:
            self.table(name).createOrReplaceTempView(name)

    def _scan(self, wanted: Table) -> DataFrame:
        ranges = max(1, -(-(self.end - self.start) // self._step))
        given = from_arrow_schema(wanted.columns)
        read = _partition_reader(
            self._of, wanted, self.start, self.end, self._step, to_arrow_schema(given, timezone="UTC")
        )
        return self._spark.range(0, ranges, 1, ranges).mapInArrow(read, given)

    def _parquet(self, file: Path) -> DataFrame:
        # With these columns, a column that an older file does not have is null.
        later = [pq.read_schema(file).field(name) for name in self.tables if name not in tables()]
        columns = from_arrow_schema(pa.schema([*schema(), *later]))
        read = self._spark.read.schema(columns).option(_CHECKSUMS, "true")
        all_of_it = read.parquet(f"file://{str(file).translate(_GLOB)}")
        return all_of_it.where((col("offset") >= self.start) & (col("offset") < self.end))


def open_log(
    spark: SparkSession,
    of: Configuration | Path,
    *,
    first: str | int | None = None,
    last: str | int | None = None,
    offsets_a_task: int = OFFSETS_A_TASK,
) -> LogTables:
    """Opens the log of a cluster, or an exported file, as tables.

    `first`, `last`: offsets or times (log_position.py), both inclusive; by default all current entries.
    Raises InvalidPosition, PositionOutOfRange, LogUnavailable, LogTruncated, ArchiveError.
    """
    start, end = extent(of, first, last)
    return LogTables(spark, of, start, end, offsets_a_task=offsets_a_task)


def _partition_reader(
    of: Configuration | Path, wanted: Table, start: int, end: int, step: int, columns: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns the function of a Python worker: numbers of ranges -> their rows."""
    # As strings, and without secrets, because Spark writes them to files.
    settings = {} if isinstance(of, Path) else {setting.key: setting.text for setting in of.settings()}
    place = of if isinstance(of, Path) else None
    settings = {key: text for key, text in settings.items() if not is_secret(key)}

    def read(ranges: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in ranges:
            for number in batch.column(0).to_pylist():
                begin = start + number * step
                with open_log_source(place or Configuration(settings), selections=True) as source:
                    for found in rows(source.log, wanted, begin, min(begin + step, end)):
                        yield found if found.schema.equals(columns) else found.cast(columns)

    return read


def _select(file: DataFrame, wanted: Table) -> DataFrame:
    """Returns the rows of a table from the file."""
    if wanted.name == UNREADABLE:
        return file.where(col("type").isNull()).select("offset", "value")
    header = [col(name) for name in wanted.columns.names if name not in wanted.fields]
    if wanted.event is None:
        return file.where(col("type").isNotNull()).select(*header)
    struct = struct_of(wanted.event)
    body = [col(f"`{struct}`.`{field}`").alias(column) for column, field in wanted.fields.items()]
    return file.where(col("type") == wanted.event.removeprefix(PREFIX)).select(*header, *body)
