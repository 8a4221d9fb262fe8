"""Sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...graph.operators import OperatorKind
from ..connectors import FileSink, KafkaSink
from .base import OneFunction, Physical, Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Print(Physical):
    """Writes each record to the job's output."""

    KIND = OperatorKind.PRINT

    identifier: str | None

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {"identifier": self.identifier}


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreach(OneFunction):
    """Calls a function for each record."""

    KIND = OperatorKind.FOREACH


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFiles(Physical):
    """Writes each record to a file."""

    KIND = OperatorKind.FILE_SINK

    sink: FileSink

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        sink = self.sink
        return {
            "path": sink.path,
            "format": sink.format,
            "prefix": sink.prefix,
            "roll_records": sink.roll_records,
            "roll_ms": sink.roll_ms,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteKafka(Physical):
    """Writes each record to a Kafka topic."""

    KIND = OperatorKind.KAFKA_SINK

    sink: KafkaSink
    key: Any

    def functions(self) -> tuple[Any, ...]:
        return (self.key,)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {"topic": self.sink.topic, "format": self.sink.value_format.parameters()}
