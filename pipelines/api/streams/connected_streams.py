"""ConnectedStreams: two streams, of whatever types, for one operator with two inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

from ....schemas.types import Partitioner
from ...functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from ...functions.adapters import KeyedCoFlatMap, KeyedCoMap, TwoFlatMaps, TwoMaps, may_have_state
from ...types import PICKLED, RecordType
from .. import signatures
from ..keys import Key
from ..signatures import Signature, check_function, uses_itself
from ..source_location import caller_location
from ..transformations import CoFlatMap, CoMap, CoProcess, KeyedCoProcess, Partition, Physical
from ..type_hints import result_type
from .data_stream import DataStream
from .keyed_stream import KeyedStream
from .operator import SingleOutputStreamOperator
from .settings import OnlyInPrograms, refusal

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")


class ConnectedStreams(OnlyInPrograms, Generic[A, B]):
    """A first and a second stream. Where both are keyed, functions may have keyed state, which is one for both."""

    def __init__(self, first: DataStream[A], second: DataStream[B]) -> None:
        self._first = first
        self._second = second

    def key_by(
        self, key1: Callable[[A], Any] | str | int, key2: Callable[[B], Any] | str | int
    ) -> ConnectedStreams[A, B]:
        """Records of both streams with equal keys go to the same subtask."""
        return ConnectedStreams(self._first.key_by(key1), self._second.key_by(key2))

    @overload
    def map(
        self, function: CoMapFunction[A, B, R], /, *, output_type: object = ...
    ) -> SingleOutputStreamOperator[R]: ...
    @overload
    def map(
        self, function: Callable[[A], R], second: Callable[[B], R], /, *, output_type: object = ...
    ) -> SingleOutputStreamOperator[R]: ...
    def map(
        self, function: Any, second: Any = None, /, *, output_type: object = None
    ) -> SingleOutputStreamOperator[Any]:
        """One record for each: by a CoMapFunction, or by a function for each of the streams."""
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
        self, function: CoFlatMapFunction[A, B, R], /, *, output_type: object = ...
    ) -> SingleOutputStreamOperator[R]: ...
    @overload
    def flat_map(
        self,
        function: Callable[[A], Iterable[R] | None],
        second: Callable[[B], Iterable[R] | None],
        /,
        *,
        output_type: object = ...,
    ) -> SingleOutputStreamOperator[R]: ...
    def flat_map(
        self, function: Any, second: Any = None, /, *, output_type: object = None
    ) -> SingleOutputStreamOperator[Any]:
        """Any number of records for each: by a CoFlatMapFunction, or by a function for each of the streams."""
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
        output_type: object = None,
    ) -> SingleOutputStreamOperator[R]:
        """Any number of records for each, and side outputs; with state and timers where both streams are keyed."""
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
        """Of both streams, where both are keyed."""
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
                raise refusal(step, f"a {type(function).__name__} is for both streams: give it alone")
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
        first, second = (key.record_type for key in self._keys)
        if first != second and PICKLED not in (first, second):
            raise refusal(
                step,
                f"the keys of the two streams differ: {first} and {second}; let their selectors return one type",
            )
        return self._then(
            KeyedCoProcess,
            step,
            name,
            output_type,
            function=function,
            selectors=tuple(key.selector for key in self._keys),
            key_type=first if first == second else PICKLED,
        )

    def _is_broadcast(self, stream: DataStream[Any]) -> bool:
        found = stream._program.transformations[stream._id]
        return isinstance(found, Partition) and found.partitioner is Partitioner.BROADCAST

    def _warn_of_broadcast(self, step: str, function: object, signature: Signature) -> None:
        """What a function keeps of a broadcast stream in its attributes is lost when its task starts again."""
        streams: tuple[DataStream[Any], DataStream[Any]] = self._first, self._second
        for stream, method in zip(streams, signature.methods, strict=True):
            if self._is_broadcast(stream) and uses_itself(getattr(function, method)):
                name = signatures.function_name(function)
                warnings.warn(
                    f"{step} at {caller_location()}: {name}.{method} gets a broadcast stream, and what it keeps of it"
                    f" in attributes of {name} is lost when its task starts again: keep it in broadcast state (give"
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
