"""The Structured Streaming queries of a deployment: Kafka -> mapInArrow -> StreamTasks.

A query reads channels, whose messages are buffers of many records, or the topics of a Kafka source, with a record in
each message. It runs in one of these modes:

- real-time: each message leaves Spark when it arrives.
- coalesced, for the topics of a source: real-time with a short wait before each fetch; messages leave Spark when an
  Arrow batch is full. The last ones before a pause stay in Spark, so the mode must end then (catch_up.py).
- micro-batch: the same query with another trigger.
- bulk, for the topics of a source: micro-batches whose rows leave Spark in large Arrow batches; several times as fast,
  with a latency of a second (catch_up.py).

Spark's own checkpoint directory is temporary, new for each query: progress is stored in Kafka.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ....infra.kafka_connection import KafkaConnection
from ..common.failures import truncate
from .arrow_function import map_in_arrow
from .message_condition import DROPPED, DROPPED_PLACE, PARSED
from .message_place import NO_MESSAGE, PLACE, SQL
from .partition_forwarder import PartitionForwarder
from .record_forwarder import RecordForwardingPlan
from .session import REAL_TIME_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Begin = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> the first offset."""


class QueryMode(Enum):
    """The mode of a query."""

    REAL_TIME = "real-time"
    COALESCED = "coalesced real-time"
    MICRO_BATCH = "micro-batch"
    BULK = "bulk"

    @property
    def is_continuous(self) -> bool:
        """Whether the tasks of a query run all the time."""
        return self in (QueryMode.REAL_TIME, QueryMode.COALESCED)


# The interval of Spark's checkpoints, not a latency.
_REAL_TIME_BATCH: Final = "1 hour"

SECRETS_FILE: Final = "kafka.properties"
"""Beside the checkpoint directories of queries: the passwords and keys of Kafka's client, for the owner only. Each
start of a query writes the present ones into it."""
BULK_OPTIONS: Final[Mapping[str, str]] = {
    # A batch costs a tenth of a second besides its records.
    "maxOffsetsPerTrigger": "2000000",
    # Between two polls the source requests its position each time.
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
}

COALESCED_OPTIONS: Final[Mapping[str, str]] = {
    # A fetch waits for so much, but at most 5 ms.
    "kafka.fetch.min.bytes": "65536",
    "kafka.fetch.max.wait.ms": "5",
}
_OPTIONS: Final[Mapping[QueryMode, Mapping[str, str]]] = {
    QueryMode.BULK: BULK_OPTIONS,
    QueryMode.COALESCED: COALESCED_OPTIONS,
}


class RunningQuery:
    """A started query. Methods block; any thread may call them."""

    def __init__(self, query: StreamingQuery, checkpoint: Path) -> None:
        self._query = query
        self._checkpoint = checkpoint

    def wait(self) -> str | None:
        """Waits for the query's end; returns the reason of its failure, or None if it was stopped."""
        try:
            self._query.awaitTermination()
        except Exception as error:
            return _first_line(error)
        return None

    def stop(self) -> None:
        """Stops the query; None of its tasks runs afterwards."""
        try:
            self._query.stop()
        finally:
            shutil.rmtree(self._checkpoint, ignore_errors=True)


def start_query(
    spark: SparkSession,
    kafka: KafkaConnection,
    begin: Begin,
    hand_over: PartitionForwarder,
    pace: QueryMode,
    checkpoint: Path,
    name: str | None = None,
) -> RunningQuery:
    """Starts reading every partition in `begin` from its offset. Returns before the tasks run. `name`: in Spark's user
    interface; no two queries have the same.

    `spark` is a session of session.py; for BULK, its bulk session. Raises Spark's errors if the query cannot be
    planned.
    """
    _prepare(checkpoint)
    messages = (
        spark.readStream.format("kafka")
        .options(**_source_options(kafka, begin, hand_over.plan, pace, _secrets_file(kafka, checkpoint)))
        .load()
    )
    for columns in _selections(hand_over.plan, pace):
        messages = messages.selectExpr(*columns)
    writer = (
        map_in_arrow(messages, hand_over)
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
    )
    if name is not None:
        writer = writer.queryName(name)
    if pace.is_continuous:
        # PySpark's overloads do not declare it.
        writer = writer.trigger(realTime=_REAL_TIME_BATCH)  # type: ignore[call-overload]
    else:
        writer = writer.trigger(processingTime="0 seconds").outputMode("append")
    return RunningQuery(writer.start(), checkpoint)


def _selections(plan: Any, pace: QueryMode) -> list[list[str]]:
    """Returns the columns to select, one selection after the other.

    Spark's Arrow writer emits a batch of N rows when it sees the row after it. So this adds N empty rows to each row:
    wherever in a batch a row is, the batch is full and a row follows. One empty row and batches of one row would do,
    but cost twice as many batches, which are most of the cost of a message in Python (docs/notes/latency.md). In
    coalesced mode further messages fill the batch. A dropped message has one row: up to N of them wait for the next
    message.
    """
    columns = [f"{SQL} AS {PLACE}" if name == PLACE else name for name in plan.columns]
    if not isinstance(plan, RecordForwardingPlan):
        empty = ", X''" * REAL_TIME_ROWS
        return [[*columns[:-1], f"explode(array(value{empty})) AS value"]]
    condition = plan.condition
    if pace is not QueryMode.REAL_TIME and condition is None:
        return [columns]
    # The place marks the empty rows: a message may have an empty value, or none, but no place is negative.
    empty = f", struct({NO_MESSAGE}L AS {PLACE}, CAST(NULL AS BINARY) AS value)" * REAL_TIME_ROWS
    if condition is None:
        rows = f"inline(array(struct({SQL} AS {PLACE}, value){empty}))"
        return [[*columns[:-2], f"{rows} AS ({PLACE}, value)"]]
    others = list(plan.columns[:-2])
    parsed = [] if condition.parsed is None else [f"{condition.parsed} AS {PARSED}"]
    selections = [[*columns, *parsed], [*plan.columns, f"{condition.drops} AS {DROPPED}"]]
    if pace is not QueryMode.REAL_TIME:
        place = f"if({DROPPED}, {DROPPED_PLACE}, {PLACE}) AS {PLACE}"
        return [*selections, [*others, place, f"if({DROPPED}, CAST(NULL AS BINARY), value) AS value"]]
    dropped = f"array(struct({DROPPED_PLACE} AS {PLACE}, CAST(NULL AS BINARY) AS value))"
    kept = f"array(struct({PLACE}, value){empty})"
    return [*selections, [*others, f"inline(if({DROPPED}, {dropped}, {kept})) AS ({PLACE}, value)"]]


def _prepare(checkpoint: Path) -> None:
    """Prepares Spark's checkpoint directory: otherwise Hadoop forks a chmod for each part of it."""
    for name in ("offsets", "commits", "sources/0"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))


def _secrets_file(kafka: KafkaConnection, checkpoint: Path) -> Path:
    """Returns a file for each connection; all its queries have the present secrets there."""
    name = hashlib.sha256(msgspec.json.encode(kafka, order="sorted")).hexdigest()[:16]
    return checkpoint.parent / f"{SECRETS_FILE}-{name}"


def _source_options(
    kafka: KafkaConnection, begin: Begin, plan: Any, pace: QueryMode, secrets_file: Path
) -> dict[str, str]:
    has_headers = isinstance(plan, RecordForwardingPlan) and plan.key_format is not None
    return {
        "includeHeaders": str(has_headers).lower(),
        **_OPTIONS.get(pace, {}),
        **kafka.to_spark(secrets_file),
        "kafka.isolation.level": "read_committed",
        # A query may outlive its channels by a moment, and must not create them again.
        "kafka.allow.auto.create.topics": "false",
        "assign": json.dumps({topic: sorted(partitions) for topic, partitions in begin.items()}),
        "startingOffsets": json.dumps(
            {
                topic: {str(partition): offset for partition, offset in offsets.items()}
                for topic, offsets in begin.items()
            }
        ),
    }


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return truncate(f"Spark's query failed: {text[0] if text else type(error).__name__}")
