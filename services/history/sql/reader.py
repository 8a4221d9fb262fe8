"""The log as Spark's DataFrames, and as views for SQL.

What holds the log decides who reads it. A Parquet file is Spark's own to read: it takes of it the columns and the row
groups that a query asks for. Any other log (Kafka, Avro, JSON lines) is cut into ranges of offsets, and each range is
read by a Python worker, which hands Spark batches of Arrow (`mapInArrow`). A view costs nothing until it is queried;
Spark's Python data sources would start two processes for each of the hundred. The rows are the same either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ...configuration import Configuration
from ...log.event_log import read_to_end
from ..archive.arrow_columns import PREFIX, schema
from ..archive.arrow_columns import column_of as struct_of
from .scan import ScanOrigin, extent, rows
from .tables import UNREADABLE, Table, table, tables, types_from_later_releases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_A_TASK = 50_000
"""How many one Spark task reads: a second's work or less."""
_PARQUET = b"PAR1"
_GLOB = str.maketrans({each: f"\\{each}" for each in "\\*?[]{}"})
_CHECKSUMS = "parquet.page.verify-checksum.enabled"


class LogTables:
    """The entries of a log from offset `start` to `end` (exclusive) as DataFrames: what the log is given later, they
    do not show."""

    def __init__(
        self,
        spark: SparkSession,
        origin: ScanOrigin,
        start: int,
        end: int,
        *,
        offsets_a_task: int = OFFSETS_A_TASK,
    ) -> None:
        """`offsets_a_task`: how the log is cut where Spark does not read it itself. Raises ArchiveError, OSError."""
        self._spark = spark
        self._origin = origin
        self._step = offsets_a_task
        self.start = start
        self.end = end
        self.tables: Mapping[str, Table] = tables()
        """What there is, by name; of a Parquet file also the types that a later release has put there."""
        self._file: DataFrame | None = None
        if origin.file is not None and _is_for_spark(Path(origin.file)):
            file = Path(origin.file)
            self.tables = {**tables(), **types_from_later_releases(pq.read_schema(file))}
            self._file = self._parquet(file)

    def table(self, name: str) -> DataFrame:
        """The rows of a table, in upper or lower case. Raises NoSuchTable."""
        wanted = self.tables.get(name) or table(name)
        return self._scan(wanted) if self._file is None else _select(self._file, wanted)

    def create_views(self, names: Iterable[str] | None = None) -> None:
        """A temporary view for each table, or for those that are named. Raises NoSuchTable."""
        for name in self.tables if names is None else names:
            self.table(name).createOrReplaceTempView(name)

    def check(self) -> None:
        """Reads all of the log once, without Spark. Raises ArchiveError, LogUnavailable for what can't be read."""
        log = self._origin.open()
        try:
            for _ in read_to_end(log, self.start, end=self.end):
                pass
        finally:
            log.close()

    def _scan(self, wanted: Table) -> DataFrame:
        ranges = max(1, -(-(self.end - self.start) // self._step))
        given = from_arrow_schema(wanted.columns)
        read = _partition_reader(
            self._origin, wanted, self.start, self.end, self._step, to_arrow_schema(given, timezone="UTC")
        )
        return self._spark.range(0, ranges, 1, ranges).mapInArrow(read, given)

    def _parquet(self, file: Path) -> DataFrame:
        # With our columns, what an older file lacks is null.
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
    """The log of a cluster (its Kafka must be known), or of an exported file, as tables.

    `first`, `last`: offsets, or times as positions.py reads them, both inclusive; by default all that there is now.
    Raises BadPosition, OutsideLog, LogUnavailable, LogTruncated, ArchiveError.
    """
    start, end = extent(of, first, last)
    return LogTables(spark, ScanOrigin.from_source(of), start, end, offsets_a_task=offsets_a_task)


def _partition_reader(
    origin: ScanOrigin, wanted: Table, start: int, end: int, step: int, columns: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Numbers of ranges -> the rows in them; what a Python worker runs."""

    def read(ranges: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in ranges:
            for number in batch.column(0).to_pylist():
                begin = start + number * step
                log = origin.open()
                try:
                    for found in rows(log, wanted, begin, min(begin + step, end)):
                        yield found if found.schema.equals(columns) else found.cast(columns)
                finally:
                    log.close()

    return read


def _select(file: DataFrame, wanted: Table) -> DataFrame:
    """The rows of a table out of the file's."""
    if wanted.name == UNREADABLE:
        return file.where(col("type").isNull()).select("offset", "value")
    header = [col(each) for each in wanted.columns.names if each not in wanted.fields]
    if wanted.event is None:
        return file.where(col("type").isNotNull()).select(*header)
    struct = struct_of(wanted.event)
    body = [col(f"`{struct}`.`{field}`").alias(column) for column, field in wanted.fields.items()]
    return file.where(col("type") == wanted.event.removeprefix(PREFIX)).select(*header, *body)


def _is_for_spark(file: Path) -> bool:
    """Whether it is Parquet; Spark passes over files whose names begin like those of hidden ones."""
    if file.name.startswith(("_", ".")):
        return False
    with file.open("rb") as opened:
        return opened.read(len(_PARQUET)) == _PARQUET
