"""Reads files by Spark: splits as Spark divides a file (spark/file_jobs.py), batches of columns.

The conditions of the operators behind the source go with each request. Spark drops what they drop; the operators check
the other records again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from ....sql.spark import to_spark_type
from ....sql.tree import Node
from ....types import ClassOf, OptionalOf, RecordType, RecordTypeError
from ...common.failures import TaskError
from ...spark.file_requests import NUMBER, FileColumn, FileRead, SparkFiles, SparkFormat
from ..schema_coercion import coerce_batch
from .file_reader import FileChunk
from .source_storage import FoundFile


class SparkFileReader:
    """Records of a class, or of one column that has its name."""

    def __init__(
        self,
        format: SparkFormat,
        options: Mapping[str, str],
        record_type: RecordType,
        conditions: Sequence[Node],
        spark: SparkFiles | None,
    ) -> None:
        if not isinstance(record_type, ClassOf):
            raise TaskError(f"Spark reads records of a dataclass or NamedTuple, not {record_type}")
        if spark is None:
            raise TaskError("there is no Spark to read files here")
        self._format: SparkFormat = format
        self._options = options
        self._record_type = record_type
        self._columns = tuple(
            FileColumn(name, to_spark_type(of), not isinstance(of, OptionalOf))
            for name, of in record_type.columns()
        )
        self._conditions = tuple(conditions)
        self._spark = spark

    def splits(self, file: FoundFile) -> int:
        return self._spark.count_splits(self._request(file))

    def read(self, file: FoundFile, split: int) -> Iterator[FileChunk]:
        for batch in self._spark.read_split(self._request(file), split):
            if batch.num_rows:
                try:
                    columns = coerce_batch(batch, self._record_type)
                except RecordTypeError as error:
                    raise TaskError(f"{file.path}: {error}") from error
                yield FileChunk(columns=columns, numbers=_numbers(batch))

    def place(self, split: int, record: int) -> str:
        if self._format == "parquet":
            return f"row {record + 1}"
        return f"row {record + 1} of split {split}"

    def _request(self, file: FoundFile) -> FileRead:
        return FileRead(file.path, self._format, self._columns, self._options, self._conditions)


def _numbers(batch: pa.RecordBatch) -> pa.Array:
    return batch.column(NUMBER)
