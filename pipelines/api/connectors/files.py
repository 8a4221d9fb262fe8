"""Files as sources and sinks: local paths, or URLs of any file system that fsspec knows (s3://, hdfs://, ...)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, Final, Literal, Self

from ....infra.redaction import has_password
from ...flink_names import FlinkNames
from ...graph import protobuf_classes
from ...graph.bucket_elements import find_bucket_errors
from ...graph.csv_options import READ, WRITTEN, find_csv_errors
from ...graph.errors import ProgramError
from ..checks import is_text, is_whole
from ..durations import timedelta_ms
from ..source_location import caller_location

SparkFileFormat = Literal["spark-parquet", "spark-orc", "spark-json", "spark-csv"]
"""Files that Spark reads and writes (spark.py)."""
SourceFormat = Literal["text", "csv", "avro", "parquet", "orc", "protobuf"] | SparkFileFormat
SinkFormat = Literal["text", "csv", "avro", "parquet", "orc", "protobuf", "json"] | SparkFileFormat
Bucket = str | Sequence[str] | Callable[[Any, int], str]
_BY_SPARK: Final = ("spark-parquet", "spark-orc", "spark-json", "spark-csv")


class FileSource(metaclass=FlinkNames):
    """Reads files, directories and glob patterns once, and ends; or watches them (`monitor_continuously`).

    Relative paths start at the program's working directory.

    A record is a line of text, or a row of CSV, Avro, Parquet or ORC: a `dict`, or the dataclass or NamedTuple that
    `output_type` declares. The source then reads only the columns of its fields.

    Or it is a message of the class `message` that protoc generated, from files of length-delimited Protobuf messages,
    or the dataclass or NamedTuple that `output_type` declares, with fields of the message.

    `options`, of CSV: `header` (True), `delimiter` (","), `quote` ('"', "" for none), `null` (""), `multiline` (False).
    """

    __slots__ = (
        "columns",
        "format",
        "max_age_ms",
        "message",
        "monitor_ms",
        "options",
        "output_type",
        "paths",
    )

    def __init__(
        self,
        *paths: str,
        format: SourceFormat = "text",
        columns: Sequence[str] | None = None,
        output_type: object = None,
        options: Mapping[str, object] | None = None,
        message: type | None = None,
    ) -> None:
        """Raises ProgramError."""
        if not paths or not all(map(is_text, paths)):
            raise _refusal("FileSource", f"expected paths, not {paths!r}")
        if format not in ("text", "csv", "avro", "parquet", "orc", "protobuf", *_BY_SPARK):
            raise _refusal(
                "FileSource", f"the format {format!r} is not text, csv, avro, parquet, orc or protobuf"
            )
        if format in ("text", "protobuf") and columns is not None:
            units = "lines of text" if format == "text" else "Protobuf messages"
            raise _refusal("FileSource", f"{units} have no columns")
        self.paths = tuple(map(_anchored, paths))
        self.format = format
        self.columns = None if columns is None else list(columns)
        self.output_type = output_type
        self.options = _checked_options("FileSource", format, options, READ)
        self.message = _checked_message("FileSource", format, message)
        self.monitor_ms: int | None = None
        self.max_age_ms: int | None = None

    def monitor_continuously(self, interval: timedelta, max_age: timedelta = timedelta(days=7)) -> Self:
        """Returns a source that does not end: it looks for new files every `interval`, and reads each once.

        A file that is more than `max_age` older than the newest one, by their modification times, is not read, unless
        it is there when the job starts. So the job may forget older files. A file that changes is not read again.
        Raises ProgramError.
        """
        watching = copy(self)
        watching.monitor_ms = timedelta_ms("interval", interval, operator="monitor_continuously")
        watching.max_age_ms = timedelta_ms("max_age", max_age, operator="monitor_continuously")
        return watching


class FileSink(metaclass=FlinkNames):
    """Writes files into a directory; a file appears when it is complete, with each record in it once.

    A file is complete when it has `roll_records` records or `roll_bytes` bytes before compression, `roll_interval`
    after its first record or `roll_inactivity` after its last one, or when the job ends.

    `bucket`: the directory of a record below the path. A field gives `name=value`, a pattern of strftime such as
    "%Y-%m-%d/%H" the time of the record's timestamp in UTC; a list of these is a directory for each. Or a function of
    the record and its timestamp returns the directory. At most `max_open_files` are open in a subtask.

    `success_files`: an empty file `_SUCCESS` marks each bucket whose time has passed by the watermarks, and the path
    when the job has finished.

    `options`, of CSV: `header` (True), `delimiter` (","). `message`: the class of Protobuf messages; records are its
    objects, dicts, dataclasses or NamedTuples.
    """

    __slots__ = (
        "bucket",
        "bucket_function",
        "format",
        "inactivity_ms",
        "max_open_files",
        "message",
        "options",
        "path",
        "prefix",
        "roll_bytes",
        "roll_ms",
        "roll_records",
        "success_files",
    )

    def __init__(
        self,
        path: str,
        format: SinkFormat = "text",
        prefix: str = "part",
        roll_records: int = 1_000_000,
        roll_interval: timedelta = timedelta(minutes=1),
        options: Mapping[str, object] | None = None,
        *,
        bucket: Bucket | None = None,
        roll_bytes: int = 64 << 20,
        roll_inactivity: timedelta | None = None,
        max_open_files: int = 100,
        success_files: bool = False,
        message: type | None = None,
    ) -> None:
        """Raises ProgramError."""
        if not is_text(path):
            raise _refusal("FileSink", f"the path is {path!r}, not one or more characters")
        if format not in ("text", "csv", "avro", "parquet", "orc", "protobuf", "json", *_BY_SPARK):
            raise _refusal(
                "FileSink", f"the format {format!r} is not text, csv, avro, parquet, orc, protobuf or json"
            )
        if not is_text(prefix) or "/" in prefix:
            raise _refusal("FileSink", f"the prefix {prefix!r} cannot be the beginning of a file name")
        if not is_whole(roll_records, 1):
            raise _refusal("FileSink", f"roll_records is {roll_records!r}, not an integer of 1 or more")
        self.path = _anchored(path)
        self.format = format
        self.prefix = prefix
        self.roll_records = roll_records
        self.roll_ms = timedelta_ms("roll_interval", roll_interval, operator="FileSink")
        self.options = _checked_options("FileSink", format, options, WRITTEN)
        self.message = _checked_message("FileSink", format, message)
        for name, number in (("roll_bytes", roll_bytes), ("max_open_files", max_open_files)):
            if not is_whole(number, 1):
                raise _refusal("FileSink", f"{name} is {number!r}, not an integer of 1 or more")
        self.bucket_function = bucket if callable(bucket) else None
        self.bucket = [] if bucket is None or callable(bucket) else _elements(bucket)
        self.roll_bytes = roll_bytes
        self.inactivity_ms = (
            None
            if roll_inactivity is None
            else timedelta_ms("roll_inactivity", roll_inactivity, operator="FileSink")
        )
        self.max_open_files = max_open_files
        self.success_files = success_files


def _elements(bucket: str | Sequence[str]) -> list[str]:
    """Returns the elements of a bucket. Raises ProgramError."""
    elements = [bucket] if isinstance(bucket, str) else list(bucket)
    if not elements or not all(map(is_text, elements)):
        raise _refusal("FileSink", f"the bucket is {bucket!r}, not fields, patterns or a function")
    for fault in find_bucket_errors(elements):
        raise _refusal("FileSink", fault)
    return elements


def _checked_options(
    who: str, format: str, options: Mapping[str, object] | None, known: frozenset[str]
) -> Mapping[str, str] | None:
    """Returns the options as texts. Raises ProgramError. Those of Spark are checked in spark.py."""
    if options is None or format in _BY_SPARK:
        return None
    if format != "csv":
        raise _refusal(who, f"files of format {format} have no options")
    found = written_options(options)
    for fault in find_csv_errors(found, known):
        raise _refusal(who, fault)
    return found


def _checked_message(who: str, format: str, message: type | None) -> str | None:
    """Returns the name of a message class. Raises ProgramError."""
    if format != "protobuf":
        if message is not None:
            raise _refusal(who, f"files of format {format} have no message class")
        return None
    if message is None:
        raise _refusal(who, "a file of Protobuf messages has no schema: give their class, message=...")
    try:
        return protobuf_classes.name_of(message)
    except ValueError as error:
        raise _refusal(who, str(error)) from None


def written_options(options: Mapping[str, object] | None) -> Mapping[str, str]:
    """Returns options as texts."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (options or {}).items()
    }


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
