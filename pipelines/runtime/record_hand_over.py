"""Handing over the messages of a Kafka source: decoded, through the prefix, as columns.

The rows of a batch are messages in the order of their partition; in real-time mode there is one, and behind it an
empty row with a negative offset (query.py says why). What follows from them goes over in one frame, with the offsets
that it stands for: where the StreamTask goes on is exact, however many records the prefix makes of a message.

A message without a value (a tombstone) is no record. One that cannot be read fails the attempt, or is left out and
counted. Timestamps are the messages' own (milliseconds).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..types import RecordType
from .batch import Batch
from .buffers import BufferCodec
from .failures import TaskError, describe
from .formats import BadValue, Format, Reader, read_good, reader_of
from .hand_over import Connections, Place, Prefix, Target, Targets
from .kafka_source import OnBadRecord
from .operators.build import build_prefix
from .operators.chain import Line
from .protocol import RECORDS, SKIPPED, SKIPPING

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "value")
"""The columns of the rows that come in. A negative offset is no message."""


class RecordPlan(msgspec.Struct, frozen=True):
    """The partitions of a source, and what becomes of their messages on the way."""

    targets: Targets
    format: Format
    record_type: Any
    """Of the source, as JSON."""
    on_bad_record: OnBadRecord
    prefix: Prefix | None = None
    cache: str | None = None
    """A directory that workers share."""

    def worker(self, connections: Connections) -> RecordWorker:
        """One run."""
        return RecordWorker(self, connections)


class RecordWorker:
    """Messages decoded, with the prefix applied."""

    def __init__(self, plan: RecordPlan, connections: Connections) -> None:
        self._plan = plan
        self._connections = connections
        self._prefix = Line(())
        self._reader: Reader | None = None
        self._codec: BufferCodec | None = None

    def open(self) -> None:
        """Loads and opens format and prefix. Raises TaskError, UserCodeError, ValueError."""
        plan, prefix = self._plan, self._plan.prefix
        record_type = RecordType.from_json(plan.record_type)
        self._reader = reader_of(plan.format, record_type, None if plan.cache is None else Path(plan.cache))
        if prefix is None:
            self._codec = BufferCodec(record_type)
            return
        self._prefix = build_prefix(prefix.operators, record_type)
        self._prefix.open()
        self._codec = BufferCodec(RecordType.from_json(prefix.output_type))

    def take(self, batch: pa.RecordBatch) -> None:
        """Hands over what the messages in the rows come to."""
        for part in _by_partition(batch):
            self._take_partition(part)

    def close(self) -> None:
        """Closes the prefix. Raises UserCodeError."""
        self._prefix.close()

    def _take_partition(self, rows: pa.RecordBatch) -> None:
        topic, partition = rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py()
        target = self._plan.targets[topic][partition]
        if not self._connections.leads(target.socket_path):
            return
        rows, place = _within(rows, partition, target)
        try:
            content, skipped = self._records(rows, topic, partition)
        except Exception as error:
            self._connections.fail(target.socket_path, place, describe(error))
            return
        if skipped:
            self._connections.send(target.socket_path, SKIPPING, place, SKIPPED.pack(skipped), content)
        else:
            self._connections.send(target.socket_path, RECORDS, place, content)

    def _records(self, rows: pa.RecordBatch, topic: str, partition: int) -> tuple[bytes, int]:
        """What the StreamTask is to get, and how many messages are missing there."""
        assert self._reader is not None
        assert self._codec is not None
        if rows.column("value").null_count:
            rows = rows.filter(rows.column("value").is_valid())
        batch, bad = read_good(self._reader, _milliseconds(rows.column("timestamp")), rows.column("value"))
        if bad and self._plan.on_bad_record is OnBadRecord.FAIL:
            raise _refusal(topic, partition, rows, bad[0])
        made = self._transformed(batch)
        with self._prefix.typed():
            return self._codec.payload(made), len(bad)

    def _transformed(self, batch: Batch) -> Batch:
        return self._prefix.process(batch) if len(batch) else batch


def _by_partition(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Rows of one partition each, without those that are no message. Nearly always all are of one."""
    if batch.num_rows == 1:  # as always in real-time mode, where every microsecond counts
        return [batch] if batch.column("offset")[0].as_py() >= 0 else []
    import pyarrow.compute as pc

    batch = batch.filter(pc.greater_equal(batch.column("offset"), 0))
    topics, partitions = batch.column("topic").unique(), batch.column("partition").unique()
    if len(topics) == len(partitions) == 1:
        return [batch]
    found = [
        batch.filter(
            pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("partition"), partition))
        )
        for topic in topics
        for partition in partitions
    ]
    return [part for part in found if part.num_rows]


def _within(rows: pa.RecordBatch, partition: int, target: Target) -> tuple[pa.RecordBatch, Place]:
    """The rows before the partition's end, and the offsets that they stand for."""
    offsets = rows.column("offset")
    first, following = offsets[0].as_py(), offsets[-1].as_py() + 1
    if target.end is not None and following > target.end:
        import pyarrow.compute as pc

        rows = rows.filter(pc.less(offsets, target.end))
        first, following = min(first, target.end), target.end
    return rows, Place(target.input_index, partition, first, following)


def _milliseconds(timestamps: pa.TimestampArray) -> pa.Int64Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(timestamps) == 1:  # a fourth of the time, once for each message in real-time mode
        return pa.array([timestamps[0].value // 1000], pa.int64())
    return pc.divide(timestamps.cast(pa.int64()), 1000)


def _refusal(topic: str, partition: int, rows: pa.RecordBatch, bad: BadValue) -> TaskError:
    offset = rows.column("offset")[bad.index].as_py()
    return TaskError(
        f"the message at offset {offset} of {topic}, partition {partition}, cannot be read: {bad.why}; correct the"
        " source's format or type, or have it skip bad records"
    )
