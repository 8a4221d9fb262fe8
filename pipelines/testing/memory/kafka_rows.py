"""Messages as the rows that Spark's Kafka source gives to a worker."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...runtime.spark.message_place import to_place
from .kafka import Message

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def kafka_rows(
    messages: Sequence[Message], first: int = 0, partition: int = 0, topic: str = ""
) -> pa.RecordBatch:
    """Returns messages with consecutive offsets, with their keys and headers. Without headers, Spark has null.
    `topic`: for a column with its name."""
    count = len(messages)
    headers = [[{"key": k, "value": v} for k, v in message.headers] or None for message in messages]
    named = {"topic": pa.array([topic] * count, pa.string())} if topic else {}
    return pa.RecordBatch.from_pydict(
        {
            **named,
            "key": pa.array([message.key for message in messages], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "place": pa.array([to_place(partition, first + i) for i in range(count)], pa.int64()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([m.timestamp_ms * 1000 for m in messages], pa.timestamp("us", "UTC")),
            "value": pa.array([message.value for message in messages], pa.binary()),
        }
    )
