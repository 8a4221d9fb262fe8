"""The methods of the environment that create sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, overload

from ..functions import Source
from ..graph.errors import ProgramError
from ..types import PICKLED, Declared, RecordType, RecordTypeError
from . import signatures
from .checks import is_number, is_text, is_whole
from .connectors import FileSource, KafkaSource
from .connectors.custom import check_custom_source
from .connectors.format_compatibility import check_source, source_record_type
from .connectors.source_names import paths_name, topics_name
from .literal_types import common_type
from .program import Program
from .signatures import check_function
from .source_location import caller_location
from .streams import SingleOutputStreamOperator
from .transformations import (
    Collection,
    Generate,
    Physical,
    ReadCustom,
    ReadFiles,
    ReadKafka,
    SocketTextStream,
)
from .type_hints import return_type, type_argument
from .watermark_strategy import WatermarkStrategy

T = TypeVar("T")


class Sources:
    """Part of the StreamExecutionEnvironment."""

    _program: Program

    def socket_text_stream(
        self, host: str, port: int, delimiter: str = "\n", max_retries: int = 0
    ) -> SingleOutputStreamOperator[str]:
        """Returns the text that a server at host:port sends, split at the delimiter, which is dropped. Parallelism 1.

        If the server is unreachable, the source retries up to `max_retries` times, every half second (-1: without
        limit), and then fails. It connects once: it finishes when the server closes the connection, and fails when the
        connection breaks.
        """
        step = "socket_text_stream"
        check_text("host", host, operator=step)
        check_text("delimiter", delimiter, operator=step)
        _check_integer("port", port, 1, 65535, operator=step)
        _check_integer("max_retries", max_retries, -1, 2**31 - 1, operator=step)
        return self._source(
            SocketTextStream,
            step,
            "Source: Socket Stream",
            RecordType.of(str),
            host=host,
            port=port,
            delimiter=delimiter,
            max_retries=max_retries,
        )

    def from_collection(
        self, items: Iterable[T], output_type: object = None
    ) -> SingleOutputStreamOperator[T]:
        """Returns the given records, in order, as a bounded stream. Parallelism 1.

        Without `output_type`, the type is that of the items if all have one known type: plain values, tuples of them,
        or one dataclass or NamedTuple. Other items are pickled. The items travel inside the job: a few megabytes at
        most.
        """
        step = "from_collection"
        if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
            raise _refusal(step, f"expected a list of records, not {type(items).__name__} {items!r}")
        records = list(items)
        if output_type is None:
            of = common_type(records)
        else:
            of = RecordType.of(output_type)
            try:
                of.to_columns(records)
            except RecordTypeError as error:
                raise _refusal(step, str(error)) from error
        return self._source(Collection, step, "Source: Collection", of, records=records)

    def read_text_file(
        self, *paths: str, monitor: timedelta | None = None
    ) -> SingleOutputStreamOperator[str]:
        """Returns the lines of files, directories and glob patterns, local or of any file system that fsspec
        supports.

        `monitor`, of all methods that read files: the source does not end, but looks for new files at this interval
        (`FileSource.monitor_continuously`).
        """
        return self._files("read_text_file", FileSource(*paths), monitor)

    def read_avro(
        self,
        *paths: str,
        columns: Sequence[str] | None = None,
        output_type: object = None,
        monitor: timedelta | None = None,
    ) -> SingleOutputStreamOperator[Any]:
        """Returns the rows of Avro files. See FileSource."""
        source = FileSource(*paths, format="avro", columns=columns, output_type=output_type)
        return self._files("read_avro", source, monitor)

    def read_csv(
        self,
        *paths: str,
        columns: Sequence[str] | None = None,
        output_type: object = None,
        header: bool = True,
        delimiter: str = ",",
        quote: str = '"',
        null: str = "",
        multiline: bool = False,
        monitor: timedelta | None = None,
    ) -> SingleOutputStreamOperator[Any]:
        """Returns the rows of CSV files. Without `output_type`, all values are text. See FileSource.

        `header`: whether the first line has the names of the columns; otherwise they are `columns`, the fields of the
        class in their order, or f0, f1, ... `quote`: "" if values have no quotes. `null`: the text of a missing value.
        `multiline`: whether values in quotes may have line breaks; each file is then read by one subtask.
        """
        options = {
            "header": header, "delimiter": delimiter, "quote": quote, "null": null, "multiline": multiline,
        }  # fmt: skip
        source = FileSource(*paths, format="csv", columns=columns, output_type=output_type, options=options)
        return self._files("read_csv", source, monitor)

    def read_orc(
        self,
        *paths: str,
        columns: Sequence[str] | None = None,
        output_type: object = None,
        monitor: timedelta | None = None,
    ) -> SingleOutputStreamOperator[Any]:
        """Returns the rows of ORC files. See FileSource."""
        source = FileSource(*paths, format="orc", columns=columns, output_type=output_type)
        return self._files("read_orc", source, monitor)

    def read_parquet(
        self,
        *paths: str,
        columns: Sequence[str] | None = None,
        output_type: object = None,
        monitor: timedelta | None = None,
    ) -> SingleOutputStreamOperator[Any]:
        """Returns the rows of Parquet files. See FileSource."""
        source = FileSource(*paths, format="parquet", columns=columns, output_type=output_type)
        return self._files("read_parquet", source, monitor)

    @overload
    def read_protobuf(
        self, *paths: str, message: type[T], output_type: None = None, monitor: timedelta | None = None
    ) -> SingleOutputStreamOperator[T]: ...
    @overload
    def read_protobuf(
        self, *paths: str, message: type, output_type: object, monitor: timedelta | None = None
    ) -> SingleOutputStreamOperator[Any]: ...
    def read_protobuf(
        self, *paths: str, message: type, output_type: object = None, monitor: timedelta | None = None
    ) -> SingleOutputStreamOperator[Any]:
        """Returns the messages of files of length-delimited Protobuf messages. See FileSource.

        `message`: their class, which protoc generated.
        """
        source = FileSource(*paths, format="protobuf", message=message, output_type=output_type)
        return self._files("read_protobuf", source, monitor)

    def generate(
        self,
        function: Callable[[int], T],
        count: int | None = None,
        rate_per_second: float | None = None,
        output_type: Declared[T] = None,
    ) -> SingleOutputStreamOperator[T]:
        """Returns function(0), function(1), ...: `count` records, or an unbounded stream.

        `rate_per_second` is the rate of all subtasks together; None: no limit.
        """
        step = "generate"
        check_function(function, signatures.SELECTOR, operator=step, location=caller_location())
        if count is not None:
            _check_integer("count", count, 0, 2**53, operator=step)
        if rate_per_second is not None and not (is_number(rate_per_second) and rate_per_second > 0):
            raise _refusal(step, f"rate_per_second is {rate_per_second!r}, not a number above 0")
        of = return_type(function) if output_type is None else RecordType.of(output_type)
        return self._source(
            Generate,
            step,
            "Source: Generator",
            of,
            function=function,
            count=count,
            rate=None if rate_per_second is None else float(rate_per_second),
        )

    @overload
    def from_source(
        self,
        source: Source[T],
        watermark_strategy: WatermarkStrategy[T] | None = None,
        name: str | None = None,
    ) -> SingleOutputStreamOperator[T]: ...
    @overload
    def from_source(
        self,
        source: KafkaSource | FileSource,
        watermark_strategy: WatermarkStrategy[Any] | None = None,
        name: str | None = None,
    ) -> SingleOutputStreamOperator[Any]: ...
    def from_source(
        self,
        source: KafkaSource | FileSource | Source[Any],
        watermark_strategy: WatermarkStrategy[Any] | None = None,
        name: str | None = None,
    ) -> SingleOutputStreamOperator[Any]:
        """Returns the records of a connector, with timestamps and watermarks if a strategy is given.

        The connector is a KafkaSource, a FileSource, or a Source of your own.
        """
        match source:
            case KafkaSource():
                stream = self._kafka("from_source", source)
            case FileSource():
                stream = self._files("from_source", source)
            case Source():
                stream = self._custom("from_source", source)
            case _:
                raise _refusal(
                    "from_source",
                    f"expected a KafkaSource, a FileSource or an object of a Source, not {source!r}",
                )
        if name is not None:
            stream.name(name)
        if watermark_strategy is None:
            return stream
        return stream.assign_timestamps_and_watermarks(watermark_strategy)

    def _kafka(self, step: str, source: KafkaSource) -> SingleOutputStreamOperator[Any]:
        of = source_record_type(source)
        check_source(source, of, step)
        return self._source(
            ReadKafka, step, topics_name("Source: Kafka", source.shown_topics), of, source=source
        )

    def _files(
        self, step: str, source: FileSource, monitor: timedelta | None = None
    ) -> SingleOutputStreamOperator[Any]:
        if monitor is not None:
            source = source.monitor_continuously(monitor)
        undeclared = RecordType.of(str) if source.format == "text" else PICKLED
        of = undeclared if source.output_type is None else RecordType.of(source.output_type)
        check_source(source, of, step)
        return self._source(ReadFiles, step, paths_name("Source: Files", source.paths), of, source=source)

    def _custom(self, step: str, source: Source[Any]) -> SingleOutputStreamOperator[Any]:
        check_custom_source(source, step)
        hint = source.output_type
        of = RecordType.of(type_argument(type(source), Source, 0) if hint is None else hint)
        return self._source(ReadCustom, step, f"Source: {type(source).__name__}", of, source=source)

    def _source(
        self, kind: type[Physical], step: str, name: str, output_type: RecordType, **fields: Any
    ) -> SingleOutputStreamOperator[Any]:
        made = self._program.add(
            kind, step=step, location=caller_location(), name=name, output_type=output_type, **fields
        )
        return SingleOutputStreamOperator(self._program, made.id)


def check_text(name: str, value: object, *, operator: str) -> None:
    """Raises ProgramError if the value is no string, or empty."""
    if not is_text(value):
        raise _refusal(operator, f"{name} is {value!r}, not one or more characters")


def _check_integer(name: str, value: object, least: int, most: int, *, operator: str) -> None:
    if not is_whole(value, least, most):
        raise _refusal(operator, f"{name} is {value!r}, not an integer from {least} to {most}")


def _refusal(step: str, reason: str) -> ProgramError:
    return ProgramError(reason, operator=step, location=caller_location())
