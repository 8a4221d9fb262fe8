"""The streams of a program: DataStream, KeyedStream, ConnectedStreams, BroadcastStream, WindowedStream, and joins.

Each method of a stream returns another stream, so the classes refer to each other: like PyFlink's data_stream.py they
are in one module: an import between them, also for types only, would be a circle. `Stream` and `Sinks` (stream.py) and
`Partitioning` are the parts of a DataStream; window_settings.py has what refers to no stream. As in Flink, a window
join and a co-group are a window over the union of two streams, whose records are tagged.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Protocol, Self, TypeVar, overload

from ....schemas.types import Partitioner
from ...functions import (
    AggregateFunction,
    AsyncFunction,
    AsyncRetryStrategy,
    BroadcastProcessFunction,
    CheckpointedFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    JoinFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessJoinContext,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    TaggedUnion,
    WindowContext,
)
from ...functions.adapters import (
    AllWindow,
    KeyedCoFlatMap,
    KeyedCoMap,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    TwoFlatMaps,
    TwoMaps,
    WindowCall,
    may_have_state,
)
from ...functions.aggregates import WindowAggregate, WindowRow
from ...functions.evictor import Evictor
from ...functions.join_adapters import (
    CoGroupedWindow,
    JoinedWindow,
    TaggedKey,
    as_one,
    as_two,
    tagged_type,
)
from ...functions.kafka_record import without_none
from ...functions.lookup import LookupCache, LookupJoin, is_async
from ...functions.trigger import Trigger
from ...types import PICKLED, Declared, OptionalOf, RecordType, TupleOf
from .. import signatures, sql
from ..checks import is_text, is_whole
from ..durations import timedelta_ms, to_milliseconds
from ..keys import NO_KEY, Key, common_key_type, field_selector, key_of
from ..program import Program
from ..signatures import Signature, check_function, function_name, is_rich, uses_itself
from ..source_location import caller_location
from ..transformations import (
    Aggregate,
    BroadcastProcess,
    CoFlatMap,
    CoMap,
    CoProcess,
    EventTimeJoin,
    Filter,
    FlatMap,
    IntervalJoin,
    KeyedBroadcastProcess,
    KeyedCoProcess,
    KeyedProcess,
    Map,
    MapBatches,
    Partition,
    Physical,
    Process,
    Reduce,
    RunningFunction,
    Select,
    SideOutput,
    TemporalJoin,
    Union,
    Watermarks,
    Where,
    Window,
)
from ..type_hints import result_type
from ..watermark_strategy import WatermarkStrategy
from ..windows import GlobalWindows, WindowAssigner
from .settings import OnlyInPrograms, OperatorSettings, check_tag, refusal
from .stream import Sinks, Stream
from .window_settings import (
    WindowSettings,
    WindowStep,
    aggregated_column,
    check_assigner,
    count_functions,
)

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
K = TypeVar("K")
U = TypeVar("U")
R = TypeVar("R")
X = TypeVar("X")
A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S")
W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)

_LEAST_MS = -(2**53)


class Partitioning(Stream[T]):
    """Part of DataStream."""

    def shuffle(self) -> DataStream[T]:
        """Sends each record to a random subtask of the next operator."""
        return self._partitioned(Partitioner.SHUFFLE, "shuffle")

    def rebalance(self) -> DataStream[T]:
        """Sends records to the subtasks of the next operator in turn."""
        return self._partitioned(Partitioner.REBALANCE, "rebalance")

    def rescale(self) -> DataStream[T]:
        """Sends records in turn to the few subtasks of the next operator that are assigned to this subtask."""
        return self._partitioned(Partitioner.RESCALE, "rescale")

    @overload
    def broadcast(self) -> DataStream[T]: ...
    @overload
    def broadcast(
        self, state: MapStateDescriptor[Any, Any], /, *more: MapStateDescriptor[Any, Any]
    ) -> BroadcastStream[T]: ...
    def broadcast(self, *states: MapStateDescriptor[Any, Any]) -> DataStream[T] | BroadcastStream[T]:
        """Sends each record to all subtasks of the next operator.

        With descriptors: for an operator that stores these states, with the same content in every subtask (broadcast
        state). Connect another stream with it: `stream.connect(rules.broadcast(descriptor)).process(function)`.
        """
        stream = self._partitioned(Partitioner.BROADCAST, "broadcast")
        return BroadcastStream(stream, states) if states else stream

    def global_(self) -> DataStream[T]:
        """Sends all records to the first subtask of the next operator."""
        return self._partitioned(Partitioner.GLOBAL, "global_")

    def forward(self) -> DataStream[T]:
        """Leaves records in their subtask; the next operator must have the same parallelism."""
        return self._partitioned(Partitioner.FORWARD, "forward")

    def partition_custom(
        self, partitioner: Callable[[K, int], int], key: Callable[[T], K] | str | int
    ) -> DataStream[T]:
        """Sends each record to the subtask `partitioner(key, number of subtasks)`; subtasks are numbered from 0."""
        location = caller_location()
        check_function(partitioner, signatures.PARTITIONER, operator="partition_custom", location=location)
        if isinstance(key, (str, int)):
            selector: Any = field_selector(self.record_type, key, "partition_custom")
        else:
            check_function(key, signatures.SELECTOR, operator="partition_custom", location=location)
            selector = key
        return self._partitioned(Partitioner.CUSTOM, "partition_custom", (partitioner, selector))

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


class DataStream(Partitioning[T], Sinks[T]):
    """A stream of records."""

    def _then(
        self, kind: type[Physical], step: str, name: str, output_type: RecordType, **fields: Any
    ) -> SingleOutputStreamOperator[Any]:
        made = self._add(kind, step, name, output_type, **fields)
        return SingleOutputStreamOperator(self._program, made)

    def map(
        self, function: Callable[[T], R] | MapFunction[T, R], output_type: Declared[R] = None
    ) -> SingleOutputStreamOperator[R]:
        """Emits the function's result for each record."""
        of = self._checked("map", function, signatures.MAP, output_type)
        return self._then(Map, "map", "Map", of, function=function)

    def flat_map(
        self,
        function: Callable[[T], Iterable[R] | None] | FlatMapFunction[T, R],
        output_type: Declared[R] = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits all records that the function returns or yields for each record. `output_type` is the type of one of
        them."""
        of = self._checked("flat_map", function, signatures.FLAT_MAP, output_type)
        return self._then(FlatMap, "flat_map", "Flat Map", of, function=function)

    def filter(self, function: Callable[[T], object] | FilterFunction[T]) -> SingleOutputStreamOperator[T]:
        """Emits the records for which the function returns a true value."""
        of = self._checked("filter", function, signatures.FILTER, self.record_type)
        return self._then(Filter, "filter", "Filter", of, function=function)

    def where(self, condition: str) -> SingleOutputStreamOperator[T]:
        """Emits the records for which a condition in SQL is true, such as `amount > 10 AND user IS NOT NULL`."""
        sql.check_where("where", self.record_type, condition)
        return self._then(Where, "where", "Where", self.record_type, condition=condition)

    def select(self, columns: str) -> SingleOutputStreamOperator[Any]:
        """Emits a NamedTuple of the values of expressions in SQL for each record, such as
        `user, amount * 2 AS twice`; `*` stands for all columns."""
        return self._selected("select", sql.select(self.record_type, columns))

    def with_column(self, name: str, expression: str) -> SingleOutputStreamOperator[Any]:
        """Emits each record as a NamedTuple with a further column, the value of an expression in SQL. A column of that
        name is replaced."""
        return self._selected("with_column", sql.with_column(self.record_type, name, expression))

    def _selected(self, step: str, selection: sql.Selection) -> SingleOutputStreamOperator[Any]:
        name = "Select" if step == "select" else "With Column"
        return self._then(Select, step, name, selection.record_type, columns=selection.columns)

    def process(
        self, function: ProcessFunction[T, R], output_type: Declared[R] = None
    ) -> SingleOutputStreamOperator[R]:
        """Emits any number of records for each record, also on side outputs. State and timers need a keyed stream."""
        if isinstance(function, signatures.KEYED_PROCESS.base or ()):
            raise refusal(
                "process", f"{signatures.function_name(function)} needs keys for its state: call key_by first"
            )
        of = self._checked("process", function, signatures.PROCESS, output_type)
        return self._then(Process, "process", "Process", of, function=function)

    def async_map(
        self,
        function: Callable[[T], Awaitable[R]] | AsyncFunction[T, R],
        *,
        capacity: int = 100,
        timeout: timedelta | None = timedelta(seconds=60),
        ordered: bool = True,
        retry: AsyncRetryStrategy | None = None,
        output_type: Declared[R] = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits the result that an `async def` function returns for each record, or all results of an AsyncFunction.

        Each subtask awaits the results of up to `capacity` records at a time. `ordered`: whether results are emitted in
        the order of the records; else as they come, but not across a watermark. `timeout`: for all calls for a record
        together; the job fails then, unless an AsyncFunction has a `timeout`. A function is called again for records
        whose results were not committed before a failure; each result counts once. `output_type` is the type of one
        result.
        """
        step = "async_map"
        if isinstance(function, CheckpointedFunction):
            raise refusal(step, "an AsyncFunction has no state of its own")
        signature = signatures.ASYNC_INVOKE if isinstance(function, AsyncFunction) else signatures.ASYNC_MAP
        of = self._checked(step, function, signature, output_type)
        made = self._await(
            step, "Async Map", function, of, capacity=capacity, timeout=timeout, ordered=ordered, retry=retry
        )
        return SingleOutputStreamOperator(self._program, made)

    def lookup_join(
        self,
        lookup: Callable[[Any], Any],
        key: Callable[[T], Any] | str | int,
        *,
        how: Literal["left", "inner"] = "left",
        cache: LookupCache | None = None,
        value_type: object = None,
        capacity: int = 100,
        timeout: timedelta | None = timedelta(seconds=60),
        ordered: bool = True,
        retry: AsyncRetryStrategy | None = None,
    ) -> SingleOutputStreamOperator[tuple[T, Any]]:
        """Emits each record with the value that a function finds for its key, as a tuple.

        The value is None if there is none; an `inner` join drops the record then. The function may be `async def`;
        another one is called in threads, at most a hundred in a subtask. It may have `open(context)` and `close()`. The
        other arguments are those of `async_map`. `value_type` is the type of the values.
        """
        step = "lookup_join"
        if how not in ("left", "inner"):
            raise refusal(step, f"the join is {how!r}, not 'left' or 'inner'")
        if cache is not None and not is_whole(getattr(cache, "size", None), 1):
            raise refusal(step, f"expected a LookupCache of one key or more, not {cache!r}")
        if cache is not None and cache.ttl is not None:
            timedelta_ms("ttl of the cache", cache.ttl, step)
        signature = signatures.LOOKUP_ASYNC if is_async(lookup) else signatures.LOOKUP
        value = without_none(self._checked(step, lookup, signature, value_type))
        if how == "left" and value != PICKLED:
            value = OptionalOf(value)
        selector: Any = key
        if isinstance(key, (str, int)):
            selector = field_selector(self.record_type, key, step)
        else:
            check_function(key, signatures.SELECTOR, operator=step, location=caller_location())
        threads = min(capacity, 100) if is_whole(capacity, 1) else 1
        function = LookupJoin(lookup, selector, cache, inner=how == "inner", threads=threads)
        of = PICKLED if PICKLED in (self.record_type, value) else TupleOf((self.record_type, value))
        made = self._await(
            step,
            "Lookup Join",
            function,
            of,
            capacity=capacity,
            timeout=timeout,
            ordered=ordered,
            retry=retry,
        )
        return SingleOutputStreamOperator(self._program, made)

    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table],
        output_type: object = None,
    ) -> SingleOutputStreamOperator[Any]:
        """Applies a function to Arrow record batches: one column per field, or `value` (see `pipelines.types`).

        A batch holds records that arrived together: one or more. `output_type` is the record type of the result's
        columns; None: that of the input.
        """
        of = self._checked("map_batches", function, signatures.BATCHES, output_type or self.record_type)
        if PICKLED in (self.record_type, of):
            which = "records of the input" if self.record_type == PICKLED else "records of the output"
            raise refusal(
                "map_batches", f"the {which} are pickled and have no columns: declare their output_type"
            )
        return self._then(MapBatches, "map_batches", "Map Batches", of, function=function)

    def assign_timestamps_and_watermarks(
        self, strategy: WatermarkStrategy[T]
    ) -> SingleOutputStreamOperator[T]:
        """Assigns timestamps and watermarks by the strategy. Call it directly after a source if possible."""
        step = "assign_timestamps_and_watermarks"
        if not isinstance(strategy, WatermarkStrategy):
            raise refusal(
                step,
                "expected a WatermarkStrategy such as WatermarkStrategy.for_monotonous_timestamps(),"
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
        """Returns the records of this stream and all others, which must have one type."""
        if not streams:
            raise refusal("union", "expected one or more other streams")
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
        """Connects this stream and another, of any type, for one operator with two inputs.

        The other may be a broadcast stream with state: `rules.broadcast(descriptor)`.
        """
        if isinstance(other, BroadcastStream):
            self._check_same_program("connect", other._stream)
            return BroadcastConnectedStream(self, other)
        self._check_same_program("connect", other)
        return ConnectedStreams(self, other)

    def join(self, other: DataStream[U]) -> JoinedStreams[T, U]:
        """Joins the records of both streams that have one key in one window:
        `a.join(b).where(key).equal_to(key).window(assigner).apply(function)`."""
        self._check_same_program("join", other)
        return JoinedStreams(self, other)

    def co_group(self, other: DataStream[U]) -> CoGroupedStreams[T, U]:
        """Groups the records of both streams by key and window:
        `a.co_group(b).where(key).equal_to(key).window(assigner).apply(function)`."""
        self._check_same_program("co_group", other)
        return CoGroupedStreams(self, other)

    @overload
    def key_by(self, key: Callable[[T], K], key_type: object = None) -> KeyedStream[T, K]: ...
    @overload
    def key_by(self, key: str | int, key_type: object = None) -> KeyedStream[T, Any]: ...
    def key_by(self, key: Callable[[T], Any] | str | int, key_type: object = None) -> KeyedStream[T, Any]:
        """Sends records with equal keys to the same subtask.

        The key is a function of the record, the name of a field, or a position in a tuple. Its type is str, int, float,
        bool, bytes, None, or a tuple of them (`graph.key_groups`).
        """
        return self._keyed(key_of(self.record_type, key, key_type, "key_by"), "key_by")

    def window_all(self, assigner: WindowAssigner) -> AllWindowedStream[T]:
        """Groups all records by windows, in one subtask."""
        check_assigner("window_all", assigner)
        return AllWindowedStream._from_assigner(self._keyed(NO_KEY, "window_all"), assigner)

    def count_window_all(self, size: int, slide: int | None = None) -> AllWindowedStream[T]:
        """Groups each `size` records, in one subtask. `slide`: after each `slide` records, the last `size` ones."""
        trigger, evictor = count_functions("count_window_all", size, slide)
        keyed = self._keyed(NO_KEY, "count_window_all")
        return AllWindowedStream._from_assigner(keyed, GlobalWindows(), trigger, evictor)

    def _keyed(self, key: Key, step: str) -> KeyedStream[T, Any]:
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
            raise refusal(step, f"expected a stream, not {other!r}")
        if other._program is not self._program:
            raise refusal(step, "the streams belong to two environments")


class SingleOutputStreamOperator(OperatorSettings, DataStream[T]):
    """The output stream of an operator (Flink's name)."""

    def returns(self, output_type: object) -> Self:
        """Declares the type of the stream's records: a Python type or one of `Types`."""
        return self._set(output_type=RecordType.of(output_type))

    def get_side_output(self, tag: OutputTag[X]) -> DataStream[X]:
        """Returns the records that the operator's function has emitted under the tag, or that came too late for a
        window."""
        check_tag("get_side_output", tag)
        operator = self._operator
        with_context = (
            Process,
            KeyedProcess,
            CoProcess,
            KeyedCoProcess,
            EventTimeJoin,
            BroadcastProcess,
            Window,
        )
        if not isinstance(operator, with_context):
            raise refusal("get_side_output", f"{operator.name} has no side outputs: use process")
        known = operator.side_outputs.get(tag.name)
        of = known if known is not None and tag.output_type is None else tag.record_type
        if known is not None and known != of:
            raise refusal(
                "get_side_output",
                f"the side output {tag.name!r} of {operator.name} has records of type {known}, not {of}",
            )
        self._set(side_outputs={**operator.side_outputs, tag.name: of})
        made = self._program.add(
            SideOutput,
            step="get_side_output",
            location=caller_location(),
            inputs=(self._id,),
            tag=tag.name,
            record_type=of,
        )
        return DataStream(self._program, made.id)


class KeyedStream(DataStream[T], Generic[T, K]):
    """A stream partitioned by key. The streams that its steps return are not keyed."""

    def __init__(self, program: Program, transformation_id: int, key: Key) -> None:
        super().__init__(program, transformation_id)
        self._key = key

    def map(
        self, function: Callable[[T], R] | MapFunction[T, R], output_type: Declared[R] = None
    ) -> SingleOutputStreamOperator[R]:
        """Emits one record for each record; a rich function may use keyed state."""
        if not is_rich(function):
            return super().map(function, output_type)
        of = self._checked("map", function, signatures.MAP, output_type)
        return self._with_state("map", "Map", KeyedMap(function), of)

    def flat_map(
        self,
        function: Callable[[T], Iterable[R] | None] | FlatMapFunction[T, R],
        output_type: Declared[R] = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits any number of records for each record; a rich function may use keyed state."""
        if not is_rich(function):
            return super().flat_map(function, output_type)
        of = self._checked("flat_map", function, signatures.FLAT_MAP, output_type)
        return self._with_state("flat_map", "Flat Map", KeyedFlatMap(function), of)

    def filter(self, function: Callable[[T], object] | FilterFunction[T]) -> SingleOutputStreamOperator[T]:
        """Emits some of the records; a rich function may use keyed state."""
        if not is_rich(function):
            return super().filter(function)
        of = self._checked("filter", function, signatures.FILTER, self.record_type)
        return self._with_state("filter", "Filter", KeyedFilter(function), of)

    def _await(self, step: str, *_: Any, **__: Any) -> NoReturn:
        # Results of one key could overtake each other when the parallelism changes.
        raise refusal(step, "it keeps no order within a key: call it before key_by")

    def process(
        self,
        function: KeyedProcessFunction[K, T, R] | ProcessFunction[T, R],
        output_type: Declared[R] = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits any number of records for each record, also on side outputs, with state and timers of each key."""
        if isinstance(function, ProcessFunction):
            return super().process(function, output_type)
        of = self._checked("process", function, signatures.KEYED_PROCESS, output_type)
        return self._with_state("process", "Keyed Process", function, of)

    def reduce(self, function: Callable[[T, T], T] | ReduceFunction[T]) -> SingleOutputStreamOperator[T]:
        """Emits, for each record, the reduction of all records of its key so far: the function combines two records
        into one."""
        of = self._checked("reduce", function, signatures.REDUCE, self.record_type)
        return self._then(Reduce, "reduce", "Keyed Reduce", of, key=self._key, function=function)

    def sum(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """Emits, for each record, the first record of its key with the sum of a field so far; None: records are
        numbers."""
        return self._running("sum", field)

    def min(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """Emits, for each record, the first record of its key with the least value of a field so far."""
        return self._running("min", field)

    def max(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """Emits, for each record, the first record of its key with the greatest value of a field so far."""
        return self._running("max", field)

    def min_by(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """Emits, for each record, the first record of its key so far that has the least value of a field."""
        return self._running("min_by", field)

    def max_by(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """Emits, for each record, the first record of its key so far that has the greatest value of a field."""
        return self._running("max_by", field)

    def window(self, assigner: WindowAssigner) -> WindowedStream[T, K]:
        """Groups the records of each key by windows."""
        check_assigner("window", assigner)
        return WindowedStream._from_assigner(self, assigner)

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream[T, K]:
        """Groups each `size` records of a key. `slide`: after each `slide` records, the last `size` ones."""
        trigger, evictor = count_functions("count_window", size, slide)
        return WindowedStream._from_assigner(self, GlobalWindows(), trigger, evictor)

    def interval_join(self, other: KeyedStream[U, K]) -> IntervalJoinStreams[T, U]:
        """Joins the records of both streams that have one key and near timestamps:
        `a.interval_join(b).between(lower, upper).process(function)`."""
        self._check_keyed("interval_join", other)
        return IntervalJoinStreams(self, other)

    @overload
    def temporal_join(
        self, versions: KeyedStream[U, K], how: Literal["inner"] = ...
    ) -> TemporalJoined[T, U]: ...
    @overload
    def temporal_join(
        self, versions: KeyedStream[U, K], how: Literal["left"]
    ) -> TemporalJoined[T, U | None]: ...
    def temporal_join(self, versions: KeyedStream[Any, K], how: str = "inner") -> TemporalJoined[T, Any]:
        """Joins each record with the record of the same key that was valid at its timestamp.

        Each record of `versions` is valid from its timestamp until the next one of its key (Flink's event-time temporal
        join). "left": where none is valid, the function gets None instead.
        """
        self._check_keyed("temporal_join", versions)
        if how not in ("inner", "left"):
            raise refusal("temporal_join", f"how is {how!r}, not 'inner' or 'left'")
        return TemporalJoined(self, versions, how == "left")

    def _check_keyed(self, step: str, other: object) -> None:
        self._check_same_program(step, other)
        if not isinstance(other, KeyedStream):
            raise refusal(step, "the other stream has no keys: call key_by on it")
        common_key_type(self._key, other._key, step)

    def _with_state(
        self, step: str, name: str, function: Any, output_type: RecordType
    ) -> SingleOutputStreamOperator[Any]:
        return self._then(KeyedProcess, step, name, output_type, key=self._key, function=function)

    def _running(self, function: RunningFunction, field: str | int | None) -> SingleOutputStreamOperator[T]:
        column = aggregated_column(self.record_type, function, field)
        return self._then(
            Aggregate,
            function,
            "Keyed Aggregation",
            self.record_type,
            key=self._key,
            aggregation=function,
            field=column,
        )


class ConnectedStreams(OnlyInPrograms, Generic[A, B]):
    """Two streams. If both are keyed, functions may use keyed state, which both inputs share."""

    def __init__(self, first: DataStream[A], second: DataStream[B]) -> None:
        self._first = first
        self._second = second

    def key_by(
        self, key1: Callable[[A], Any] | str | int, key2: Callable[[B], Any] | str | int
    ) -> ConnectedStreams[A, B]:
        """Sends records of both streams with equal keys to the same subtask."""
        return ConnectedStreams(self._first.key_by(key1), self._second.key_by(key2))

    @overload
    def map(
        self, function: CoMapFunction[A, B, R], /, *, output_type: Declared[R] = ...
    ) -> SingleOutputStreamOperator[R]: ...
    @overload
    def map(
        self, function: Callable[[A], R], second: Callable[[B], R], /, *, output_type: Declared[R] = ...
    ) -> SingleOutputStreamOperator[R]: ...
    def map(
        self, function: Any, second: Any = None, /, *, output_type: object = None
    ) -> SingleOutputStreamOperator[Any]:
        """Emits one record for each record, by a CoMapFunction or by one function per stream."""
        if second is not None:
            of = self._checked_two("map", function, second, signatures.MAP, output_type)
            function = TwoMaps(function, second)
        else:
            of = self._checked("map", function, signatures.CO_MAP, output_type)
        if self._keys is not None and may_have_state(function):
            return self._with_state("map", "Co-Map", KeyedCoMap(function), of)
        return self._then(CoMap, "map", "Co-Map", of, function=function)

    @overload
    def flat_map(
        self, function: CoFlatMapFunction[A, B, R], /, *, output_type: Declared[R] = ...
    ) -> SingleOutputStreamOperator[R]: ...
    @overload
    def flat_map(
        self,
        function: Callable[[A], Iterable[R] | None],
        second: Callable[[B], Iterable[R] | None],
        /,
        *,
        output_type: Declared[R] = ...,
    ) -> SingleOutputStreamOperator[R]: ...
    def flat_map(
        self, function: Any, second: Any = None, /, *, output_type: object = None
    ) -> SingleOutputStreamOperator[Any]:
        """Emits any number of records for each record, by a CoFlatMapFunction or by one function per stream."""
        if second is not None:
            of = self._checked_two("flat_map", function, second, signatures.FLAT_MAP, output_type)
            function = TwoFlatMaps(function, second)
        else:
            of = self._checked("flat_map", function, signatures.CO_FLAT_MAP, output_type)
        if self._keys is not None and may_have_state(function):
            return self._with_state("flat_map", "Co-Flat Map", KeyedCoFlatMap(function), of)
        return self._then(CoFlatMap, "flat_map", "Co-Flat Map", of, function=function)

    def process(
        self,
        function: CoProcessFunction[A, B, R] | KeyedCoProcessFunction[Any, A, B, R],
        output_type: Declared[R] = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits any number of records for each record, also on side outputs; with state and timers if both streams
        are keyed."""
        if isinstance(function, (BroadcastProcessFunction, KeyedBroadcastProcessFunction)):
            raise refusal(
                "process",
                f"{signatures.function_name(function)} needs a broadcast stream with state as the second input:"
                " write first.connect(second.broadcast(MapStateDescriptor(...)))",
            )
        if isinstance(function, CoProcessFunction):
            of = self._checked("process", function, signatures.CO_PROCESS, output_type)
            return self._then(CoProcess, "process", "Co-Process", of, function=function)
        of = self._checked("process", function, signatures.KEYED_CO_PROCESS, output_type)
        return self._with_state("process", "Keyed Co-Process", function, of)

    @property
    def _keys(self) -> tuple[Key, Key] | None:
        """Returns the keys of both streams if both are keyed."""
        first, second = self._first, self._second
        if isinstance(first, KeyedStream) and isinstance(second, KeyedStream):
            return first._key, second._key
        return None

    def _checked(self, step: str, function: object, signature: Signature, output_type: object) -> RecordType:
        check_function(function, signature, operator=step, location=caller_location())
        if len(signature.methods) > 1:
            self._warn_of_broadcast(step, function, signature)
        return result_type(function, signature) if output_type is None else RecordType.of(output_type)

    def _checked_two(
        self, step: str, first: object, second: object, signature: Signature, output_type: object
    ) -> RecordType:
        for function in (first, second):
            if isinstance(function, (CoMapFunction, CoFlatMapFunction)):
                raise refusal(
                    step, f"a {type(function).__name__} handles both streams: pass it as the only argument"
                )
        found = {self._checked(step, function, signature, output_type) for function in (first, second)}
        return found.pop() if len(found) == 1 else PICKLED

    def _with_state(
        self, step: str, name: str, function: Any, output_type: RecordType
    ) -> SingleOutputStreamOperator[Any]:
        if self._keys is None and self._is_broadcast(self._second):
            raise refusal(
                step,
                "its function needs keys for its state, and a broadcast stream has none: give broadcast() a"
                " MapStateDescriptor, and use a KeyedBroadcastProcessFunction",
            )
        if self._keys is None:
            raise refusal(step, "its function needs keys for its state: call key_by on both streams first")
        return self._then(
            KeyedCoProcess,
            step,
            name,
            output_type,
            function=function,
            selectors=tuple(key.selector for key in self._keys),
            key_type=common_key_type(*self._keys, step),
        )

    def _is_broadcast(self, stream: DataStream[Any]) -> bool:
        found = stream._program.transformations[stream._id]
        return isinstance(found, Partition) and found.partitioner is Partitioner.BROADCAST

    def _warn_of_broadcast(self, step: str, function: object, signature: Signature) -> None:
        """Warns if a function may store a broadcast stream in its attributes: a restart of its task loses them."""
        streams: tuple[DataStream[Any], DataStream[Any]] = self._first, self._second
        for stream, method in zip(streams, signature.methods, strict=True):
            if self._is_broadcast(stream) and uses_itself(getattr(function, method)):
                name = signatures.function_name(function)
                warnings.warn(
                    f"{step} at {caller_location()}: {name}.{method} gets a broadcast stream, and data of it"
                    f" in attributes of {name} is lost when its task restarts: store it in broadcast state (give"
                    " broadcast() a MapStateDescriptor)",
                    stacklevel=4,
                )

    def _then(
        self, kind: type[Physical], step: str, name: str, output_type: RecordType, **fields: Any
    ) -> SingleOutputStreamOperator[Any]:
        made = self._first._program.add(
            kind,
            step=step,
            location=caller_location(),
            inputs=(self._first._id, self._second._id),
            name=name,
            output_type=output_type,
            **fields,
        )
        return SingleOutputStreamOperator(self._first._program, made.id)


class BroadcastStream(OnlyInPrograms, Generic[B]):
    """A stream for every subtask, with the states that the subtasks store of it. Only `connect` takes it, as the
    second input."""

    def __init__(self, stream: DataStream[B], states: tuple[Any, ...]) -> None:
        for state in states:
            if not isinstance(state, MapStateDescriptor) or not is_text(state.name):
                raise refusal("broadcast", f"expected MapStateDescriptors with names, not {state!r}")
            if state.ttl is not None:
                raise refusal(
                    "broadcast", f"its state {state.name!r} has a time to live: only keyed state can expire"
                )
        names = [state.name for state in states]
        for name in names:
            if names.count(name) > 1:
                raise refusal("broadcast", f"two of its states have the name {name!r}")
        self._stream = stream
        self._states: tuple[MapStateDescriptor[Any, Any], ...] = states

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not hasattr(DataStream, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise refusal(
            name,
            "a broadcast stream can only be the second input: write stream.connect(broadcast_stream).process(...)",
        )


class BroadcastConnectedStream(OnlyInPrograms, Generic[A, B]):
    """A stream, keyed or not, and a broadcast one."""

    def __init__(self, first: DataStream[A], second: BroadcastStream[B]) -> None:
        self._first = first
        self._second = second

    def process(
        self,
        function: BroadcastProcessFunction[A, B, R] | KeyedBroadcastProcessFunction[Any, A, B, R],
        output_type: Declared[R] = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits any number of records for each record, also on side outputs, with broadcast state; if keyed, with
        state and timers."""
        first = self._first
        if isinstance(first, KeyedStream):
            if isinstance(function, BroadcastProcessFunction):
                raise refusal(
                    "process",
                    f"the first stream is keyed: let {function_name(function)} be a KeyedBroadcastProcessFunction",
                )
            of = self._checked(function, signatures.KEYED_BROADCAST_PROCESS, output_type)
            return self._then(KeyedBroadcastProcess, "Keyed Broadcast Process", of, function, key=first._key)
        if isinstance(function, KeyedBroadcastProcessFunction):
            raise refusal(
                "process",
                "its function needs keys for its state: call key_by on the first stream before connect",
            )
        of = self._checked(function, signatures.BROADCAST_PROCESS, output_type)
        return self._then(BroadcastProcess, "Broadcast Process", of, function)

    def _checked(self, function: object, signature: signatures.Signature, output_type: object) -> RecordType:
        check_function(function, signature, operator="process", location=caller_location())
        return result_type(function, signature) if output_type is None else RecordType.of(output_type)

    def _then(
        self, kind: type[Physical], name: str, output_type: RecordType, function: object, **fields: Any
    ) -> SingleOutputStreamOperator[Any]:
        program = self._first._program
        made = program.add(
            kind,
            step="process",
            location=caller_location(),
            inputs=(self._first._id, self._second._stream._id),
            name=name,
            output_type=output_type,
            function=function,
            states=self._second._states,
            **fields,
        )
        return SingleOutputStreamOperator(program, made.id)


class Windowed(OnlyInPrograms, Generic[T]):
    """Records grouped by windows. Frozen: each setter returns a changed copy."""

    _PROCESS: Signature
    _IS_WINDOW_ALL: bool

    def __init__(self, keyed: KeyedStream[T, Any], settings: WindowSettings) -> None:
        self._keyed = keyed
        self._settings = settings

    @classmethod
    def _from_assigner(
        cls,
        keyed: KeyedStream[T, Any],
        assigner: WindowAssigner,
        trigger: Trigger[T] | None = None,
        evictor: Evictor[T] | None = None,
    ) -> Self:
        signature, of_all = cls._PROCESS, cls._IS_WINDOW_ALL
        settings = WindowSettings(
            keyed.record_type, keyed._key, assigner, signature, of_all, trigger, evictor
        )
        return cls(keyed, settings)

    def _changed(self, settings: WindowSettings) -> Self:
        return type(self)(self._keyed, settings)

    def trigger(self, trigger: Trigger[T]) -> Self:
        """Sets what decides when a window emits its results, in place of the assigner's trigger."""
        return self._changed(self._settings.with_trigger(trigger))

    def evictor(self, evictor: Evictor[T]) -> Self:
        """Sets what removes records from a window when it fires. The window's records are then stored, also for
        `reduce` and `aggregate`."""
        return self._changed(self._settings.with_evictor(evictor))

    def allowed_lateness(
        self, lateness: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0
    ) -> Self:
        """Keeps a window for this time after it has fired; the window fires again for each late record."""
        step = "allowed_lateness"
        self._settings.check_event_time(step)
        found = to_milliseconds("lateness", lateness, seconds, milliseconds, operator=step, at_least=0)
        return self._changed(dataclasses.replace(self._settings, lateness_ms=found))

    def side_output_late_data(self, tag: OutputTag[T]) -> Self:
        """Sends records that are too late for their windows to a side output of the next step; by default they are
        dropped."""
        return self._changed(self._settings.with_late_output(tag))

    def sum(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """Emits the window's first record with the sum of a field; None: records are numbers."""
        return self._fired(self._settings.built_in("sum", field))

    def min(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """Emits the window's first record with the least value of a field."""
        return self._fired(self._settings.built_in("min", field))

    def max(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """Emits the window's first record with the greatest value of a field."""
        return self._fired(self._settings.built_in("max", field))

    def min_by(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """Emits the window's first record that has the least value of a field."""
        return self._fired(self._settings.built_in("min_by", field))

    def max_by(self, field: str | int | None = None) -> SingleOutputStreamOperator[T]:
        """Emits the window's first record that has the greatest value of a field."""
        return self._fired(self._settings.built_in("max_by", field))

    def _fired(self, step: WindowStep) -> SingleOutputStreamOperator[Any]:
        function = step.window_function
        if function is not None and not isinstance(function, WindowRow):
            function = self._adapted(function)
        return self._keyed._then(
            Window,
            step.name,
            self._settings.operator_name(),
            step.output_type,
            window_function=function,
            **self._settings.fields(step),
        )

    def _adapted(self, window_function: Any) -> ProcessWindowFunction[Any, Any, Any]:
        raise NotImplementedError


class WindowedStream(Windowed[T], Generic[T, K]):
    """The records of each key, grouped by windows. The timestamp of a result is the window's last millisecond.

    Window functions get the key, a context with the window, and its records; after `reduce` and `aggregate` they get
    the one result.
    """

    _PROCESS = signatures.PROCESS_WINDOW
    _IS_WINDOW_ALL = False

    @overload
    def reduce(self, function: Callable[[T, T], T] | ReduceFunction[T]) -> SingleOutputStreamOperator[T]: ...
    @overload
    def reduce(
        self,
        function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: ProcessWindowFunction[T, R, K]
        | Callable[[K, WindowContext, Iterable[T]], Iterable[R]],
        output_type: Declared[R] = ...,
    ) -> SingleOutputStreamOperator[R]: ...
    def reduce(
        self, function: Any, window_function: Any = None, output_type: object = None
    ) -> SingleOutputStreamOperator[Any]:
        """Combines the window's records into one by the function, in any order."""
        return self._fired(self._settings.reduce(function, window_function, output_type))

    @overload
    def aggregate(
        self,
        function: AggregateFunction[T, A, R],
        *,
        accumulator_type: object = ...,
        output_type: Declared[R] = ...,
    ) -> SingleOutputStreamOperator[R]: ...
    @overload
    def aggregate(
        self,
        function: AggregateFunction[T, A, R],
        window_function: ProcessWindowFunction[R, S, K]
        | Callable[[K, WindowContext, Iterable[R]], Iterable[S]],
        accumulator_type: object = ...,
        output_type: Declared[S] = ...,
    ) -> SingleOutputStreamOperator[S]: ...
    @overload
    def aggregate(
        self, *, output_type: type[R], **aggregates: WindowAggregate
    ) -> SingleOutputStreamOperator[R]: ...
    @overload
    def aggregate(self, **aggregates: WindowAggregate) -> SingleOutputStreamOperator[Any]: ...
    def aggregate(
        self,
        function: Any = None,
        window_function: Any = None,
        accumulator_type: object = None,
        output_type: object = None,
        **aggregates: Any,
    ) -> SingleOutputStreamOperator[Any]:
        """Aggregates the window's records in an accumulator.

        Or several aggregates by name, such as `count=Count(), total=Sum("amount")`: the result is a NamedTuple of the
        key, window_start and window_end, and the aggregates; `output_type` is a class of yours with these fields.
        """
        settings = self._settings
        step = settings.aggregate(function, window_function, accumulator_type, output_type, aggregates)
        return self._fired(step)

    def process(
        self,
        function: ProcessWindowFunction[T, R, K] | Callable[[K, WindowContext, Iterable[T]], Iterable[R]],
        output_type: Declared[R] = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits any number of records from all records of the window, which are stored until it fires."""
        return self._fired(self._settings.process(function, output_type))

    def _adapted(self, window_function: Any) -> ProcessWindowFunction[Any, Any, Any]:
        if isinstance(window_function, ProcessWindowFunction):
            return window_function
        return WindowCall(window_function)


class AllWindowedStream(Windowed[T]):
    """All records, grouped by windows, in one subtask. Like WindowedStream, but window functions get no key."""

    _PROCESS = signatures.PROCESS_ALL_WINDOW
    _IS_WINDOW_ALL = True

    @overload
    def reduce(self, function: Callable[[T, T], T] | ReduceFunction[T]) -> SingleOutputStreamOperator[T]: ...
    @overload
    def reduce(
        self,
        function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: ProcessAllWindowFunction[T, R] | Callable[[WindowContext, Iterable[T]], Iterable[R]],
        output_type: Declared[R] = ...,
    ) -> SingleOutputStreamOperator[R]: ...
    def reduce(
        self, function: Any, window_function: Any = None, output_type: object = None
    ) -> SingleOutputStreamOperator[Any]:
        """Combines the window's records into one by the function, in any order."""
        return self._fired(self._settings.reduce(function, window_function, output_type))

    @overload
    def aggregate(
        self,
        function: AggregateFunction[T, A, R],
        *,
        accumulator_type: object = ...,
        output_type: Declared[R] = ...,
    ) -> SingleOutputStreamOperator[R]: ...
    @overload
    def aggregate(
        self,
        function: AggregateFunction[T, A, R],
        window_function: ProcessAllWindowFunction[R, S] | Callable[[WindowContext, Iterable[R]], Iterable[S]],
        accumulator_type: object = ...,
        output_type: Declared[S] = ...,
    ) -> SingleOutputStreamOperator[S]: ...
    @overload
    def aggregate(
        self, *, output_type: type[R], **aggregates: WindowAggregate
    ) -> SingleOutputStreamOperator[R]: ...
    @overload
    def aggregate(self, **aggregates: WindowAggregate) -> SingleOutputStreamOperator[Any]: ...
    def aggregate(
        self,
        function: Any = None,
        window_function: Any = None,
        accumulator_type: object = None,
        output_type: object = None,
        **aggregates: Any,
    ) -> SingleOutputStreamOperator[Any]:
        """Aggregates the window's records in an accumulator.

        Or several aggregates by name, such as `count=Count(), total=Sum("amount")`: the result is a NamedTuple of the
        key, window_start and window_end, and the aggregates; `output_type` is a class of yours with these fields.
        """
        settings = self._settings
        step = settings.aggregate(function, window_function, accumulator_type, output_type, aggregates)
        return self._fired(step)

    def process(
        self,
        function: ProcessAllWindowFunction[T, R] | Callable[[WindowContext, Iterable[T]], Iterable[R]],
        output_type: Declared[R] = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits any number of records from all records of the window, which are stored until it fires."""
        return self._fired(self._settings.process(function, output_type))

    def _adapted(self, window_function: Any) -> ProcessWindowFunction[Any, Any, Any]:
        return AllWindow(window_function)


@dataclass(frozen=True)
class _KeyedPair(OnlyInPrograms, Generic[A, B]):
    """Two streams with keys of one type."""

    _left: KeyedStream[A, Any]
    _right: KeyedStream[B, Any]

    @property
    def _types(self) -> tuple[RecordType, RecordType]:
        return self._left.record_type, self._right.record_type

    def _joined(
        self,
        step: str,
        name: str,
        function: Any,
        output_type: RecordType,
        late: Mapping[str, RecordType],
        kind: type[EventTimeJoin],
        **fields: Any,
    ) -> SingleOutputStreamOperator[Any]:
        keys = self._left._key, self._right._key
        return self._left.connect(self._right)._then(
            kind,
            step,
            name,
            output_type,
            side_outputs=late,
            function=function,
            selectors=tuple(key.selector for key in keys),
            key_type=common_key_type(*keys, step),
            **fields,
        )


class IntervalJoinStreams(_KeyedPair[A, B]):
    """Two keyed streams whose records are joined if their timestamps are near each other."""

    def between(
        self,
        lower: timedelta | None = None,
        upper: timedelta | None = None,
        *,
        lower_seconds: float = 0,
        upper_seconds: float = 0,
        lower_milliseconds: int = 0,
        upper_milliseconds: int = 0,
    ) -> IntervalJoined[A, B]:
        """Joins records with `left + lower <= right <= left + upper`, by their timestamps. A bound may be
        negative."""
        bounds = (
            _bound("lower bound", lower, lower_seconds, lower_milliseconds),
            _bound("upper bound", upper, upper_seconds, upper_milliseconds),
        )
        _check_bounds(*bounds, "between")
        return IntervalJoined(self._left, self._right, *bounds)


@dataclass(frozen=True)
class IntervalJoined(_KeyedPair[A, B]):
    """An interval join. Frozen: each setter returns a changed copy."""

    _lower_ms: int
    _upper_ms: int
    _left_late: OutputTag[A] | None = None
    _right_late: OutputTag[B] | None = None

    def lower_bound_exclusive(self) -> Self:
        """Excludes the lower bound."""
        _check_bounds(self._lower_ms + 1, self._upper_ms, "lower_bound_exclusive")
        return dataclasses.replace(self, _lower_ms=self._lower_ms + 1)

    def upper_bound_exclusive(self) -> Self:
        """Excludes the upper bound."""
        _check_bounds(self._lower_ms, self._upper_ms - 1, "upper_bound_exclusive")
        return dataclasses.replace(self, _upper_ms=self._upper_ms - 1)

    def side_output_left_late_data(self, tag: OutputTag[A]) -> Self:
        """Sends left records that are late to a side output; by default they are dropped."""
        _check_late_tag("side_output_left_late_data", tag, self._types[0])
        return dataclasses.replace(self, _left_late=tag)

    def side_output_right_late_data(self, tag: OutputTag[B]) -> Self:
        """Sends right records that are late to a side output; by default they are dropped."""
        _check_late_tag("side_output_right_late_data", tag, self._types[1])
        return dataclasses.replace(self, _right_late=tag)

    def process(
        self,
        function: ProcessJoinFunction[A, B, R] | Callable[[A, B, ProcessJoinContext], Iterable[R] | None],
        output_type: Declared[R] = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits any number of records for each pair, as soon as the later one has arrived. The timestamp of a result
        is the later one of both."""
        of = _result("process", function, signatures.PROCESS_JOIN, output_type)
        left, right = self._left_late, self._right_late
        return self._joined(
            "process",
            "Interval Join",
            function,
            of,
            self._late_types(),
            IntervalJoin,
            lower_ms=self._lower_ms,
            upper_ms=self._upper_ms,
            left_late_tag=None if left is None else left.name,
            right_late_tag=None if right is None else right.name,
        )

    def _late_types(self) -> Mapping[str, RecordType]:
        left, right = self._left_late, self._right_late
        if left is not None and right is not None and left.name == right.name:
            raise refusal(
                "process", f"the late records of both streams have one tag, {left.name!r}: give them two"
            )
        pairs = zip((left, right), self._types, strict=True)
        return {tag.name: of for tag, of in pairs if tag is not None}


@dataclass(frozen=True)
class TemporalJoined(_KeyedPair[A, B]):
    """A temporal join. Frozen: each setter returns a changed copy."""

    _is_outer: bool
    _late: OutputTag[Any] | None = None

    def side_output_late_data(self, tag: OutputTag[A]) -> Self:
        """Sends left records that are late to a side output; by default they are dropped."""
        _check_late_tag("side_output_late_data", tag, self._types[0])
        return dataclasses.replace(self, _late=tag)

    def apply(
        self, function: Callable[[A, B], R] | JoinFunction[A, B, R], output_type: Declared[R] = None
    ) -> SingleOutputStreamOperator[R]:
        """Emits one record for each left record, when the watermark has reached its timestamp, which is that of the
        result."""
        of = _result("apply", function, signatures.JOIN, output_type)
        late = {} if self._late is None else {self._late.name: self._types[0]}
        return self._joined(
            "apply",
            "Temporal Join",
            function,
            of,
            late,
            TemporalJoin,
            is_outer=self._is_outer,
            late_tag=None if self._late is None else self._late.name,
        )


def _bound(what: str, bound: timedelta | None, seconds: float, milliseconds: int) -> int:
    return to_milliseconds(what, bound, seconds, milliseconds, operator="between", at_least=_LEAST_MS)


def _check_bounds(lower_ms: int, upper_ms: int, step: str) -> None:
    if lower_ms > upper_ms:
        raise refusal(
            step, f"no time is in the interval: it begins at {lower_ms} ms and ends at {upper_ms} ms"
        )


def _check_late_tag(step: str, tag: OutputTag[Any], of: RecordType) -> None:
    check_tag(step, tag)
    if tag.output_type is not None and tag.record_type != of:
        raise refusal(
            step, f"the tag {tag.name!r} is of type {tag.record_type}, but the stream's records are {of}"
        )


def _result(step: str, function: object, signature: Signature, output_type: object) -> RecordType:
    check_function(function, signature, operator=step, location=caller_location())
    return result_type(function, signature) if output_type is None else RecordType.of(output_type)


class MakeWindowed(Protocol[W_co]):
    """Makes the last object of the chain, a WindowedJoin or a WindowedCoGroup."""

    def __call__(
        self,
        windowed: WindowedStream[TaggedUnion[Any, Any], Any],
        types: tuple[RecordType, RecordType],
    ) -> W_co: ...


class JoinedStreams(OnlyInPrograms, Generic[A, B]):
    """Two streams whose records are joined within windows."""

    def __init__(self, first: DataStream[A], second: DataStream[B]) -> None:
        self._first = first
        self._second = second

    @overload
    def where(self, key: Callable[[A], K], key_type: object = ...) -> JoinWhere[B, K, WindowedJoin[A, B]]: ...
    @overload
    def where(self, key: str | int, key_type: object = ...) -> JoinWhere[B, Any, WindowedJoin[A, B]]: ...
    def where(
        self, key: Callable[[A], Any] | str | int, key_type: object = None
    ) -> JoinWhere[B, Any, WindowedJoin[A, B]]:
        """Sets the key of the first stream, as for `key_by`."""
        own = key_of(self._first.record_type, key, key_type, "where")
        return JoinWhere(self._first, self._second, own, WindowedJoin)


class CoGroupedStreams(OnlyInPrograms, Generic[A, B]):
    """Two streams whose records are grouped within windows."""

    def __init__(self, first: DataStream[A], second: DataStream[B]) -> None:
        self._first = first
        self._second = second

    @overload
    def where(
        self, key: Callable[[A], K], key_type: object = ...
    ) -> JoinWhere[B, K, WindowedCoGroup[A, B]]: ...
    @overload
    def where(self, key: str | int, key_type: object = ...) -> JoinWhere[B, Any, WindowedCoGroup[A, B]]: ...
    def where(
        self, key: Callable[[A], Any] | str | int, key_type: object = None
    ) -> JoinWhere[B, Any, WindowedCoGroup[A, B]]:
        """Sets the key of the first stream, as for `key_by`."""
        own = key_of(self._first.record_type, key, key_type, "where")
        return JoinWhere(self._first, self._second, own, WindowedCoGroup)


class JoinWhere(OnlyInPrograms, Generic[B, K, W]):
    """Two streams, of which the first has a key."""

    def __init__(
        self, first: DataStream[Any], second: DataStream[B], key: Key, make: MakeWindowed[W]
    ) -> None:
        self._first = first
        self._second = second
        self._key = key
        self._make = make

    def equal_to(self, key: Callable[[B], K] | str | int, key_type: object = None) -> JoinEqualTo[W]:
        """Sets the key of the second stream, of the same type."""
        other = key_of(self._second.record_type, key, key_type, "equal_to")
        common = common_key_type(self._key, other, "equal_to")
        selector = TaggedKey(self._key.selector, other.selector)
        return JoinEqualTo(self._first, self._second, Key(selector, common), self._make)


class JoinEqualTo(OnlyInPrograms, Generic[W]):
    """Two streams with keys."""

    def __init__(
        self, first: DataStream[Any], second: DataStream[Any], key: Key, make: MakeWindowed[W]
    ) -> None:
        self._first = first
        self._second = second
        self._key = key
        self._make = make

    def window(self, assigner: WindowAssigner) -> W:
        """Groups the records of both streams by key and window."""
        types = self._first.record_type, self._second.record_type
        tagged = tagged_type(*types)
        one = _tagged(self._first, as_one, tagged, "Tag First")
        two = _tagged(self._second, as_two, tagged, "Tag Second")
        keyed = one.union(two).key_by(self._key.selector, self._key.record_type)
        return self._make(keyed.window(assigner), types)


class _WindowedPair(OnlyInPrograms, Generic[A, B]):
    """The common part. Frozen: each setter returns a changed copy."""

    def __init__(
        self,
        windowed: WindowedStream[TaggedUnion[A, B], Any],
        types: tuple[RecordType, RecordType],
    ) -> None:
        self._windowed = windowed
        self._types = types

    def trigger(self, trigger: Trigger[TaggedUnion[A, B]]) -> Self:
        """Sets what decides when a window emits its results. It gets the tagged records of both streams."""
        return type(self)(self._windowed.trigger(trigger), self._types)

    def evictor(self, evictor: Evictor[TaggedUnion[A, B]]) -> Self:
        """Sets what removes tagged records from a window when it fires."""
        return type(self)(self._windowed.evictor(evictor), self._types)

    def allowed_lateness(
        self, lateness: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0
    ) -> Self:
        """Keeps a window for this time after it has fired; the window fires again for each late record."""
        changed = self._windowed.allowed_lateness(lateness, seconds=seconds, milliseconds=milliseconds)
        return type(self)(changed, self._types)

    def side_output_late_data(self, tag: OutputTag[TaggedUnion[A, B]]) -> Self:
        """Sends records that are too late for their windows to a side output of the join; by default they are
        dropped."""
        return type(self)(self._windowed.side_output_late_data(tag), self._types)

    def _applied(
        self, name: str, function: ProcessWindowFunction[Any, Any, Any], of: RecordType
    ) -> SingleOutputStreamOperator[Any]:
        settings = self._windowed._settings
        fired = self._windowed._fired(
            WindowStep("apply", of, settings.record_type, "none", window_function=function)
        )
        return fired.name(settings.operator_name(name))


class WindowedJoin(_WindowedPair[A, B]):
    """The pairs of records of two streams that have one key in one window."""

    def apply(
        self, function: Callable[[A, B], R] | JoinFunction[A, B, R], output_type: Declared[R] = None
    ) -> SingleOutputStreamOperator[R]:
        """Emits one record for each pair. The timestamp of a result is the window's last millisecond."""
        of = _result("apply", function, signatures.JOIN, output_type)
        return self._applied("Window Join", JoinedWindow(function, *self._types), of)


class WindowedCoGroup(_WindowedPair[A, B]):
    """The records of two streams, grouped by key and window."""

    def apply(
        self,
        function: Callable[[Iterable[A], Iterable[B]], Iterable[R]] | CoGroupFunction[A, B, R],
        output_type: Declared[R] = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits any number of records for each key and window with a record of either stream: also an outer join.
        The timestamp of a result is the window's last millisecond."""
        of = _result("apply", function, signatures.CO_GROUP, output_type)
        return self._applied("Co-Group", CoGroupedWindow(function), of)


def _tagged(
    stream: DataStream[Any], tag: Callable[[Any], TaggedUnion[Any, Any]], of: RecordType, name: str
) -> DataStream[TaggedUnion[Any, Any]]:
    tagged = stream.map(tag, of).name(name)
    before = stream._program.transformations[stream._id]
    if isinstance(before, Physical) and before.parallelism is not None:
        tagged.set_parallelism(before.parallelism)  # so that both are chained
    return tagged
