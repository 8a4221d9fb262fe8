"""The broadcast state pattern: a stream that every subtask receives whole, and another one connected with it."""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar

from ...functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
)
from ...types import RecordType
from .. import signatures
from ..checks import is_text
from ..signatures import check_function, function_name
from ..source_location import caller_location
from ..transformations import BroadcastProcess, KeyedBroadcastProcess, Physical
from ..type_hints import result_type
from .data_stream import DataStream
from .keyed_stream import KeyedStream
from .operator import SingleOutputStreamOperator
from .settings import OnlyInPrograms, refusal

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")


class BroadcastStream(OnlyInPrograms, Generic[B]):
    """A stream for every subtask, with the states that these keep of it: the second input of `connect`, and no more."""

    def __init__(self, stream: DataStream[B], states: tuple[Any, ...]) -> None:
        for state in states:
            if not isinstance(state, MapStateDescriptor) or not is_text(state.name):
                raise refusal("broadcast", f"it needs MapStateDescriptors with names, not {state!r}")
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
        output_type: object = None,
    ) -> SingleOutputStreamOperator[R]:
        """Any number of records for each, side outputs, and the broadcast state; with keys, their state and timers."""
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
