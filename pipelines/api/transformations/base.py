"""Base classes of all transformations, and of those that become operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ....schemas.types import ResourceProfile
from ...graph.operators import TRAITS, OperatorKind, OperatorTraits
from ...graph.stream_graph import ChainingStrategy
from ...types import RecordType
from ..signatures import has_timers, is_rich


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Properties of the whole program that an operator's parameters depend on."""

    mini_batch: bool
    """`execution.mini-batch`."""
    event_time_held_by: str | None = None
    """The source, with its line, that holds back the watermarks of all others."""

    def of_timers(self, function: Any) -> dict[str, Any]:
        """Returns the parameters of an operator whose function may have timers."""
        found: dict[str, Any] = {} if has_timers(function) else {"timers": False}
        if self.event_time_held_by is not None:
            found["event_time_held_by"] = self.event_time_held_by
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """A step of a program."""

    id: int
    step: str
    """The name of the method, such as `map`."""
    location: str
    """file:line of the call."""
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Physical(Transformation):
    """A transformation that becomes an operator. The translation into a graph fills in fields that are None."""

    KIND: ClassVar[OperatorKind]
    CODE: ClassVar[str] = "function"
    """The name of `functions` in messages."""

    name: str
    output_type: RecordType | None
    """None for sinks."""
    side_outputs: Mapping[str, RecordType] = field(default_factory=dict)
    """Tag -> type, for the side outputs that the program uses."""
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
        """The traits of all operators of this kind."""
        return TRAITS[self.KIND]

    @property
    def parallel(self) -> bool:
        """Whether the operator may have more than one subtask."""
        return self.traits.parallel

    def functions(self) -> tuple[Any, ...]:
        """The functions for OperatorConfig.code."""
        return ()

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        """The parameters of this kind for OperatorConfig.parameters."""
        del surroundings
        return {}

    def parameters(self, surroundings: Surroundings) -> dict[str, Any]:
        """Returns all parameters for OperatorConfig.parameters."""
        found = dict(self.own_parameters(surroundings))
        if self.output_type is not None:
            found["output_type"] = self.output_type.to_json()
        if self.side_outputs:
            found["side_outputs"] = {tag: of.to_json() for tag, of in self.side_outputs.items()}
        if any(map(is_rich, self.functions())):
            found["rich"] = True
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OneFunction(Physical):
    """An operator with one function."""

    function: Any

    def functions(self) -> tuple[Any, ...]:
        return (self.function,)
