"""Spark's jobs that read splits of files, and write files.

A split is a partition of Spark's plan for one file. The plan is the same each time: only the file, SPLIT_BYTES and the
format decide what is in a partition. So a row has a number that it keeps: that in its partition or, for Parquet, that
in its file, which lets Spark skip row groups. The number is given before rows are dropped.

Spark drops a row if a condition is not true, and a value that the record cannot do without is not missing: Python
refuses such a row by its column's name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ...sql.spark import to_spark
from ...sql.tree import column_names
from ..common.failures import TaskError
from .arrow_function import map_in_arrow
from .file_requests import HAS_SCHEMA, NUMBER, FileRead, WriteFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLIT_BYTES: Final = 32 << 20
"""A job of Spark reads a split: large enough that it costs little beside its rows."""
_SETTINGS: Final = {
    "spark.sql.files.maxPartitionBytes": str(SPLIT_BYTES),
    # As large as a partition: then Spark neither puts two parts of a file together nor looks at its number of cores.
    "spark.sql.files.openCostInBytes": str(SPLIT_BYTES),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.pandas.udf.buffer.size": "65536",
    "spark.sql.caseSensitive": "true",
}
_PLANS: Final = 32
"""The plans that are kept: the splits of a file are read one after another."""
_CONVERTED: Final = {
    "BIGINT": frozenset({"tinyint", "smallint", "int", "bigint"}),
    "DOUBLE": frozenset({"float", "double", "tinyint", "smallint", "int"}),
    "STRING": frozenset({"string"}),
    "BOOLEAN": frozenset({"boolean"}),
    "BINARY": frozenset({"binary"}),
}
"""A type -> the types of Spark that are converted to it without loss."""


class FileJobs:
    """Runs the jobs in a session of its own. Methods block, and any thread may call them."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark.newSession()
        for name, value in _SETTINGS.items():
            self._session.conf.set(name, value)
        self._plan = lru_cache(_PLANS)(self._make_plan)

    def count_splits(self, read: FileRead) -> int:
        """Returns the number of splits of a file. Raises TaskError, and what Spark raises."""
        return int(self._frame(read)._jdf.queryExecution().toRdd().getNumPartitions())

    def read_split(self, read: FileRead, split: int, sender: Callable[[Any], Any]) -> None:
        """Lets `sender` have the rows of a split as batches. Raises TaskError, and what Spark raises."""
        from pyspark.serializers import NoOpSerializer
        from pyspark.util import _load_from_socket

        sent = map_in_arrow(self._frame(read), sender)
        context = self._session.sparkContext
        jvm: Any = context._jvm
        answer = jvm.PythonRDD.runJob(context._jsc.sc(), sent._jdf.javaToPython(), [split])
        with _load_from_socket(answer, NoOpSerializer()) as nothing:
            for _ in nothing:
                pass

    def write_file(self, write: WriteFile) -> None:
        """Writes one file into the directory. Raises what Spark raises."""
        rows = self._session.read.parquet(to_hadoop(write.rows)).coalesce(1)
        rows.write.format(write.format).options(**write.options).save(to_hadoop(write.directory))

    def _frame(self, read: FileRead) -> DataFrame:
        frame: DataFrame = self._plan(_Read(read))
        return frame

    def _make_plan(self, of: _Read) -> DataFrame:
        read = of.read
        reader = self._session.read.format(read.format).options(**{"mode": "FAILFAST", **read.options})
        # The path is that of a listed file, whatever characters are in its name.
        reader = reader.option("__globPaths__", "false")
        if read.format not in HAS_SCHEMA:
            reader = reader.schema(", ".join(f"`{column.name}` {column.type}" for column in read.columns))
        frame = reader.load(to_hadoop(read.path))
        there = dict(frame.dtypes)
        missing = [column.name for column in read.columns if column.name not in there]
        if missing:
            raise TaskError(f"{read.path} has no column {', '.join(missing)}; it has {', '.join(there)}")
        number = "_metadata.row_index"
        if read.format != "parquet":
            number = f"monotonically_increasing_id() & {(1 << 33) - 1}L"
        columns, known = [f"{number} AS `{NUMBER}`"], {}
        for column in read.columns:
            name, wanted, given = f"`{column.name}`", column.type or "", there[column.name]
            if given in _CONVERTED.get(wanted, ()):
                known[column.name] = name
                columns.append(f"CAST({name} AS {wanted}) AS {name}")
            else:
                # Python converts it, or says why it does not.
                columns.append(name)
        required = {column.name for column in read.columns if column.is_required}
        frame = frame.selectExpr(*columns)
        for condition in read.conditions:
            text = to_spark(condition, known)
            if text is not None:
                needed = sorted(column_names(condition) & required)
                frame = frame.where(" OR ".join([text, *(f"`{name}` IS NULL" for name in needed)]))
        return frame


class _Read:
    """A FileRead as the key of a plan."""

    def __init__(self, read: FileRead) -> None:
        self.read = read
        self._key = (
            read.path,
            read.format,
            read.columns,
            tuple(sorted(read.options.items())),
            read.conditions,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Read) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def to_hadoop(path: str) -> str:
    """Returns a path or URL as Spark takes it."""
    return path if "://" in path else f"file://{path}"
