"""Sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...functions import TransactionalSink
from ...graph.operators import OperatorKind
from ...types import RecordType
from ..connectors import FileSink, Format, KafkaSink
from ..connectors.kafka import connection_parameters
from ..durations import timedelta_ms
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
class Collect(Physical):
    """Writes each record to the job's output, as text and as an object for the program."""

    KIND = OperatorKind.PRINT

    identifier: str | None

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {"identifier": self.identifier, "collects": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreach(OneFunction):
    """Calls a function for each record."""

    KIND = OperatorKind.FOREACH


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFiles(Physical):
    """Writes each record to a file."""

    KIND = OperatorKind.FILE_SINK
    CODE = "bucket function"

    sink: FileSink

    def functions(self) -> tuple[Any, ...]:
        function = self.sink.bucket_function
        return () if function is None else (function,)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        sink = self.sink
        found = {
            "path": sink.path,
            "format": sink.format,
            "prefix": sink.prefix,
            "roll_records": sink.roll_records,
            "roll_ms": sink.roll_ms,
        }
        more = {
            "options": sink.options,
            "message": sink.message,
            "bucket": sink.bucket or None,
            "roll_bytes": None if sink.roll_bytes == 64 << 20 else sink.roll_bytes,
            "inactivity_ms": sink.inactivity_ms,
            "most_open": None if sink.max_open_files == 100 else sink.max_open_files,
            "success_files": sink.success_files or None,
        }
        return {**found, **{name: value for name, value in more.items() if value is not None}}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteKafka(Physical):
    """Writes each record to a Kafka topic."""

    KIND = OperatorKind.KAFKA_SINK

    sink: KafkaSink
    topic: Any
    """A function, or None: the topic is always the same."""
    key: Any
    key_format: Format | None
    """None: the key is bytes, str or None."""
    key_type: RecordType
    headers: Any
    partitioner: Any
    timestamp_ms: Any
    takes_kafka_records: bool

    def functions(self) -> tuple[Any, ...]:
        return (self.topic, self.key, self.headers, self.partitioner, self.timestamp_ms)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        return {
            "topic": None if callable(self.sink.topic) else self.sink.topic,
            "format": self.sink.value_format.parameters(),
            "key_format": None if self.key_format is None else self.key_format.parameters(),
            "key_type": self.key_type.to_json(),
            "takes_kafka_records": self.takes_kafka_records,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteExternalKafka(WriteKafka):
    """Writes each record to a topic of another Kafka cluster."""

    KIND = OperatorKind.EXTERNAL_KAFKA_SINK

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        connection = self.sink.connection
        return {
            **WriteKafka.own_parameters(self, surroundings),
            "connection": None if connection is None else connection_parameters(connection),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTransactions(Physical):
    """Writes records by a sink that the user has written."""

    KIND = OperatorKind.TRANSACTIONAL_SINK
    CODE = "sink"

    sink: TransactionalSink[Any]

    def functions(self) -> tuple[Any, ...]:
        return (self.sink,)

    def own_parameters(self, surroundings: Surroundings) -> Mapping[str, Any]:
        del surroundings
        roll_ms = timedelta_ms("roll_interval", self.sink.roll_interval, operator=self.step)
        return {"roll_records": self.sink.roll_records, "roll_ms": roll_ms}
