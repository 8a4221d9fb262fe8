"""The one Structured Streaming query of a deployment: Kafka channels -> mapInArrow -> StreamTasks.

Real-time mode and micro-batch are the same query with another trigger. Spark's own checkpoint directory is
scratch, fresh for each query: progress lives in Kafka.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .failures import shortened
from .hand_over import COLUMNS, HandOver
from .settings import ExecutionMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Positions = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> the offset to begin at."""

# How often Spark checkpoints, not a latency.
_REAL_TIME_BATCH: Final = "1 hour"


class Query:
    """A started query. Methods block; any thread may call them."""

    def __init__(self, query: StreamingQuery, checkpoint: Path) -> None:
        self._query = query
        self._checkpoint = checkpoint

    def wait(self) -> str | None:
        """Waits for the query's end; why it failed, or None if it was stopped."""
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
    bootstrap_servers: str,
    begin: Positions,
    hand_over: HandOver,
    mode: ExecutionMode,
    checkpoint: Path,
) -> Query:
    """Starts reading every partition in `begin` from its offset. Returns before the tasks run.

    Raises what Spark raises where the query cannot be planned.
    """
    from pyspark.sql.types import IntegerType, StructField, StructType

    _prepare(checkpoint)
    rows = (
        spark.readStream.format("kafka")
        .options(**_source_options(bootstrap_servers, begin))
        .load()
        # Spark's Arrow writer looks for one more row before it lets a batch go: give it an empty one.
        .selectExpr(*COLUMNS[:-1], "explode(array(value, X'')) AS value")
        .mapInArrow(_as_function(hand_over), StructType([StructField("nothing", IntegerType())]))
    )
    writer = (
        rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).outputMode("update")
    )
    match mode:
        case ExecutionMode.REAL_TIME:
            # Not in the overloads that PySpark declares.
            writer = writer.trigger(realTime=_REAL_TIME_BATCH)  # type: ignore[call-overload]
        case ExecutionMode.MICRO_BATCH:
            writer = writer.trigger(processingTime="0 seconds").outputMode("append")
    return Query(writer.start(), checkpoint)


def _prepare(checkpoint: Path) -> None:
    """Spark's checkpoint directory before its first batch: Hadoop would fork a chmod for each part of it."""
    for name in ("offsets", "commits", "sources/0"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))


def _source_options(bootstrap_servers: str, begin: Positions) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        # A query may outlive its channels by a moment, and must not make them anew.
        "kafka.allow.auto.create.topics": "false",
        "assign": json.dumps({topic: sorted(partitions) for topic, partitions in begin.items()}),
        "startingOffsets": json.dumps(
            {
                topic: {str(partition): offset for partition, offset in each.items()}
                for topic, each in begin.items()
            }
        ),
    }


def _as_function(hand_over: HandOver) -> Any:
    """PySpark wants a function with a name, not any callable."""

    def hand_over_buffers(batches: Any) -> Any:
        return hand_over(batches)

    return hand_over_buffers


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return shortened(f"Spark's query failed: {text[0] if text else type(error).__name__}")
