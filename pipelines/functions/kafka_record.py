"""A message of Kafka as a record: key, value, headers, and where it stands in its topic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from ..types import PICKLED, ClassOf, OptionalOf, RecordType

K = TypeVar("K")
V = TypeVar("V")

UNKNOWN: Final = -1
"""A partition, offset or timestamp that a record does not have. Kafka's own value."""


@dataclass(frozen=True, slots=True)
class KafkaRecord(Generic[K, V]):
    """A message that a `KafkaSource` has read (Kafka's ConsumerRecord), or that a `KafkaSink` writes (ProducerRecord).

    Read with `KafkaSource(..., output_type=KafkaRecord[K, V])`. A message without a key needs `K | None`, a tombstone
    needs `V | None`. A sink writes key, value (None: a tombstone), headers and `timestamp_ms`. Topic, partition and
    offset say where a record was read: a sink ignores them.
    """

    key: K
    value: V
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    """In order; a name may occur more than once."""
    topic: str = ""
    partition: int = UNKNOWN
    offset: int = UNKNOWN
    timestamp_ms: int = UNKNOWN
    """Milliseconds since the epoch. A sink writes the time of the stream's record if this is -1."""


def kafka_record_type(key: RecordType, value: RecordType) -> RecordType:
    """Returns the record type of KafkaRecords with such keys and values."""
    found = RecordType.of(KafkaRecord)
    assert isinstance(found, ClassOf)
    own = {"key": key, "value": value}
    fields = tuple((name, own.get(name, of)) for name, of in found.fields)
    return ClassOf(found.name, found.form, fields, found.source)


def key_and_value_types(of: RecordType) -> tuple[RecordType, RecordType] | None:
    """Returns the types of keys and values if records of this type are KafkaRecords; else None. Loads no classes."""
    if not isinstance(of, ClassOf) or of.source is not KafkaRecord:
        return None
    fields = dict(of.fields)
    return fields["key"], fields["value"]


def takes_none(of: RecordType) -> bool:
    """Whether None is a value of this type."""
    return of == PICKLED or isinstance(of, OptionalOf)


def without_none(of: RecordType) -> RecordType:
    """Returns the type of the values that are not None."""
    return of.item if isinstance(of, OptionalOf) else of


def is_kafka_record(value: Any) -> bool:
    """Whether a value is a KafkaRecord."""
    return type(value) is KafkaRecord
