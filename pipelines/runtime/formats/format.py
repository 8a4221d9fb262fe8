"""The parameters and the interface of a format, and the unreadable values of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from ..common.failures import TaskError, one_line
from ..records.batch import EMPTY, Batch, concatenate


class FormatKind(StrEnum):
    """The values of `kind` of a format."""

    TEXT = "text"
    """UTF-8."""
    RAW = "raw"
    """The unchanged bytes."""
    CSV = "csv"
    """A row of comma-separated values."""
    JSON = "json"
    JSON_SCHEMA = "json-schema"
    """JSON in Confluent's wire format."""
    DEBEZIUM_JSON = "debezium-json"
    """Debezium's envelope."""
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Framing(StrEnum):
    """The head before an Avro datum."""

    SINGLE_OBJECT = "single-object"
    """The Avro specification's marker and schema fingerprint."""
    REGISTRY = "registry"
    """Confluent's wire format: a zero byte and the id of the schema in a registry."""
    NONE = "none"
    """No prefix: both sides know the schema."""


class MessagePart(StrEnum):
    """The part of a message that a format is for; it is in the name of a schema's subject."""

    KEY = "key"
    VALUE = "value"


class SubjectStrategy(StrEnum):
    """The subject that a schema is registered as."""

    TOPIC = "topic"
    """<topic>-value or <topic>-key."""
    RECORD = "record"
    """The name of the record."""
    TOPIC_RECORD = "topic-record"
    """<topic>-<name of the record>."""

    def subject(self, topic: str, part: MessagePart, record: str | None) -> str:
        """Returns the subject. Raises TaskError if the schema has no name, and the subject needs one."""
        if self is SubjectStrategy.TOPIC:
            return f"{topic}-{part}"
        if record is None:
            raise TaskError(
                f"the schema of the {part}s for {topic} has no name, which the subject strategy {self} needs: name it,"
                " or use the strategy topic"
            )
        return record if self is SubjectStrategy.RECORD else f"{topic}-{record}"


class ValueFormat(msgspec.Struct, frozen=True):
    """The value of `format` in the parameters of a Kafka source or sink; `schema` is JSON text."""

    kind: FormatKind
    schema: str | None = None
    framing: Framing | None = None
    registry: str | None = None
    """URL of a schema registry."""
    subject: SubjectStrategy = SubjectStrategy.TOPIC
    registry_properties: Mapping[str, str] | None = None
    register: bool = True
    """Whether a sink registers its schema."""
    delimiter: str | None = None
    message: str | None = None
    """The name of a generated message class of Protobuf: see graph/protobuf_classes.py."""

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> ValueFormat:
        """Reads a parameter. Raises msgspec.ValidationError."""
        return msgspec.convert(parameters, cls)

    @property
    def framed(self) -> Framing:
        """The framing of an Avro format: through the registry if there is one, else single-object."""
        if self.framing is not None:
            return self.framing
        return Framing.SINGLE_OBJECT if self.registry is None else Framing.REGISTRY


class ValueReader(Protocol):
    """Decodes values into records."""

    def read(self, timestamps: pa.Int64Array, values: pa.BinaryArray) -> Batch:
        """Returns the records of the values, in order. No value is null.

        Raises TaskError if none can be read now, and any other error if a value is unreadable.
        """


class ValueWriter(Protocol):
    """Encodes records as values."""

    def write(self, batch: Batch) -> list[bytes]:
        """Returns the values of the records, in order. Raises any error if a record does not fit."""


class UnreadableValue(msgspec.Struct, frozen=True):
    """A value that cannot be decoded: its index in the batch, and the reason."""

    index: int
    why: str


def read_valid(
    reader: ValueReader, timestamps: pa.Int64Array, values: pa.BinaryArray
) -> tuple[Batch, list[UnreadableValue]]:
    """Returns the records of the readable values, and the unreadable values. Raises TaskError."""
    return find_unreadable(
        lambda start, stop: reader.read(timestamps[start:stop], values[start:stop]), 0, len(values)
    )


def find_unreadable(
    read: Callable[[int, int], Batch], start: int, stop: int
) -> tuple[Batch, list[UnreadableValue]]:
    """Returns the records of the readable messages with indexes from `start` to before `stop`, and the unreadable ones.

    It decodes a batch as a whole, and bisects a batch that fails until each unreadable message is alone. Raises
    TaskError.
    """
    if start == stop:
        return EMPTY, []
    try:
        return read(start, stop), []
    except TaskError:
        raise
    except Exception as error:
        if stop - start == 1:
            return EMPTY, [UnreadableValue(start, one_line(error))]
    middle = (start + stop) // 2
    first, bad = find_unreadable(read, start, middle)
    second, worse = find_unreadable(read, middle, stop)
    return concatenate([first, second]), [*bad, *worse]
