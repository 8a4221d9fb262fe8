"""Operators with state for each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...functions.evictor import Evictor
from ...functions.trigger import Trigger
from ...graph.operators import OperatorKind
from ...types import RecordType
from ..keys import Key
from ..windows import WindowAssigner
from .base import Physical, Surroundings

RunningFunction = Literal["sum", "min", "max", "min_by", "max_by"]
WindowAggregation = Literal["reduce", "aggregate", "none", "sum", "min", "max", "min_by", "max_by"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed(Physical):
    """An operator on a keyed stream."""

    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedProcess(Keyed):
    """A process function with state and timers of each key."""

    KIND = OperatorKind.KEYED_PROCESS

    function: Any

    def functions(self) -> tuple[Any, ...]:
        return (self.key.selector, self.function)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        return {**self.key.parameters(), **surroundings.of_timers(self.function)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce(Keyed):
    """Emits, for each record, the reduction of all records of its key so far."""

    KIND = OperatorKind.REDUCE

    function: Any

    def functions(self) -> tuple[Any, ...]:
        return (self.key.selector, self.function)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        return {**self.key.parameters(), "mini_batch": surroundings.mini_batch}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Keyed):
    """Emits, for each record, the sum, minimum, ... of a field over all records of its key so far."""

    KIND = OperatorKind.AGGREGATE

    aggregation: RunningFunction
    field: str | None
    """The column; None: the record itself."""

    def functions(self) -> tuple[Any, ...]:
        return (self.key.selector,)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        return {
            "function": self.aggregation,
            "field": self.field,
            **self.key.parameters(),
            "mini_batch": surroundings.mini_batch,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PreAggregate(Aggregate):
    """Aggregates the records of a batch by key before the shuffle. The translation creates it."""

    KIND = OperatorKind.PRE_AGGREGATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Keyed):
    """Emits the results of each key and window."""

    KIND = OperatorKind.WINDOW

    assigner: WindowAssigner
    allowed_lateness_ms: int
    late_tag: str | None
    aggregation: WindowAggregation
    field: str | None
    aggregator: Any
    window_function: Any
    accumulator_type: RecordType
    trigger: Trigger[Any] | None = None
    """None: that of the assigner."""
    evictor: Evictor[Any] | None = None
    of_all: bool
    """Whether all records have one key, and go to one subtask."""

    @property
    def parallel(self) -> bool:
        return not self.of_all

    def functions(self) -> tuple[Any, ...]:
        functions = self.key.selector, self.aggregator, self.window_function
        more = self.trigger, self.evictor, getattr(self.assigner, "gap", None)
        # The others alone are what releases before triggers know.
        return functions if more == (None, None, None) else (*functions, *more)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        return {
            "assigner": self.assigner.parameters(),
            "allowed_lateness_ms": self.allowed_lateness_ms,
            "late_tag": self.late_tag,
            "aggregation": self.aggregation,
            "field": self.field,
            **self.key.parameters(),
            "accumulator_type": self.accumulator_type.to_json(),
            **{
                name: str(of)
                for name, of in (("trigger", self.trigger), ("evictor", self.evictor))
                if of is not None
            },
        }
