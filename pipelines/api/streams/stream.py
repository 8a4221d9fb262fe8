"""What every stream has: a place in the program, a record type, and sinks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

from ...flink_names import NEED_KEYS, advise
from ...functions import AsyncRetryStrategy, SinkFunction, TransactionalSink
from ...functions.http_sink import discard
from ...types import PICKLED, RecordType
from .. import signatures
from ..checks import is_whole
from ..collected import CollectedRecords
from ..connectors import FileSink, HttpSink, KafkaSink
from ..connectors.custom import check_custom_sink
from ..connectors.format_compatibility import check_sink
from ..connectors.source_names import paths_name, topics_name
from ..display import StreamRows, operator_name, stream_html
from ..durations import timedelta_ms
from ..kafka_sinks import kafka_sink_fields
from ..program import Program
from ..signatures import Signature, check_function
from ..source_location import caller_location
from ..transformations import (
    AsyncMap,
    Collect,
    Foreach,
    Physical,
    Print,
    WriteExternalKafka,
    WriteFiles,
    WriteKafka,
    WriteTransactions,
)
from ..type_hints import result_type
from .settings import OnlyInPrograms, OperatorSettings, refusal

T = TypeVar("T")


class DataStreamSink(OperatorSettings, OnlyInPrograms):
    """The end of a stream."""

    def __init__(self, program: Program, transformation_id: int) -> None:
        self._program = program
        self._id = transformation_id


class Stream(OnlyInPrograms, Generic[T]):
    """The output of a transformation."""

    def __init__(self, program: Program, transformation_id: int) -> None:
        self._program = program
        self._id = transformation_id

    @property
    def record_type(self) -> RecordType:
        """The type of the stream's records."""
        return self._program.record_type(self._id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of {self.record_type}>"

    def _repr_html_(self) -> str:
        return stream_html(type(self).__name__, self._name, self.record_type)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in NEED_KEYS:
                raise AttributeError(f"{name} needs a keyed stream: call key_by before it")
            advise(self, name)

    @property
    def _name(self) -> str:
        return operator_name(self._program.transformations, self._id)

    def _checked(self, step: str, function: object, signature: Signature, output_type: object) -> RecordType:
        """Checks the function, and returns the type of its results."""
        check_function(function, signature, operator=step, location=caller_location())
        return result_type(function, signature) if output_type is None else RecordType.of(output_type)

    def _add(
        self, kind: type[Physical], step: str, name: str, output_type: RecordType | None, **fields: Any
    ) -> int:
        """Adds a step behind this stream, and returns its id."""
        made = self._program.add(
            kind,
            step=step,
            location=caller_location(),
            inputs=(self._id,),
            name=name,
            output_type=output_type,
            **fields,
        )
        return made.id

    def _await(
        self,
        step: str,
        name: str,
        function: Any,
        of: RecordType,
        *,
        capacity: int,
        timeout: timedelta | None,
        ordered: bool,
        retry: AsyncRetryStrategy | None,
    ) -> int:
        """Adds asynchronous calls behind this stream, and returns their id. Raises ProgramError."""
        if not is_whole(capacity, 1):
            raise refusal(step, f"the capacity is {capacity!r}, not an integer of 1 or more")
        if not isinstance(retry, AsyncRetryStrategy | None):
            raise refusal(
                step, f"expected an AsyncRetryStrategy such as FixedDelayRetryStrategy(), not {retry!r}"
            )
        return self._add(
            AsyncMap,
            step,
            name,
            of,
            function=function,
            retry=retry,
            capacity=capacity,
            timeout_ms=None if timeout is None else timedelta_ms("timeout", timeout, operator=step),
            ordered=bool(ordered),
        )

    def _into(self, kind: type[Physical], step: str, name: str, **fields: Any) -> DataStreamSink:
        return DataStreamSink(self._program, self._add(kind, step, name, None, **fields))


class Sinks(Stream[T]):
    """Part of DataStream."""

    def print(self, identifier: str | None = None) -> DataStreamSink:
        """Writes each record as text to the job's output, after the identifier if there is one."""
        return self._into(Print, "print", "Sink: Print", identifier=identifier)

    def _collect(self, step: str, identifier: str | None) -> None:
        self._into(Collect, step, "Sink: Collect", identifier=identifier)

    @overload
    def execute_and_collect(
        self, job_name: str = "tailrace job", limit: None = None
    ) -> CollectedRecords[T]: ...
    @overload
    def execute_and_collect(self, job_name: str = "tailrace job", *, limit: int) -> list[T]: ...
    def execute_and_collect(
        self, job_name: str = "tailrace job", limit: int | None = None
    ) -> CollectedRecords[T] | list[T]:
        """Executes the program as a job, and returns this stream's records: an iterator that yields them while the job
        runs, and cancels it when it is closed; with a `limit` a list of so many at most.

        A program that is connected to no cluster runs in this process. Raises ProgramError.
        """
        if limit is not None and not is_whole(limit, 0):
            raise refusal("execute_and_collect", f"limit is {limit!r}, not a number of records")
        self._collect("execute_and_collect", None)
        assert self._program.collect is not None
        records: CollectedRecords[T] = CollectedRecords(self._program.collect(job_name))
        if limit is None:
            return records
        with records:
            return list(islice(records, limit))

    def show(self, limit: int = 10) -> StreamRows[T]:
        """Executes only what this stream is made of, and returns its first records; a notebook shows them as a table.

        The rest of the program stays as it is. The next job has of this stream what other steps read: a step that has
        failed here fails no other job. Raises ProgramError.
        """
        program = self._program
        pending, program.pending = program.pending, []
        steps = len(program.transformations)
        try:
            return StreamRows(self.execute_and_collect("show", limit=limit), self.record_type)
        finally:
            program.pending = pending
            for added in range(steps, len(program.transformations)):
                del program.transformations[added + 1]
            program.withdraw_unread(self._id)

    def foreach(self, function: Callable[[T], Any] | SinkFunction[T]) -> DataStreamSink:
        """Calls the function for each record, at least once: after a failure it gets some records again."""
        self._checked("foreach", function, signatures.SINK, None)
        return self._into(Foreach, "foreach", "Sink: Foreach", function=function)

    def sink_to(self, sink: FileSink | KafkaSink | HttpSink | TransactionalSink[T]) -> DataStreamSink:
        """Writes each record to files (FileSink, SparkSink), to Kafka (KafkaSink), or by a TransactionalSink of your
        own, exactly once; or to an HTTP server (HttpSink), at least once."""
        if isinstance(sink, (FileSink, KafkaSink)):
            check_sink(sink, self.record_type, "sink_to")
        match sink:
            case FileSink():
                return self._into(WriteFiles, "sink_to", paths_name("Sink: Files", [sink.path]), sink=sink)
            case KafkaSink():
                name = "Sink: Kafka" if callable(sink.topic) else topics_name("Sink: Kafka", [sink.topic])
                kind = WriteKafka if sink.connection is None else WriteExternalKafka
                return self._into(
                    kind, "sink_to", name, **kafka_sink_fields(sink, self.record_type, "sink_to")
                )
            case HttpSink(capacity=capacity, retry=retry):
                name = f"Sink: {sink.name}"
                sent = self._await(
                    "sink_to",
                    name,
                    sink.function,
                    PICKLED,
                    capacity=capacity,
                    timeout=None,
                    ordered=False,
                    retry=retry,
                )
                return Stream[Any](self._program, sent)._into(
                    Foreach, "sink_to", "Sink: Discard", function=discard
                )
            case TransactionalSink():
                check_custom_sink(sink, "sink_to")
                return self._into(WriteTransactions, "sink_to", f"Sink: {type(sink).__name__}", sink=sink)
            case _:
                raise refusal(
                    "sink_to",
                    f"expected a FileSink, a KafkaSink, an HttpSink or an object of a TransactionalSink, not {sink!r}",
                )
