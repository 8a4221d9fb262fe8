"""Sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...functions import Source
from ...graph.operators import OperatorKind
from ..connectors import FileSource, KafkaSource
from ..connectors.kafka import connection_parameters
from .base import OneFunction, Physical, Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketTextStream(Physical):
    """Reads text from a socket, split at the delimiter."""

    KIND = OperatorKind.SOCKET_TEXT_STREAM

    host: str
    port: int
    delimiter: str
    max_retries: int

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {
            "host": self.host,
            "port": self.port,
            "delimiter": self.delimiter,
            "max_retries": self.max_retries,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection(Physical):
    """Emits records that the program itself contains."""

    KIND = OperatorKind.COLLECTION
    CODE = "list of records"

    records: list[Any]

    def functions(self) -> tuple[Any, ...]:
        return (self.records,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate(OneFunction):
    """Emits the results of a function of the record's number."""

    KIND = OperatorKind.GENERATOR

    count: int | None
    rate: float | None

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {"count": self.count, "rate": self.rate}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFiles(Physical):
    """Reads records from files."""

    KIND = OperatorKind.FILES

    source: FileSource

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        source = self.source
        found = {"paths": list(source.paths), "format": source.format, "columns": source.columns}
        more = {
            "options": source.options,
            "message": source.message,
            "monitor_ms": source.monitor_ms,
            "max_age_ms": source.max_age_ms,
        }
        return {**found, **{name: value for name, value in more.items() if value is not None}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadKafka(Physical):
    """Reads records from Kafka topics."""

    KIND = OperatorKind.KAFKA_SOURCE

    source: KafkaSource

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        source = self.source
        return {
            "topics": list(source.topics),
            "topic_pattern": None if source.topic_pattern is None else source.topic_pattern.pattern,
            "discovery_ms": source.discovery_ms,
            "format": source.value_format.parameters(),
            "key_format": None if source.key_format is None else source.key_format.parameters(),
            "starting": source.starting.parameters(),
            "resets_offsets": source.reset_offsets,
            "group_id": source.group_id,
            "bounded": source.bounded,
            "on_bad_record": source.on_bad_record,
            "on_tombstone": source.on_tombstone,
            "on_data_loss": source.on_data_loss,
            "connection": None if source.connection is None else connection_parameters(source.connection),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCustom(Physical):
    """Reads records by a source that the user has written."""

    KIND = OperatorKind.CUSTOM_SOURCE
    CODE = "source"

    source: Source[Any]

    @property
    def is_bounded(self) -> bool:
        """Whether the source ends."""
        return self.source.bounded and self.source.discovery_interval is None

    def functions(self) -> tuple[Any, ...]:
        return (self.source,)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {"bounded": self.is_bounded}
