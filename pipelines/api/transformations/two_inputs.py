"""Operators on two connected streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...functions import MapStateDescriptor
from ...graph.operators import OperatorKind
from ...types import RecordType
from ..keys import Key
from .base import OneFunction, Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class CoMap(OneFunction):
    """Emits one record for each record."""

    KIND = OperatorKind.CO_MAP


@dataclass(frozen=True, slots=True, kw_only=True)
class CoFlatMap(OneFunction):
    """Emits any number of records for each record."""

    KIND = OperatorKind.CO_FLAT_MAP


@dataclass(frozen=True, slots=True, kw_only=True)
class CoProcess(OneFunction):
    """Emits any number of records for each record, also on side outputs."""

    KIND = OperatorKind.CO_PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCoProcess(OneFunction):
    """A process function with state and timers of each key of both inputs."""

    KIND = OperatorKind.KEYED_CO_PROCESS

    selectors: tuple[Any, Any]
    key_type: RecordType

    def functions(self) -> tuple[Any, ...]:
        return (*self.selectors, self.function)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        return {"key_type": self.key_type.to_json(), **surroundings.of_timers(self.function)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeJoin(OneFunction):
    """A join of two keyed streams whose results follow the watermarks of both."""

    selectors: tuple[Any, Any]
    key_type: RecordType

    def functions(self) -> tuple[Any, ...]:
        return (*self.selectors, self.function)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalJoin(EventTimeJoin):
    """Emits records for each pair with one key and near timestamps."""

    KIND = OperatorKind.INTERVAL_JOIN

    lower_ms: int
    upper_ms: int
    left_late_tag: str | None
    right_late_tag: str | None

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {
            "key_type": self.key_type.to_json(),
            "lower_ms": self.lower_ms,
            "upper_ms": self.upper_ms,
            "left_late_tag": self.left_late_tag,
            "right_late_tag": self.right_late_tag,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalJoin(EventTimeJoin):
    """Emits a record for each left record with the right one that is valid at its timestamp."""

    KIND = OperatorKind.TEMPORAL_JOIN

    is_outer: bool
    late_tag: str | None

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {"key_type": self.key_type.to_json(), "is_outer": self.is_outer, "late_tag": self.late_tag}


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastProcess(OneFunction):
    """A process function with broadcast state; the second input is the broadcast one."""

    KIND = OperatorKind.BROADCAST_PROCESS

    states: tuple[MapStateDescriptor[Any, Any], ...]

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {
            "broadcast_states": {
                state.name: {
                    "key_type": state.key_record_type.to_json(),
                    "value_type": state.value_record_type.to_json(),
                }
                for state in self.states
            }
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedBroadcastProcess(BroadcastProcess):
    """A process function with broadcast state whose first input is keyed: with state and timers of each key."""

    KIND = OperatorKind.KEYED_BROADCAST_PROCESS

    key: Key

    def functions(self) -> tuple[Any, ...]:
        return (self.key.selector, self.function)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        states = BroadcastProcess.own_parameters(self, surroundings)
        return {**states, **self.key.parameters(), **surroundings.of_timers(self.function)}
