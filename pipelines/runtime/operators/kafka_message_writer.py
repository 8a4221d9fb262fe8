"""Encodes records as Kafka messages: topic, key, value, headers, partition and timestamp of each.

A part of a message is the result of a function of the record, or that of a KafkaRecord, or absent. An error names the
record. Each topic has its own encoders, because a schema registry has subjects by topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ....schemas.types import OperatorConfig
from ...functions.kafka_record import is_kafka_record, key_and_value_types, without_none
from ...types import RecordType
from ..common.failures import RecordRejected, TaskError
from ..formats import MessagePart, ValueWriter, create_writer
from ..records.batch import Batch
from .kafka_sink_parameters import KafkaSinkParameters
from .operator import MessageHeaders
from .user_functions import Function, OrderedCalls, user_code


class SinkFunctions(NamedTuple):
    """The functions of a Kafka sink; None for absent ones."""

    topic: Function | None = None
    key: Function | None = None
    headers: Function | None = None
    partitioner: Function | None = None
    timestamp_ms: Function | None = None


class OutgoingMessages(NamedTuple):
    """The parts of messages, by record of a batch."""

    topics: Sequence[str]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[MessageHeaders | None]
    partitions: Sequence[int | None]
    timestamps_ms: Sequence[int]


class KafkaMessageWriter:
    """Encodes the records of one sink. `partitions_of` returns the number of partitions of a topic, or raises
    TaskError."""

    def __init__(
        self,
        config: OperatorConfig,
        parameters: KafkaSinkParameters,
        functions: SinkFunctions,
        record_type: RecordType,
        partitions_of: Callable[[str], int],
    ) -> None:
        self._config = config
        self._parameters = parameters
        self._functions = functions
        self._ask_partitions = partitions_of
        self._partitions: dict[str, int] = {}
        self._writers: dict[tuple[str, MessagePart], ValueWriter] = {}
        parts = key_and_value_types(record_type) if parameters.takes_kafka_records else None
        if parameters.takes_kafka_records and parts is None:
            fields = dict(record_type.columns())
            parts = fields["key"], fields["value"]
        self._value_type = record_type if parts is None else without_none(parts[1])
        self._key_type = without_none(parameters.record_type_of_keys)

    def open_topic(self, topic: str) -> None:
        """Creates what encodes messages of a topic. Raises TaskError if there is no such topic."""
        if topic in self._partitions:
            return
        self._partitions[topic] = self._ask_partitions(topic)
        self._writers[topic, MessagePart.VALUE] = create_writer(
            self._parameters.format, self._value_type, topic
        )
        if self._parameters.key_format is not None:
            self._writers[topic, MessagePart.KEY] = create_writer(
                self._parameters.key_format, self._key_type, topic, MessagePart.KEY
            )

    @property
    def is_simple(self) -> bool:
        """Whether a message has only a key and a value, and all go to one topic: `write_simple` is faster then."""
        of = self._functions
        return not self._parameters.takes_kafka_records and not (
            of.topic or of.headers or of.partitioner or of.timestamp_ms or self._parameters.key_format
        )

    def write_simple(self, batch: Batch) -> tuple[Sequence[bytes | None], Sequence[bytes]]:
        """Returns keys and values of the records, in order. Raises like `write`."""
        assert self._parameters.topic is not None
        key = self._functions.key
        values = self._plain_values(batch, self._parameters.topic)
        return [None] * len(batch) if key is None else self._called(key, batch, _as_key), values

    def write(self, batch: Batch) -> OutgoingMessages:
        """Returns the messages of the records, in order. Raises RecordRejected, UserCodeError, TaskError."""
        unwraps, of = self._parameters.takes_kafka_records, self._functions
        topics = self._topics(batch)
        records: Sequence[Any] = batch.values if unwraps else ()
        keys = self._keys(batch, topics)
        if unwraps:
            values = self._encoded(MessagePart.VALUE, topics, batch, [record.value for record in records])
        elif self._is_one(topics):
            values = self._plain_values(batch, topics[0])
        else:
            values = self._encoded(MessagePart.VALUE, topics, batch, batch.values, has_none=False)
        headers: Sequence[MessageHeaders | None] = [None] * len(batch)
        if of.headers is not None:
            headers = self._called(of.headers, batch, _as_headers)
        elif unwraps:
            headers = [record.headers or None for record in records]
        timestamps: Sequence[int] = batch.timestamps
        if of.timestamp_ms is not None:
            timestamps = self._called(of.timestamp_ms, batch, _as_timestamp)
        elif unwraps:
            timestamps = [
                time if record.timestamp_ms < 0 else record.timestamp_ms
                for record, time in zip(records, timestamps, strict=True)
            ]
        return OutgoingMessages(topics, keys, values, headers, self._placed(batch, topics), timestamps)

    def _topics(self, batch: Batch) -> Sequence[str]:
        if self._functions.topic is None:
            assert self._parameters.topic is not None
            return [self._parameters.topic] * len(batch)
        topics = self._called(self._functions.topic, batch, _as_topic)
        for topic in set(topics):
            self.open_topic(topic)
        return topics

    def _keys(self, batch: Batch, topics: Sequence[str]) -> Sequence[bytes | None]:
        of = self._functions
        if of.key is None and not self._parameters.takes_kafka_records:
            return [None] * len(batch)
        if self._parameters.key_format is None:
            return self._called(of.key or _own_key, batch, _as_key)
        keys = self._called(of.key or _own_key, batch, _same)
        return self._encoded(MessagePart.KEY, topics, batch, keys)

    def _placed(self, batch: Batch, topics: Sequence[str]) -> Sequence[int | None]:
        partitioner, counts = self._functions.partitioner, self._partitions
        if partitioner is None:
            return [None] * len(batch)
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            return [
                _as_partition(partitioner(record, counts[topic]), counts[topic])
                for record, topic in zip(records, topics, strict=True)
            ]

    def _called(self, function: Function, batch: Batch, convert: Function) -> list[Any]:
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            return [convert(result) for result in map(function, records)]

    def _is_one(self, topics: Sequence[str]) -> bool:
        return self._functions.topic is None or len(set(topics)) == 1

    def _plain_values(self, batch: Batch, topic: str) -> Sequence[bytes]:
        """Encodes records as they are, as columns if they are columns."""
        writer = self._writers[topic, MessagePart.VALUE]
        try:
            if not batch.is_columnar and is_kafka_record(batch.values[0]):
                raise TypeError(
                    "it is a KafkaRecord, and the step before does not declare it: output_type=KafkaRecord[K, V]"
                )
            return writer.write(batch)
        except TaskError:
            raise
        except Exception as error:
            for index in range(len(batch)):
                one = batch.slice(index, index + 1)
                try:
                    writer.write(one)
                except Exception as own:
                    raise self._refusal(topic, MessagePart.VALUE, index, one.values[0], own) from own
            raise self._refusal(topic, MessagePart.VALUE, None, None, error) from error

    def _encoded(
        self,
        part: MessagePart,
        topics: Sequence[str],
        batch: Batch,
        parts: Sequence[Any],
        *,
        has_none: bool = True,
    ) -> Sequence[bytes | None]:
        """Encodes keys or values topic by topic; None stays None."""
        result: list[bytes | None] = [None] * len(parts)
        indexes: dict[str, list[int]] = {}
        for index, (topic, value) in enumerate(zip(topics, parts, strict=True)):
            if value is not None or not has_none:
                indexes.setdefault(topic, []).append(index)
        timestamps = batch.timestamps
        for topic, own in indexes.items():
            writer = self._writers[topic, part]
            try:
                encoded = writer.write(Batch([timestamps[i] for i in own], [parts[i] for i in own]))
            except TaskError:
                raise
            except Exception as error:
                raise self._refusal_among(topic, part, own, parts, error) from error
            for index, data in zip(own, encoded, strict=True):
                result[index] = data
        return result

    def _refusal_among(
        self, topic: str, part: MessagePart, indexes: Sequence[int], parts: Sequence[Any], error: Exception
    ) -> RecordRejected:
        writer = self._writers[topic, part]
        for index in indexes:
            try:
                writer.write(Batch([0], [parts[index]]))
            except Exception as own:
                return self._refusal(topic, part, index, parts[index], own)
        return self._refusal(topic, part, None, None, error)

    def _refusal(
        self, topic: str, part: MessagePart, index: int | None, value: Any, error: Exception
    ) -> RecordRejected:
        """Returns the error that names the record."""
        is_key = part is MessagePart.KEY
        shown = "a record" if index is None else f"the {'key' if is_key else 'record'} {value!r:.200}"
        of = self._parameters.key_format if is_key else self._parameters.format
        config = self._config
        at = f" ({config.location})" if config.location else ""
        refusal = RecordRejected(
            f"operator {config.name!r}{at} cannot write {shown} to {topic} as {of.kind if of else 'bytes'}:"
            f" {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        )
        refusal.index = index
        return refusal


def _same(value: Any) -> Any:
    return value


def _own_key(record: Any) -> Any:
    return record.key


def _as_topic(topic: Any) -> str:
    return _as_text(topic, "the topic")


def _as_key(key: Any) -> bytes | None:
    return _as_bytes(key, "the key")


def _as_headers(headers: Any) -> MessageHeaders | None:
    items = headers.items() if isinstance(headers, Mapping) else headers
    if not items:
        return None
    return [(_as_text(name, "the name of a header"), _as_bytes(value, "a header")) for name, value in items]


def _as_text(value: Any, part: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{part} of a Kafka message is str, not {type(value).__name__}")
    return value


def _as_bytes(value: Any, part: str) -> bytes | None:
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case _:
            raise TypeError(f"{part} of a Kafka message is bytes, str or None, not {type(value).__name__}")


def _as_timestamp(timestamp: Any) -> int:
    if type(timestamp) is not int:
        raise TypeError(
            f"the timestamp of a Kafka message is int, in milliseconds, not {type(timestamp).__name__}"
        )
    return timestamp


def _as_partition(partition: Any, count: int) -> int:
    if type(partition) is not int or not 0 <= partition < count:
        raise ValueError(f"the partitioner returned {partition!r}, not a partition from 0 to {count - 1}")
    return partition
