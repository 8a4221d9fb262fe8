"""DataStream: a stream of records, and the steps that need no key."""

# The kinds of streams make one another, so that they are imported where they are made.
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ....schemas.types import Partitioner
from ...functions import FilterFunction, FlatMapFunction, MapFunction, ProcessFunction
from ...types import PICKLED
from .. import signatures
from ..keys import NO_KEY, Key, field_selector, key_of
from ..source_location import caller_location
from ..transformations import (
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Partition,
    Process,
    Union,
    Watermarks,
)
from ..watermark_strategy import WatermarkStrategy
from ..windows import WindowAssigner
from .partitioning import Partitioning
from .settings import refusal
from .sinks import Sinks

if TYPE_CHECKING:
    import pyarrow as pa

    from .broadcast_stream import BroadcastConnectedStream, BroadcastStream
    from .connected_streams import ConnectedStreams
    from .keyed_stream import KeyedStream
    from .operator import SingleOutputStreamOperator
    from .windowed_stream import AllWindowedStream

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")
K = TypeVar("K")


class DataStream(Partitioning[T], Sinks[T]):
    """A stream of records."""

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

    @overload
    def connect(self, other: DataStream[U]) -> ConnectedStreams[T, U]: ...
    @overload
    def connect(self, other: BroadcastStream[U]) -> BroadcastConnectedStream[T, U]: ...
    def connect(
        self, other: DataStream[U] | BroadcastStream[U]
    ) -> ConnectedStreams[T, U] | BroadcastConnectedStream[T, U]:
        """This stream and another, of whatever type, for one operator with two inputs.

        The other may be a broadcast one with state: `rules.broadcast(descriptor)`.
        """
        from .broadcast_stream import BroadcastConnectedStream, BroadcastStream
        from .connected_streams import ConnectedStreams

        if isinstance(other, BroadcastStream):
            self._check_same_program("connect", other._stream)
            return BroadcastConnectedStream(self, other)
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
        from .windowed import check_assigner
        from .windowed_stream import AllWindowedStream

        check_assigner("window_all", assigner)
        return AllWindowedStream(self._keyed(NO_KEY, "window_all"), assigner)

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
