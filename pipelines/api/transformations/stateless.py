"""Operators without keyed state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...graph.operators import OperatorKind
from .base import OneFunction, Physical, Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(OneFunction):
    """One record for each."""

    KIND = OperatorKind.MAP


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMap(OneFunction):
    """Any number of records for each."""

    KIND = OperatorKind.FLAT_MAP


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(OneFunction):
    """Those records for which the function is true."""

    KIND = OperatorKind.FILTER


@dataclass(frozen=True, slots=True, kw_only=True)
class MapBatches(OneFunction):
    """Arrow record batches for Arrow record batches."""

    KIND = OperatorKind.MAP_BATCHES


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(OneFunction):
    """Any number of records and side outputs for each."""

    KIND = OperatorKind.PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks(Physical):
    """Timestamps, and how far event time has come."""

    KIND = OperatorKind.WATERMARKS

    timestamp_assigner: Any
    out_of_orderness_ms: int
    idle_after_ms: int | None

    def functions(self) -> tuple[Any, ...]:
        return (self.timestamp_assigner,)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {"out_of_orderness_ms": self.out_of_orderness_ms, "idle_after_ms": self.idle_after_ms}
