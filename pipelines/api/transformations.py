"""Transformations: what a program asked for, one small frozen class each.

A `Physical` one becomes an operator. A `Partition` only says how records get from its input to the next
operator: a virtual node (document 002). Inputs are named by id, so that a transformation can be replaced
by a changed copy after others have been built on it.

To add an operator: its traits in graph/operators.py, a class here, a method on a stream, and its work in
the runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ...schemas.types import Partitioner, ResourceProfile
from ..graph.operators import TRAITS, OperatorKind, OperatorTraits
from ..graph.stream_graph import ChainingStrategy
from ..types import RecordType
from .windows import TumblingProcessingTimeWindows

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """Anything a program can ask for."""

    id: int
    location: str
    """file:line of the call."""
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Physical(Transformation):
    """A transformation that becomes an operator. What is None is decided when the graph is made."""

    KIND: ClassVar[OperatorKind]

    name: str
    output_type: RecordType | None
    """None for sinks."""
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    slot_sharing_group: str | None = None
    """Empty: no sharing."""
    co_location_group: str | None = None
    resources: ResourceProfile | None = None
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS

    @property
    def traits(self) -> OperatorTraits:
        """What holds for all operators of the kind."""
        return TRAITS[self.KIND]

    def parameters(self) -> dict[str, Any]:
        """What goes into OperatorConfig.parameters, beside the output type."""
        return {}

    def functions(self) -> tuple[Function, ...]:
        """What goes into OperatorConfig.code."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(Transformation):
    """How the records of its input are distributed."""

    partitioner: Partitioner
    key_selector: Function | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketTextStream(Physical):
    """Text from a socket, cut at the delimiter."""

    KIND = OperatorKind.SOCKET_TEXT_STREAM

    host: str
    port: int
    delimiter: str
    max_retries: int

    def parameters(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "port": self.port,
            "delimiter": self.delimiter,
            "max_retries": self.max_retries,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneFunction(Physical):
    function: Function

    def functions(self) -> tuple[Function, ...]:
        return (self.function,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(_OneFunction):
    """One record for each."""

    KIND = OperatorKind.MAP


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMap(_OneFunction):
    """Any number of records for each."""

    KIND = OperatorKind.FLAT_MAP


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(_OneFunction):
    """Those records for which the function is true."""

    KIND = OperatorKind.FILTER


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReduce(Physical):
    """One record for each key and window: its records, reduced."""

    KIND = OperatorKind.WINDOW_REDUCE

    assigner: TumblingProcessingTimeWindows
    key_type: RecordType
    key_selector: Function
    reduce: Function

    def parameters(self) -> dict[str, Any]:
        return {**self.assigner.parameters(), "key_type": self.key_type.to_json()}

    def functions(self) -> tuple[Function, ...]:
        return (self.key_selector, self.reduce)


@dataclass(frozen=True, slots=True, kw_only=True)
class Print(Physical):
    """Each record to the job's output."""

    KIND = OperatorKind.PRINT

    identifier: str | None

    def parameters(self) -> dict[str, Any]:
        return {"identifier": self.identifier}
