"""DataStream: a stream of records, and the steps that need no key."""

# The kinds of streams make one another, so that they are imported where they are made.
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ....schemas.types import Partitioner
from ...functions import FilterFunction, FlatMapFunction, MapFunction, ProcessFunction, SinkFunction
from ...types import PICKLED, RecordType
from .. import signatures
from ..connectors import FileSink, KafkaSink
from ..hints import result_type
from ..keys import NO_KEY, Key, field_selector, key_of
from ..locations import caller_location
from ..program import Program
from ..signatures import Signature, check_function
from ..transformations import (
    Filter,
    FlatMap,
    Foreach,
    Map,
    MapBatches,
    Partition,
    Physical,
    Print,
    Process,
    Union,
    Watermarks,
    WriteFiles,
    WriteKafka,
)
from ..watermark_strategy import WatermarkStrategy
from ..windows import WindowAssigner
from .settings import OnlyInPrograms, refusal

if TYPE_CHECKING:
    import pyarrow as pa

    from .connected_streams import ConnectedStreams
    from .keyed_stream import KeyedStream
    from .operator import DataStreamSink, SingleOutputStreamOperator
    from .windowed_stream import AllWindowedStream

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")
K = TypeVar("K")


class DataStream(OnlyInPrograms, Generic[T]):
    """A stream of records."""

    def __init__(self, program: Program, transformation_id: int) -> None:
        self._program = program
        self._id = transformation_id

    @property
    def record_type(self) -> RecordType:
        """The type of the stream's records."""
        return self._program.record_type(self._id)

    def map(
        self, function: Callable[[T], R] | MapFunction[T, R], output_type: object = None
    ) -> SingleOutputStreamOperator[R]:
        """One record for each: what the function returns."""
        of = self._checked("map", function, signatures.MAP, output_type)
        return self._then(Map, "map", "Map", of, function=function)

    def flat_map(
        self,
        function: Callable[[T], Iterable[R] | None] | FlatMapFunction[T, R],
        output_type: object = None,
    ) -> SingleOutputStreamOperator[R]:
        """Any number of records for each: what the function returns or yields. `output_type` is that of one."""
        of = self._checked("flat_map", function, signatures.FLAT_MAP, output_type)
        return self._then(FlatMap, "flat_map", "Flat Map", of, function=function)

    def filter(self, function: Callable[[T], object] | FilterFunction[T]) -> SingleOutputStreamOperator[T]:
        """Those records for which the function returns something true."""
        of = self._checked("filter", function, signatures.FILTER, self.record_type)
        return self._then(Filter, "filter", "Filter", of, function=function)

    def process(
        self, function: ProcessFunction[T, R], output_type: object = None
    ) -> SingleOutputStreamOperator[R]:
        """Any number of records for each, and side outputs. State and timers are for keyed streams."""
        if isinstance(function, signatures.KEYED_PROCESS.base or ()):
            raise refusal(
                "process", f"{signatures.function_name(function)} needs keys for its state: call key_by first"
            )
        of = self._checked("process", function, signatures.PROCESS, output_type)
        return self._then(Process, "process", "Process", of, function=function)

    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table],
        output_type: object = None,
    ) -> SingleOutputStreamOperator[Any]:
        """Arrow record batches for Arrow record batches: one column per field, or `value` (see `pipelines.types`).

        Batches are what came in together, of any size from one record on. `output_type` says what records the columns
        of the result are; None: the same as the input's.
        """
        of = self._checked("map_batches", function, signatures.BATCHES, output_type or self.record_type)
        if PICKLED in (self.record_type, of):
            which = "records that come in" if self.record_type == PICKLED else "records that go out"
            raise refusal(
                "map_batches", f"the {which} are pickled, and have no columns: declare their output_type"
            )
        return self._then(MapBatches, "map_batches", "Map Batches", of, function=function)

    def assign_timestamps_and_watermarks(
        self, strategy: WatermarkStrategy[T]
    ) -> SingleOutputStreamOperator[T]:
        """Records get timestamps, and event time comes on, by the strategy. Best called right behind a source."""
        step = "assign_timestamps_and_watermarks"
        if not isinstance(strategy, WatermarkStrategy):
            raise refusal(
                step,
                "it needs a WatermarkStrategy such as WatermarkStrategy.for_monotonous_timestamps(),"
                f" not {strategy!r}",
            )
        assigner: Any = strategy.timestamp_assigner
        if isinstance(assigner, (str, int)):
            assigner = field_selector(self.record_type, assigner, step)
        return self._then(
            Watermarks,
            step,
            "Timestamps/Watermarks",
            self.record_type,
            timestamp_assigner=assigner,
            out_of_orderness_ms=strategy.out_of_orderness_ms,
            idle_after_ms=strategy.idle_after_ms,
        )

    def union(self, *streams: DataStream[T]) -> DataStream[T]:
        """The records of this stream and all others, which must be of one type."""
        if not streams:
            raise refusal("union", "it needs one or more other streams")
        for stream in streams:
            self._check_same_program("union", stream)
            if stream.record_type != self.record_type:
                raise refusal(
                    "union",
                    f"the streams' records differ: {self.record_type} and {stream.record_type};"
                    " map them to one type, or declare it by output_type or returns()",
                )
        inputs = (self._id, *(stream._id for stream in streams))
        made = self._program.add(Union, step="union", location=caller_location(), inputs=inputs)
        return DataStream(self._program, made.id)

    def connect(self, other: DataStream[U]) -> ConnectedStreams[T, U]:
        """This stream and another, of whatever type, for one operator with two inputs."""
        from .connected_streams import ConnectedStreams

        self._check_same_program("connect", other)
        return ConnectedStreams(self, other)

    @overload
    def key_by(self, key: Callable[[T], K], key_type: object = None) -> KeyedStream[T, K]: ...
    @overload
    def key_by(self, key: str | int, key_type: object = None) -> KeyedStream[T, Any]: ...
    def key_by(self, key: Callable[[T], Any] | str | int, key_type: object = None) -> KeyedStream[T, Any]:
        """Records with equal keys go to the same subtask.

        The key is what a function makes of a record, or the name of a field, or a position in a tuple. It is made of
        str, int, float, bool, bytes, None and tuples of them (`graph.key_groups`).
        """
        return self._keyed(key_of(self.record_type, key, key_type, "key_by"), "key_by")

    def window_all(self, assigner: WindowAssigner) -> AllWindowedStream[T]:
        """Groups all records by windows, in one subtask."""
        from .windowed_stream import AllWindowedStream, check_assigner

        check_assigner("window_all", assigner)
        return AllWindowedStream(self._keyed(NO_KEY, "window_all"), assigner)

    def shuffle(self) -> DataStream[T]:
        """Each record goes to any subtask of the next operator, by chance."""
        return self._partitioned(Partitioner.SHUFFLE, "shuffle")

    def rebalance(self) -> DataStream[T]:
        """Records go to the subtasks of the next operator by turns."""
        return self._partitioned(Partitioner.REBALANCE, "rebalance")

    def rescale(self) -> DataStream[T]:
        """Records go by turns to those few subtasks of the next operator that are this subtask's."""
        return self._partitioned(Partitioner.RESCALE, "rescale")

    def broadcast(self) -> DataStream[T]:
        """Each record goes to all subtasks of the next operator."""
        return self._partitioned(Partitioner.BROADCAST, "broadcast")

    def global_(self) -> DataStream[T]:
        """All records go to the first subtask of the next operator."""
        return self._partitioned(Partitioner.GLOBAL, "global_")

    def forward(self) -> DataStream[T]:
        """Records stay in the subtask; the next operator must have the same parallelism."""
        return self._partitioned(Partitioner.FORWARD, "forward")

    def partition_custom(
        self, partitioner: Callable[[K, int], int], key: Callable[[T], K] | str | int
    ) -> DataStream[T]:
        """Each record goes to the subtask `partitioner(key, number of subtasks)`, from 0."""
        location = caller_location()
        check_function(partitioner, signatures.PARTITIONER, operator="partition_custom", location=location)
        if isinstance(key, (str, int)):
            selector: Any = field_selector(self.record_type, key, "partition_custom")
        else:
            check_function(key, signatures.SELECTOR, operator="partition_custom", location=location)
            selector = key
        return self._partitioned(Partitioner.CUSTOM, "partition_custom", (partitioner, selector))

    def print(self, identifier: str | None = None) -> DataStreamSink:
        """Each record as text to the job's output, after the identifier if there is one."""
        return self._into(Print, "print", "Sink: Print", identifier=identifier)

    def foreach(self, function: Callable[[T], Any] | SinkFunction[T]) -> DataStreamSink:
        """Each record to a function, at least once: after a failure, some are given to it again."""
        self._checked("foreach", function, signatures.SINK, None)
        return self._into(Foreach, "foreach", "Sink: Foreach", function=function)

    def sink_to(self, sink: FileSink | KafkaSink) -> DataStreamSink:
        """Each record to files or a Kafka topic, exactly once."""
        match sink:
            case FileSink():
                return self._into(WriteFiles, "sink_to", "Sink: Files", sink=sink)
            case KafkaSink(key=str() as field):
                key: Any = field_selector(self.record_type, field, "sink_to")
                return self._into(WriteKafka, "sink_to", "Sink: Kafka", sink=sink, key=key)
            case KafkaSink(key=key):
                if key is not None:
                    location = caller_location()
                    check_function(key, signatures.SELECTOR, operator="sink_to", location=location)
                return self._into(WriteKafka, "sink_to", "Sink: Kafka", sink=sink, key=key)
            case _:
                raise refusal("sink_to", f"it needs a FileSink or a KafkaSink, not {sink!r}")

    def _checked(self, step: str, function: object, signature: Signature, output_type: object) -> RecordType:
        """The type of what follows, once the function is known to be one."""
        check_function(function, signature, operator=step, location=caller_location())
        return result_type(function, signature) if output_type is None else RecordType.of(output_type)

    def _then(
        self, kind: type[Physical], step: str, name: str, output_type: RecordType, **fields: Any
    ) -> SingleOutputStreamOperator[Any]:
        from .operator import SingleOutputStreamOperator

        made = self._program.add(
            kind,
            step=step,
            location=caller_location(),
            inputs=(self._id,),
            name=name,
            output_type=output_type,
            **fields,
        )
        return SingleOutputStreamOperator(self._program, made.id)

    def _into(self, kind: type[Physical], step: str, name: str, **fields: Any) -> DataStreamSink:
        from .operator import DataStreamSink

        made = self._program.add(
            kind,
            step=step,
            location=caller_location(),
            inputs=(self._id,),
            name=name,
            output_type=None,
            **fields,
        )
        return DataStreamSink(self._program, made.id)

    def _partitioned(
        self, partitioner: Partitioner, step: str, functions: tuple[Any, ...] = ()
    ) -> DataStream[T]:
        made = self._program.add(
            Partition,
            step=step,
            location=caller_location(),
            inputs=(self._id,),
            partitioner=partitioner,
            functions=functions,
        )
        return DataStream(self._program, made.id)

    def _keyed(self, key: Key, step: str) -> KeyedStream[T, Any]:
        from .keyed_stream import KeyedStream

        made = self._program.add(
            Partition,
            step=step,
            location=caller_location(),
            inputs=(self._id,),
            partitioner=Partitioner.HASH,
            functions=(key.selector,),
            parameters=key.parameters(),
        )
        return KeyedStream(self._program, made.id, key)

    def _check_same_program(self, step: str, other: object) -> None:
        if not isinstance(other, DataStream):
            raise refusal(step, f"it needs a stream, not {other!r}")
        if other._program is not self._program:
            raise refusal(step, "the streams belong to two environments")
