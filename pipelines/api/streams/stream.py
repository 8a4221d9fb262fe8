"""What is the same for all steps of a stream: how one follows another in the program."""

# The kinds of streams make one another, so that they are imported where they are made.
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...types import RecordType
from ..program import Program
from ..signatures import Signature, check_function
from ..source_location import caller_location
from ..transformations import Physical
from ..type_hints import result_type
from .settings import OnlyInPrograms

if TYPE_CHECKING:
    from .operator import DataStreamSink, SingleOutputStreamOperator

T = TypeVar("T")


class Stream(OnlyInPrograms, Generic[T]):
    """The output of a transformation."""

    def __init__(self, program: Program, transformation_id: int) -> None:
        self._program = program
        self._id = transformation_id

    @property
    def record_type(self) -> RecordType:
        """The type of the stream's records."""
        return self._program.record_type(self._id)

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
