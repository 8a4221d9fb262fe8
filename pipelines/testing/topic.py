"""A Kafka topic in memory, as a test sees it: values are written and read in a format, as a KafkaSource and a KafkaSink
do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..api import Format
from ..runtime.formats import ValueFormat, create_message_reader, create_writer
from ..runtime.records.batch import Batch
from ..runtime.records.timestamps import encode_timestamps
from ..types import RecordType
from .memory.kafka import MemoryKafka, Message
from .memory.kafka_rows import kafka_rows


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A message, with its place in the topic."""

    value: bytes | None
    key: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]]
    partition: int
    offset: int


class Topic:
    """A topic of a MiniCluster. `MiniCluster.topic` creates it."""

    def __init__(
        self,
        name: str,
        kafka: MemoryKafka,
        format: Format,
        *,
        now: Callable[[], int],
        on_written: Callable[[], None],
    ) -> None:
        self.name = name
        self._kafka = kafka
        self._format = format
        self._now = now
        self._on_written = on_written

    @property
    def partitions(self) -> int:
        """The number of its partitions."""
        return len(self._kafka.logs[self.name])

    def write(
        self,
        values: Iterable[Any],
        *,
        key: Callable[[Any], object] | bytes | str | None = None,
        timestamp: Callable[[Any], int] | int | None = None,
        headers: Mapping[str, bytes | None] | None = None,
        partition: int | None = None,
    ) -> None:
        """Writes a message for each value; running jobs process them before the call returns.

        A value of bytes is written as it is, None is a tombstone, and any other value is encoded in the topic's format.
        `key`: of all messages, or a function of the value; neither bytes nor str, it is written as JSON. `timestamp`:
        in milliseconds since the epoch, of all messages or a function of the value; None: the cluster's time.
        `partition`: None: by the key's hash, as Kafka's clients choose it.
        """
        for value in list(values):
            of_value = key(value) if callable(key) else key
            at = timestamp(value) if callable(timestamp) else timestamp
            if at is not None:
                encode_timestamps("a message has the timestamp", [at])
            encoded_key = _key(of_value)
            to = self._kafka.partition_of(self.name, encoded_key) if partition is None else partition
            if not 0 <= to < self.partitions:
                raise ValueError(f"topic {self.name} has no partition {to}: it has {self.partitions}")
            message = Message(
                self._encode(value),
                encoded_key,
                self._now() if at is None else at,
                tuple((headers or {}).items()),
            )
            self._kafka.append(self.name, to, message)
        self._on_written()

    def records(self, record_type: object = None) -> list[Any]:
        """Returns the decoded values of all messages, partition by partition; a tombstone is None.

        `record_type`: their type, such as a dataclass; None: the natural one of the format.
        """
        return [None if m.value is None else self._decode(m.value, record_type) for m in self.messages()]

    def by_key(self, record_type: object = None) -> dict[str | None, Any]:
        """Returns the last value of each key, as a reader of a compacted topic sees it; keys as text."""
        found: dict[str | None, Any] = {}
        for message in self.messages():
            key = None if message.key is None else message.key.decode("utf-8", "replace")
            if message.value is None:
                found.pop(key, None)
            else:
                found[key] = self._decode(message.value, record_type)
        return found

    def messages(self) -> list[TopicMessage]:
        """Returns all messages, partition by partition."""
        return [
            TopicMessage(m.value, m.key, m.timestamp_ms, m.headers, partition, offset)
            for partition, log in sorted(self._kafka.logs[self.name].items())
            for offset, m in enumerate(log)
        ]

    def _value_format(self) -> ValueFormat:
        return ValueFormat.from_parameters(self._format.parameters())

    def _encode(self, value: Any) -> Any:
        if value is None or isinstance(value, bytes):
            return value
        natural = self._format.natural_type()
        writer = create_writer(self._value_format(), natural, self.name)
        return writer.write(Batch([0], [value]))[0]

    def _decode(self, value: bytes, record_type: object) -> Any:
        of = self._format.natural_type() if record_type is None else RecordType.of(record_type)
        batch, bad = create_message_reader(self._value_format(), None, of).read(
            kafka_rows([Message(value)]), self.name, 0
        )
        if bad:
            raise ValueError(f"a message of topic {self.name} is no {self._format}: {bad[0].why}")
        return batch.values[0]


def _key(key: object) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    return key.encode() if isinstance(key, str) else json.dumps(key).encode()
