"""Files that Spark reads and writes: those of FileSource and FileSink, in the formats and with the options of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Literal

from ...graph.errors import ProgramError
from ...graph.spark_options import find_option_errors
from ..source_location import caller_location
from .files import Bucket, FileSink, FileSource, SparkFileFormat, written_options

SparkFormat = Literal["parquet", "orc", "json", "csv"]
_FORMATS: Final = ("parquet", "orc", "json", "csv")


class SparkSource(FileSource):
    """A FileSource whose files Spark reads: Parquet, ORC, JSON lines or CSV.

    `output_type`: the dataclass or NamedTuple of a row, with the columns to read by name. If `where` follows the
    source, also behind `select` and `with_column`, Spark drops the rows for which it is not true, before Python.
    `options` are those of Spark's reader, such as `{"header": "true"}`.
    """

    __slots__ = ()

    def __init__(
        self,
        format: SparkFormat,
        *paths: str,
        output_type: object,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Raises ProgramError."""
        _check_format("SparkSource", format)
        super().__init__(*paths, format=_named(format), output_type=output_type)
        self.options = _checked_options("SparkSource", options)


class SparkSink(FileSink):
    """A FileSink whose files Spark writes: Parquet, ORC, JSON lines or CSV, each record in one file.

    `options` are those of Spark's writer, such as `{"compression": "zstd"}`.
    """

    __slots__ = ()

    def __init__(
        self,
        format: SparkFormat,
        path: str,
        options: Mapping[str, object] | None = None,
        prefix: str = "part",
        roll_records: int = 1_000_000,
        roll_interval: timedelta = timedelta(minutes=1),
        *,
        bucket: Bucket | None = None,
        roll_bytes: int = 64 << 20,
        roll_inactivity: timedelta | None = None,
        max_open_files: int = 100,
        success_files: bool = False,
    ) -> None:
        """Raises ProgramError."""
        _check_format("SparkSink", format)
        super().__init__(
            path,
            _named(format),
            prefix,
            roll_records,
            roll_interval,
            bucket=bucket,
            roll_bytes=roll_bytes,
            roll_inactivity=roll_inactivity,
            max_open_files=max_open_files,
            success_files=success_files,
        )
        self.options = _checked_options("SparkSink", options)


def _check_format(who: str, format: object) -> None:
    if format not in _FORMATS:
        raise _refusal(who, f"the format {format!r} is not {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}")


def _named(format: SparkFormat) -> SparkFileFormat:
    names: Mapping[SparkFormat, SparkFileFormat] = {
        "parquet": "spark-parquet", "orc": "spark-orc", "json": "spark-json", "csv": "spark-csv",
    }  # fmt: skip
    return names[format]


def _checked_options(who: str, options: Mapping[str, object] | None) -> Mapping[str, str]:
    written = written_options(options)
    for fault in find_option_errors(written):
        raise _refusal(who, fault)
    return written


def _refusal(who: str, reason: str) -> ProgramError:
    return ProgramError(reason, operator=who, location=caller_location())
