"""The streams that come straight from an operator, on which it can be configured, and the ends of streams."""

from __future__ import annotations

from typing import Self, TypeVar

from ...functions import OutputTag
from ...types import RecordType
from ..program import Program
from ..source_location import caller_location
from ..transformations import (
    BroadcastProcess,
    CoProcess,
    KeyedCoProcess,
    KeyedProcess,
    Process,
    SideOutput,
    Window,
)
from .data_stream import DataStream
from .settings import OnlyInPrograms, OperatorSettings, check_tag, refusal

T = TypeVar("T")
X = TypeVar("X")


class SingleOutputStreamOperator(OperatorSettings, DataStream[T]):
    """What an operator gives (Flink's name for it)."""

    def returns(self, output_type: object) -> Self:
        """Declares the type of the stream's records: a Python type or one of `Types`."""
        return self._set(output_type=RecordType.of(output_type))

    def get_side_output(self, tag: OutputTag[X]) -> DataStream[X]:
        """The records that the operator's function has put out under the tag, or that came late for a window."""
        check_tag("get_side_output", tag)
        operator = self._operator
        with_context = (Process, KeyedProcess, CoProcess, KeyedCoProcess, BroadcastProcess, Window)
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


class DataStreamSink(OperatorSettings, OnlyInPrograms):
    """The end of a stream."""

    def __init__(self, program: Program, transformation_id: int) -> None:
        self._program = program
        self._id = transformation_id
