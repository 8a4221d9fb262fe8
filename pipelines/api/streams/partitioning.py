"""How the records of a stream are distributed over the subtasks of the next operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ....schemas.types import Partitioner
from ...functions import MapStateDescriptor
from .. import signatures
from ..keys import field_selector
from ..signatures import check_function
from ..source_location import caller_location
from ..transformations import Partition
from .stream import Stream

if TYPE_CHECKING:
    from .broadcast_stream import BroadcastStream
    from .data_stream import DataStream

T = TypeVar("T")
K = TypeVar("K")


class Partitioning(Stream[T]):
    """Part of DataStream."""

    def shuffle(self) -> DataStream[T]:
        """Each record goes to any subtask of the next operator, by chance."""
        return self._partitioned(Partitioner.SHUFFLE, "shuffle")

    def rebalance(self) -> DataStream[T]:
        """Records go to the subtasks of the next operator by turns."""
        return self._partitioned(Partitioner.REBALANCE, "rebalance")

    def rescale(self) -> DataStream[T]:
        """Records go by turns to those few subtasks of the next operator that are this subtask's."""
        return self._partitioned(Partitioner.RESCALE, "rescale")

    @overload
    def broadcast(self) -> DataStream[T]: ...
    @overload
    def broadcast(
        self, state: MapStateDescriptor[Any, Any], /, *more: MapStateDescriptor[Any, Any]
    ) -> BroadcastStream[T]: ...
    def broadcast(self, *states: MapStateDescriptor[Any, Any]) -> DataStream[T] | BroadcastStream[T]:
        """Each record goes to all subtasks of the next operator.

        With descriptors: to an operator that keeps these states of it, alike in every subtask (broadcast state).
        Connect another stream with it: `stream.connect(rules.broadcast(descriptor)).process(function)`.
        """
        from .broadcast_stream import BroadcastStream

        stream = self._partitioned(Partitioner.BROADCAST, "broadcast")
        return BroadcastStream(stream, states) if states else stream

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

    def _partitioned(
        self, partitioner: Partitioner, step: str, functions: tuple[Any, ...] = ()
    ) -> DataStream[T]:
        from .data_stream import DataStream

        made = self._program.add(
            Partition,
            step=step,
            location=caller_location(),
            inputs=(self._id,),
            partitioner=partitioner,
            functions=functions,
        )
        return DataStream(self._program, made.id)
