"""Operators without keyed state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...functions import AsyncRetryStrategy
from ...graph.operators import OperatorKind
from .base import OneFunction, Physical, Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(OneFunction):
    """Emits one record for each record."""

    KIND = OperatorKind.MAP


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMap(OneFunction):
    """Emits any number of records for each record."""

    KIND = OperatorKind.FLAT_MAP


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(OneFunction):
    """Emits the records for which the function is true."""

    KIND = OperatorKind.FILTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Where(Physical):
    """Emits the records for which a condition in SQL is true."""

    KIND = OperatorKind.WHERE

    condition: str

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {"condition": self.condition}


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Physical):
    """Emits a record of the values of expressions in SQL for each record."""

    KIND = OperatorKind.SELECT

    columns: tuple[tuple[str, str], ...]
    """The name and the expression of each column."""

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {"columns": [list(column) for column in self.columns]}


@dataclass(frozen=True, slots=True, kw_only=True)
class MapBatches(OneFunction):
    """Maps Arrow record batches to Arrow record batches."""

    KIND = OperatorKind.MAP_BATCHES


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(OneFunction):
    """Emits any number of records for each record, also on side outputs."""

    KIND = OperatorKind.PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncMap(OneFunction):
    """Emits the results that a function awaits for each record."""

    KIND = OperatorKind.ASYNC_MAP

    retry: AsyncRetryStrategy | None
    capacity: int
    timeout_ms: int | None
    ordered: bool

    def functions(self) -> tuple[Any, ...]:
        return (self.function, self.retry)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {"capacity": self.capacity, "timeout_ms": self.timeout_ms, "ordered": self.ordered}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks(Physical):
    """Assigns timestamps and emits watermarks."""

    KIND = OperatorKind.WATERMARKS

    timestamp_assigner: Any
    out_of_orderness_ms: int
    idle_after_ms: int | None

    def functions(self) -> tuple[Any, ...]:
        return (self.timestamp_assigner,)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        found = {"out_of_orderness_ms": self.out_of_orderness_ms, "idle_after_ms": self.idle_after_ms}
        return found if self.timestamp_assigner is None else {**found, "assigns_timestamps": True}
