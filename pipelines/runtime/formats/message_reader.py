"""Decodes whole messages into records: the value alone, or a KafkaRecord with key, headers and place.

The rows of a batch are messages of one partition, with the columns `timestamp` and `value`; for KafkaRecords also
`offset`, `key` and `headers`, as Spark's Kafka source names them. Without the column `timestamp` nobody sees
timestamps; they are 0.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from ...functions.kafka_record import KafkaRecord, takes_none, without_none
from ...types import RecordType, RecordTypeError
from ..common.failures import TaskError, one_line
from ..records.batch import Batch
from .factory import create_reader
from .format import MessagePart, UnreadableValue, ValueFormat, ValueReader, find_unreadable


class MessageReader(Protocol):
    """Decodes messages of a partition."""

    def read(
        self, messages: pa.RecordBatch, topic: str, partition: int
    ) -> tuple[Batch, list[UnreadableValue]]:
        """Returns the records of the readable messages, and the unreadable messages. Raises TaskError if none can be
        read now."""


class ValueMessageReader:
    """Reads values. No value is null."""

    def __init__(self, value_format: ValueFormat, record_type: RecordType, cache: Path | None = None) -> None:
        self._reader = create_reader(value_format, record_type, cache)

    def read(
        self, messages: pa.RecordBatch, topic: str, partition: int
    ) -> tuple[Batch, list[UnreadableValue]]:
        """See MessageReader."""
        del topic, partition
        reader, values = self._reader, messages.column("value")
        timestamps = _timestamps(messages)
        if len(values) == 1:  # as in real-time mode: the general way costs a microsecond more
            with suppress(ValueError, TypeError):
                return reader.read(timestamps, values), []
        return find_unreadable(
            lambda start, stop: reader.read(timestamps[start:stop], values[start:stop]), 0, len(values)
        )


class KafkaRecordReader:
    """Reads KafkaRecords. A null is None if the type of the key or value takes it, else the message is unreadable."""

    def __init__(
        self,
        key_format: ValueFormat,
        value_format: ValueFormat,
        types: tuple[RecordType, RecordType],
        cache: Path | None = None,
    ) -> None:
        keys, values = types
        self._key = _PartReader(MessagePart.KEY, key_format, keys, cache)
        self._value = _PartReader(MessagePart.VALUE, value_format, values, cache)

    def read(
        self, messages: pa.RecordBatch, topic: str, partition: int
    ) -> tuple[Batch, list[UnreadableValue]]:
        """See MessageReader."""
        timestamps = milliseconds(messages.column("timestamp"))

        def read(start: int, stop: int) -> Batch:
            rows = messages.slice(start, stop - start)
            times = timestamps[start:stop]
            own = times.to_pylist()
            columns = (
                self._key.read(times, rows.column("key")),
                self._value.read(times, rows.column("value")),
                map(_headers, rows.column("headers").to_pylist()),
                rows.column("offset").to_pylist(),
                own,
            )
            return Batch(
                own,
                [
                    KafkaRecord(key, value, headers, topic, partition, offset, timestamp)
                    for key, value, headers, offset, timestamp in zip(*columns, strict=True)
                ],
            )

        return find_unreadable(read, 0, messages.num_rows)


def create_message_reader(
    value_format: ValueFormat,
    key_format: ValueFormat | None,
    record_type: RecordType,
    cache: Path | None = None,
) -> MessageReader:
    """Creates the reader of a Kafka source; with a `key_format`, records are KafkaRecords. Raises TaskError."""
    if key_format is None:
        return ValueMessageReader(value_format, record_type, cache)
    fields = dict(record_type.columns())
    return KafkaRecordReader(key_format, value_format, (fields["key"], fields["value"]), cache)


class _PartReader:
    """Reads the keys or the values of messages."""

    def __init__(
        self, part: MessagePart, of: ValueFormat, record_type: RecordType, cache: Path | None
    ) -> None:
        self._part = part
        self._type = record_type
        self._reader: ValueReader = create_reader(of, without_none(record_type), cache)

    def read(self, timestamps: pa.Int64Array, values: pa.Array) -> list[Any]:
        try:
            if not values.null_count:
                return self._reader.read(timestamps, values).values
            if not takes_none(self._type):
                raise RecordTypeError(
                    f"there is none, and its type {self._type} does not take None: declare {self._type} | None"
                )
            there = values.is_valid()
            read = iter(self._reader.read(timestamps.filter(there), values.filter(there)).values)
            return [next(read) if is_there else None for is_there in there.to_pylist()]
        except TaskError:
            raise
        except Exception as error:
            raise ValueError(f"its {self._part}: {one_line(error)}") from error


def _timestamps(messages: pa.RecordBatch) -> pa.Int64Array:
    if "timestamp" in messages.schema.names:
        return milliseconds(messages.column("timestamp"))
    return pa.repeat(pa.scalar(0, pa.int64()), messages.num_rows)


def milliseconds(timestamps: pa.TimestampArray) -> pa.Int64Array:
    """Converts Spark's timestamps, which are in microseconds."""
    import pyarrow.compute as pc

    if len(timestamps) == 1:  # takes a fourth of the time; called for each message in real-time mode
        return pa.array([timestamps[0].value // 1000], pa.int64())
    return pc.divide(timestamps.cast(pa.int64()), 1000)


def _headers(found: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    return [(header["key"], header["value"]) for header in found or ()]
