"""Files as sources and sinks: local paths, or URLs of any file system that fsspec knows (s3://, hdfs://, ...)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal

from ....infra.redaction import has_password
from ...graph.errors import ProgramError
from ..checks import is_text, is_whole
from ..durations import to_milliseconds
from ..source_location import caller_location

SparkFileFormat = Literal["spark-parquet", "spark-orc", "spark-json", "spark-csv"]
"""Files that Spark reads and writes (spark.py)."""
SourceFormat = Literal["text", "avro", "parquet"] | SparkFileFormat
SinkFormat = Literal["text", "avro", "parquet", "json"] | SparkFileFormat
_BY_SPARK: Final = ("spark-parquet", "spark-orc", "spark-json", "spark-csv")


class FileSource:
    """Reads files, directories and glob patterns once, and ends. Relative paths start at the program's working
    directory.

    A record is a line of text, or a row of Avro or Parquet: a `dict`, or the dataclass or NamedTuple that `output_type`
    declares. The source then reads only the columns of its fields.
    """

    __slots__ = ("columns", "format", "output_type", "paths")

    def __init__(
        self,
        *paths: str,
        format: SourceFormat = "text",
        columns: Sequence[str] | None = None,
        output_type: object = None,
    ) -> None:
        """Raises ProgramError."""
        if not paths or not all(map(is_text, paths)):
            raise _refusal("FileSource", f"expected paths, not {paths!r}")
        if format not in ("text", "avro", "parquet", *_BY_SPARK):
            raise _refusal("FileSource", f"the format {format!r} is not text, avro or parquet")
        if format == "text" and columns is not None:
            raise _refusal("FileSource", "lines of text have no columns")
        self.paths = tuple(map(_anchored, paths))
        self.format = format
        self.columns = None if columns is None else list(columns)
        self.output_type = output_type


class FileSink:
    """Writes files into a directory; a file appears when it is complete, with each record in it once.

    A file is complete when it has `roll_records` records, or `roll_interval` after its first one, or when the job ends.
    """

    __slots__ = ("format", "path", "prefix", "roll_ms", "roll_records")

    def __init__(
        self,
        path: str,
        format: SinkFormat = "text",
        prefix: str = "part",
        roll_records: int = 1_000_000,
        roll_interval: timedelta = timedelta(minutes=1),
    ) -> None:
        """Raises ProgramError."""
        if not is_text(path):
            raise _refusal("FileSink", f"the path is {path!r}, not one or more characters")
        if format not in ("text", "avro", "parquet", "json", *_BY_SPARK):
            raise _refusal("FileSink", f"the format {format!r} is not text, avro, parquet or json")
        if not is_text(prefix) or "/" in prefix:
            raise _refusal("FileSink", f"the prefix {prefix!r} cannot be the beginning of a file name")
        if not is_whole(roll_records, 1):
            raise _refusal("FileSink", f"roll_records is {roll_records!r}, not an integer of 1 or more")
        self.path = _anchored(path)
        self.format = format
        self.prefix = prefix
        self.roll_records = roll_records
        self.roll_ms = to_milliseconds("roll_interval", roll_interval, operator="FileSink")


def _anchored(path: str) -> str:
    """Returns a path with the same meaning in every working directory, also those of TaskExecutors. Raises
    ProgramError."""
    if has_password(path):
        raise _refusal(
            "a file's URL",
            "it contains a password, and would stay in the cluster's log for ever: give the file system its "
            "credentials by its own configuration or environment, where the tasks run",
        )
    return path if "://" in path else os.path.abspath(path)


def _refusal(who: str, reason: str) -> ProgramError:
    return ProgramError(reason, operator=who, location=caller_location())
