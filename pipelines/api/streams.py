"""Streams: what a program is written with. Each step adds a transformation to the environment.

**Types.** What a function returns is laid out by its type hints (see `pipelines.types`), or by
`output_type=` / `returns()`; lambdas have no hints, so what they return is pickled unless it is declared.

**Functions** are any callables. An object with `__call__` may also have `open()` and `close()`, called
once in each subtask before the first record and after the last.

Whatever is wrong with a step is a ProgramError that names it and the line of the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, overload

from ...schemas.types import Partitioner, ResourceProfile
from ..graph.errors import ProgramError
from ..graph.stream_graph import ChainingStrategy
from ..types import PICKLED, RecordType
from .transformations import Filter, FlatMap, Map, Partition, Physical, Print, WindowReduce
from .user_code import caller_location, check_function, element_type, return_type
from .windows import TumblingProcessingTimeWindows

if TYPE_CHECKING:
    from .environment import StreamExecutionEnvironment

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")


class _Operator:
    """What can be set on the operator that a step made; each returns the same stream."""

    def __init__(self, environment: StreamExecutionEnvironment, transformation_id: int) -> None:
        self._environment = environment
        self._id = transformation_id

    def name(self, name: str) -> Self:
        """The name shown to people."""
        return self._set(name=name)

    def uid(self, uid: str) -> Self:
        """Fixes the operator's id, so that its state finds it in a changed program. Unique in the job."""
        if not uid:
            raise self._refusal("uid", "a uid cannot be empty")
        return self._set(uid=uid)

    def set_parallelism(self, parallelism: int) -> Self:
        """How many subtasks the operator has; the environment's default where it is not set."""
        check_count("parallelism", parallelism, operator="set_parallelism")
        if parallelism > 1 and not self._transformation.traits.parallel:
            raise self._refusal(
                "set_parallelism", f"{self._transformation.name} cannot have more than 1 subtask"
            )
        return self._set(parallelism=parallelism)

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """How many key groups the operator's state has: the limit of its parallelism, for ever."""
        check_count("maximum parallelism", max_parallelism, operator="set_max_parallelism")
        return self._set(max_parallelism=max_parallelism)

    def slot_sharing_group(self, group: str | None) -> Self:
        """Subtasks of operators in one group share slots; None: each subtask gets a slot of its own.

        Where it is not called, the group is that of all inputs, or "default".
        """
        if group == "" or "/" in (group or ""):
            raise self._refusal("slot_sharing_group", "a slot sharing group needs a name, without '/'")
        return self._set(slot_sharing_group=group or "")

    def co_location_group(self, group: str) -> Self:
        """Subtasks of the same index of the operators in one group run in the same slot, whatever happens.

        They must be in one slot sharing group and have the same parallelism (Flink's CoLocationGroup).
        """
        if not group:
            raise self._refusal("co_location_group", "a co-location group needs a name")
        return self._set(co_location_group=group)

    def set_resources(
        self,
        *,
        cpu_cores: float = 0.0,
        heap_memory_mb: int = 0,
        direct_memory_mb: int = 0,
        network_memory_mb: int = 0,
        managed_memory_mb: int = 0,
        **extended: float,
    ) -> Self:
        """What a slot must offer at least for a subtask of this operator, such as cpu_cores=0.5 or gpu=1."""
        profile = ResourceProfile(
            cpu_cores=cpu_cores,
            heap_memory_mb=heap_memory_mb,
            direct_memory_mb=direct_memory_mb,
            native_memory_mb=0,
            network_memory_mb=network_memory_mb,
            managed_memory_mb=managed_memory_mb,
            extended_resources=extended,
        )
        return self._set(resources=profile)

    def disable_chaining(self) -> Self:
        """The operator is a task by itself."""
        return self._set(chaining=ChainingStrategy.NEVER)

    def start_new_chain(self) -> Self:
        """The operator is not chained with what is before it."""
        return self._set(chaining=ChainingStrategy.HEAD)

    @property
    def _transformation(self) -> Physical:
        found = self._environment.transformation(self._id)
        assert isinstance(found, Physical)
        return found

    def _set(self, **changes: Any) -> Self:
        self._environment.change(self._id, **changes)
        return self

    def _refusal(self, step: str, reason: str) -> ProgramError:
        return ProgramError(reason, operator=step, location=caller_location())

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} exists only in the program that describes the job, not in its tasks"
        )


class DataStream(_Operator, Generic[T]):
    """A stream of records."""

    def map(self, function: Callable[[T], R], output_type: object = None) -> DataStream[R]:
        """One record for each: what the function returns."""
        location = self._checked("map", function, 1)
        of = RecordType.of(output_type) if output_type is not None else return_type(function)
        step = Map(**self._after(location), name="Map", output_type=of, function=function)
        return DataStream(self._environment, self._environment.add(step))

    def flat_map(self, function: Callable[[T], Iterable[R]], output_type: object = None) -> DataStream[R]:
        """Any number of records for each: what the function returns or yields. `output_type` is that of one."""
        location = self._checked("flat_map", function, 1)
        of = RecordType.of(output_type) if output_type is not None else element_type(function)
        step = FlatMap(**self._after(location), name="Flat Map", output_type=of, function=function)
        return DataStream(self._environment, self._environment.add(step))

    def filter(self, function: Callable[[T], object]) -> DataStream[T]:
        """Those records for which the function returns something true."""
        location = self._checked("filter", function, 1)
        step = Filter(**self._after(location), name="Filter", output_type=self.record_type, function=function)
        return DataStream(self._environment, self._environment.add(step))

    @overload
    def key_by(self, key: Callable[[T], K], key_type: object = None) -> KeyedStream[T, K]: ...
    @overload
    def key_by(self, key: str | int) -> KeyedStream[T, Any]: ...
    def key_by(self, key: Callable[[T], Any] | str | int, key_type: object = None) -> KeyedStream[T, Any]:
        """Records with equal keys go to the same subtask.

        The key is what a function makes of a record, or the name of a field, or a position in a tuple. It is made of
        str, int, float, bool, bytes, None and tuples of them (`graph.key_groups`).
        """
        if isinstance(key, (str, int)):
            return KeyedStream(self, *self._field(key), caller_location())
        location = self._checked("key_by", key, 1)
        return KeyedStream(
            self, key, RecordType.of(key_type) if key_type is not None else return_type(key), location
        )

    def print(self, identifier: str | None = None) -> DataStreamSink:
        """Each record as text to the job's output, after the identifier if there is one."""
        step = Print(
            **self._after(caller_location()), name="Sink: Print", output_type=None, identifier=identifier
        )
        return DataStreamSink(self._environment, self._environment.add(step))

    def returns(self, output_type: object) -> DataStream[T]:
        """Declares the type of the stream's records: a Python type or one of `Types`."""
        return self._set(output_type=RecordType.of(output_type))

    @property
    def record_type(self) -> RecordType:
        """The type of the stream's records."""
        return self._transformation.output_type or PICKLED

    def _after(self, location: str) -> dict[str, Any]:
        """What every transformation of this stream begins with."""
        return {"id": self._environment.new_id(), "inputs": (self._id,), "location": location}

    def _checked(self, step: str, function: object, arguments: int) -> str:
        location = caller_location()
        check_function(function, arguments, operator=step, location=location)
        return location

    def _field(self, key: str | int) -> tuple[Callable[[T], Any], RecordType]:
        columns = dict(self.record_type.columns())
        name = key if isinstance(key, str) else f"f{key}"
        if self.record_type != PICKLED and name not in columns:
            raise self._refusal("key_by", f"{self.record_type} has no field {key!r}")
        selector: Any = operator.attrgetter(key) if isinstance(key, str) else operator.itemgetter(key)
        return selector, columns.get(name, PICKLED)


class KeyedStream(Generic[T, K]):
    """A stream whose records with equal keys are in the same subtask."""

    def __init__(
        self, stream: DataStream[T], selector: Callable[[T], K], key_type: RecordType, location: str
    ) -> None:
        self._stream = stream
        self._selector = selector
        self._key_type = key_type
        self._location = location

    def window(self, assigner: TumblingProcessingTimeWindows) -> WindowedStream[T, K]:
        """Groups the records of each key by windows."""
        if not isinstance(assigner, TumblingProcessingTimeWindows):
            raise ProgramError(
                f"it needs a window assigner such as TumblingProcessingTimeWindows.of(seconds=5),"
                f" not {type(assigner).__name__}",
                operator="window",
                location=caller_location(),
            )
        return WindowedStream(self, assigner)

    def _partition(self) -> int:
        """The virtual node for the next operator to take its input from."""
        stream = self._stream
        return stream._environment.add(
            Partition(
                **stream._after(self._location),
                partitioner=Partitioner.HASH,
                key_selector=self._selector,
            )
        )


class WindowedStream(Generic[T, K]):
    """The records of each key, grouped by windows."""

    def __init__(self, keyed: KeyedStream[T, K], assigner: TumblingProcessingTimeWindows) -> None:
        self._keyed = keyed
        self._assigner = assigner

    def reduce(self, function: Callable[[T, T], T]) -> DataStream[T]:
        """One record for each key and window that has any: the function folds two into one, in any order.

        Its timestamp is the end of the window, less a millisecond.
        """
        location = caller_location()
        check_function(function, 2, operator="reduce", location=location)
        keyed = self._keyed
        environment = keyed._stream._environment
        partition = keyed._partition()
        step = WindowReduce(
            id=environment.new_id(),
            inputs=(partition,),
            location=location,
            name=f"Window({self._assigner})",
            output_type=keyed._stream.record_type,
            assigner=self._assigner,
            key_type=keyed._key_type,
            key_selector=keyed._selector,
            reduce=function,
        )
        return DataStream(environment, environment.add(step))


class DataStreamSink(_Operator):
    """The end of a stream."""


def check_count(what: str, count: object, *, operator: str) -> None:
    """Raises ProgramError if the count is not an integer of 1 or more."""
    if type(count) is not int or count < 1:
        raise ProgramError(
            f"the {what} is {count!r}, not an integer of 1 or more",
            operator=operator,
            location=caller_location(),
        )
