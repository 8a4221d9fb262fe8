"""Forwards the messages of a Kafka source: decoded, through the stateless prefix, as columns.

The rows of a batch are messages in the order of their partition. In real-time mode a batch has at most one, among empty
rows with a negative place (query.py explains why). The result of a batch is one frame with the offsets that it covers,
so the StreamTask's position is exact, however many records the prefix emits per message.

A slow prefix gets the messages of a batch in pieces (work.py), unless it has vectorised functions: these may cost as
much for a small batch as for a large one.

In bulk mode, results that the prefix aggregates at its end are aggregated again over several batches, to shuffle less.

Spark may have dropped messages (message_condition.py): their rows have only a place. In real time those between two
others are one frame without records, which a StreamTask may have taken in part from another reader.

A message that cannot be read fails the attempt, or is dropped and counted; so is a tombstone, a message without a
value. Timestamps are the messages' own (milliseconds), unless the prefix assigns others: then the greatest one of each
batch goes along, and the StreamTask makes the watermarks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...graph.operators import OperatorKind
from ...types import RecordType
from ..common import task_logging
from ..common.failures import RecordError, TaskError, describe_failure, format_offsets
from ..common.protocol import RECORDS, SKIPPED, SKIPPED_COUNTS, TIMED, TIMED_RECORDS, SkippedRecords
from ..formats import MessageReader, UnreadableValue, ValueFormat, create_message_reader
from ..operators.chain import StatelessPipeline
from ..operators.factory import build_prefix
from ..operators.kafka_source_parameters import OnBadRecord, OnTombstone
from ..operators.watermarks import assigns_timestamps
from ..records.batch import EMPTY, Batch, concatenate
from ..records.buffers import BufferCodec
from .message_condition import DROPPED, MessageCondition, mark_dropped
from .message_place import (
    PLACE,
    check_partitions,
    offset_at,
    partition_at,
    to_offsets,
    to_partitions,
    to_place,
)
from .partition_forwarder import (
    DataReceivers,
    PartitionPosition,
    StatelessPrefix,
    SubtaskTarget,
    Targets,
)
from .session import REAL_TIME_ROWS
from .work import WorkPace

if TYPE_CHECKING:
    import pyarrow as pa

TIMESTAMP: Final = "timestamp"
RECORD_COLUMNS: Final = ("key", "headers")
"""Further columns, if records are KafkaRecords."""
TOPIC: Final = "topic"
MAX_PENDING_MESSAGES: Final = 500_000
SECONDS_PER_MESSAGE: Final = 0.001
"""How long a message is assumed to take before the first ones are processed."""
MAX_PENDING_S: Final = 0.5
"""Held results are forwarded when they stand for this many messages, or after this time."""


class RecordForwardingPlan(msgspec.Struct, frozen=True):
    """The partitions of a source, and the prefix to apply to their messages."""

    targets: Targets
    format: ValueFormat
    record_type: Any
    """The record type of the source, as JSON."""
    on_bad_record: OnBadRecord
    on_tombstone: OnTombstone
    prefix: StatelessPrefix | None = None
    cache: str | None = None
    """A directory that workers share."""
    gathers: bool = False
    """Whether results that are aggregated here may be held, to be aggregated with later ones."""
    key_format: ValueFormat | None = None
    """For keys, if records are KafkaRecords."""
    condition: MessageCondition | None = None
    """By which Spark drops messages of its query."""
    delivers_one_by_one: bool = False
    """Whether each message is forwarded alone, as in real time. Messages that Spark has dropped may be together."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows: only what is needed, because a column costs a part of a message's processing
        time."""
        topic = (TOPIC,) if len(self.targets) > 1 else ()
        timestamp = (TIMESTAMP,) if self.reads_timestamps else ()
        return (
            *topic,
            *(() if self.key_format is None else RECORD_COLUMNS),
            *timestamp,
            PLACE,
            "value",
        )

    @property
    def reads_timestamps(self) -> bool:
        """Whether anything may see the messages' timestamps: records that contain them, or operators, unless the
        prefix assigns others."""
        operators = () if self.prefix is None else self.prefix.operators
        return self.key_format is not None or not any(map(assigns_timestamps, operators))

    def worker(self, connections: DataReceivers) -> RecordForwardingWorker:
        """Creates the worker of one run."""
        return RecordForwardingWorker(self, connections)


class RecordForwardingWorker:
    """Decodes messages and applies the prefix."""

    def __init__(self, plan: RecordForwardingPlan, connections: DataReceivers) -> None:
        self._plan = plan
        self._connections = connections
        self._prefix = StatelessPipeline(())
        self._combine: StatelessPipeline | None = None
        self._only_topic = next(iter(plan.targets)) if len(plan.targets) == 1 else None
        self._reader: MessageReader | None = None
        self._codec: BufferCodec | None = None
        self._pending: PendingRecords | None = None
        self._pace = WorkPace(SECONDS_PER_MESSAGE)
        operators = () if plan.prefix is None else plan.prefix.operators
        self._takes_whole_batches = any(each.kind == OperatorKind.MAP_BATCHES for each in operators)

    def open(self) -> None:
        """Loads and opens format and prefix. Raises TaskError, UserCodeError, ValueError."""
        plan, prefix = self._plan, self._plan.prefix
        for topic, targets in plan.targets.items():
            check_partitions(topic, targets)
        record_type = RecordType.from_json(plan.record_type)
        self._reader = create_message_reader(
            plan.format, plan.key_format, record_type, None if plan.cache is None else Path(plan.cache)
        )
        if prefix is None:
            self._codec = BufferCodec(record_type)
            return
        output_type = RecordType.from_json(prefix.output_type)
        self._prefix = build_prefix(prefix.operators, record_type)
        self._prefix.open()
        self._codec = BufferCodec(output_type)
        if plan.gathers and prefix.operators[-1].kind == OperatorKind.PRE_AGGREGATE:
            self._combine = build_prefix(prefix.operators[-1:], output_type)
            self._combine.open()

    def take(self, batch: pa.RecordBatch) -> None:
        """Forwards the results of the messages in the rows."""
        if self._plan.condition is not None:
            batch = mark_dropped(batch)
        for part in _by_partition(batch):
            if self._plan.condition is not None and self._plan.delivers_one_by_one:
                for run in _apart_from_dropped(part):
                    self._take_partition(run)
            else:
                self._take_partition(part)

    def finish(self) -> None:
        """Forwards the held results."""
        kept, self._pending = self._pending, None
        if kept is not None:
            self._send(kept)

    def close(self) -> None:
        """Closes the prefix. Raises UserCodeError."""
        try:
            self._prefix.close()
        finally:
            if self._combine is not None:
                self._combine.close()

    def _take_partition(self, rows: pa.RecordBatch) -> None:
        topic = self._only_topic or rows.column(TOPIC)[0].as_py()
        partition = partition_at(rows.column(PLACE)[0].as_py())
        target = self._plan.targets[topic][partition]
        while self._connections.leads(target.socket_path):
            count = self._next_piece(rows, target)
            if count == rows.num_rows:
                self._take_piece(rows, topic, partition, target)
                return
            self._take_piece(rows.slice(0, count), topic, partition, target)
            rows = rows.slice(count)

    def _next_piece(self, rows: pa.RecordBatch, target: SubtaskTarget) -> int:
        """Returns how many of the messages to process at once."""
        count: int = rows.num_rows
        if count > 1 and _offset(rows, 0) < target.one_by_one_to:
            return 1
        return count if self._takes_whole_batches else min(count, self._pace.piece)

    def _take_piece(self, rows: pa.RecordBatch, topic: str, partition: int, target: SubtaskTarget) -> None:
        task_logging.serve(target.subtask_index, target.attempt_number)
        rows, place = _within(rows, partition, target)
        if self._pace.is_long(rows.num_rows):
            self._connections.announce(target.socket_path, place)
        began = time.perf_counter()
        try:
            batch, skipped = self._records(rows, topic, partition)
            self._pace.note(rows.num_rows, time.perf_counter() - began)
        except Exception as error:
            self.finish()
            self._connections.fail(target.socket_path, place, describe_failure(error))
            return
        greatest = self._prefix.greatest_timestamp
        came_to = PendingRecords(
            target.socket_path, place, rows.num_rows, skipped, [batch], time.monotonic(), greatest
        )
        if self._combine is None:
            self._send(came_to)
        else:
            self._add_pending(came_to)

    def _add_pending(self, more: PendingRecords) -> None:
        kept = self._pending
        if kept is not None and kept.path == more.path and kept.place.continues_as(more.place):
            more = kept.and_then(more)
        else:
            self.finish()
        self._pending = more
        if more.messages >= MAX_PENDING_MESSAGES or time.monotonic() - more.since >= MAX_PENDING_S:
            self.finish()

    def _send(self, kept: PendingRecords) -> None:
        assert self._codec is not None
        try:
            batch = concatenate(kept.batches)
            if self._combine is not None and len(kept.batches) > 1 and len(batch):
                batch = self._combine.process(batch)
            content = self._codec.payload(batch)
        except Exception as error:
            self._connections.fail(kept.path, kept.place, describe_failure(error))
            return
        if kept.greatest is not None:
            head = TIMED.pack(*kept.skipped, kept.greatest)
            self._connections.send(kept.path, TIMED_RECORDS, kept.place, head, content)
        elif any(kept.skipped):
            self._connections.send(
                kept.path, SKIPPED_COUNTS, kept.place, SKIPPED.pack(*kept.skipped), content
            )
        else:
            self._connections.send(kept.path, RECORDS, kept.place, content)

    def _records(self, rows: pa.RecordBatch, topic: str, partition: int) -> tuple[Batch, SkippedRecords]:
        """Returns the results of the messages, and how many messages were skipped."""
        assert self._reader is not None
        if self._plan.condition is not None:
            rows = _without_dropped(rows)
            if not rows.num_rows:
                return self._prefix.process(EMPTY), SkippedRecords()
        reads_tombstones = self._plan.on_tombstone is OnTombstone.READ
        tombstones = 0 if reads_tombstones else rows.column("value").null_count
        if tombstones:
            valid = rows.column("value").is_valid()
            if self._plan.on_tombstone is OnTombstone.FAIL:
                raise _tombstone(topic, partition, _offset(rows, valid.index(False).as_py()))
            rows = rows.filter(valid)
        if self._plan.key_format is not None:
            rows = rows.append_column("offset", to_offsets(rows.column(PLACE)))
        batch, bad = self._reader.read(rows, topic, partition)
        if bad and self._plan.on_bad_record is OnBadRecord.FAIL:
            raise _refusal(topic, partition, rows, bad[0])
        with self._place_named(rows, topic, partition, {unreadable.index for unreadable in bad}):
            batch = self._prefix.process(batch)
        return batch, SkippedRecords(len(bad), tombstones)

    @contextmanager
    def _place_named(self, rows: pa.RecordBatch, topic: str, partition: int, bad: set[int]) -> Iterator[None]:
        """Adds the location to an error of the prefix: its message, or the offsets of the batch."""
        try:
            yield
        except RecordError as error:
            places = [place for i, place in enumerate(rows.column(PLACE).to_pylist()) if i not in bad]
            first, last = places[0], places[-1]
            if error.index is not None:
                first = last = places[error.index]
            error.place = format_offsets(topic, partition, offset_at(first), offset_at(last))
            raise


class PendingRecords(msgspec.Struct, frozen=True):
    """Results of messages, and their receiver."""

    path: str
    place: PartitionPosition
    messages: int
    skipped: SkippedRecords
    batches: list[Batch]
    since: float
    greatest: int | None = None
    """The greatest timestamp that the prefix has assigned; None if it has assigned none."""

    def and_then(self, more: PendingRecords) -> PendingRecords:
        """Returns these records followed by more."""
        return PendingRecords(
            self.path,
            msgspec.structs.replace(self.place, following=more.place.following),
            self.messages + more.messages,
            SkippedRecords(
                self.skipped.bad + more.skipped.bad, self.skipped.tombstones + more.skipped.tombstones
            ),
            [*self.batches, *more.batches],
            self.since,
            max((of for of in (self.greatest, more.greatest) if of is not None), default=None),
        )


def _by_partition(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Splits rows by partition, and removes the empty rows that are no messages. Nearly always all belong to one
    partition."""
    if batch.num_rows <= REAL_TIME_ROWS:  # in real-time mode every microsecond counts
        found = [row for row, place in enumerate(batch.column(PLACE).to_pylist()) if place >= 0]
        if len(found) <= 1:
            return [batch.slice(row, 1) for row in found]
    import pyarrow.compute as pc

    if pc.min(batch.column(PLACE)).as_py() < 0:
        batch = batch.filter(pc.greater_equal(batch.column(PLACE), 0))
    parts = _by_values(batch, batch.column(TOPIC)) if TOPIC in batch.schema.names else [batch]
    return [piece for part in parts for piece in _by_place(part)]


def _by_place(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    import pyarrow.compute as pc

    places = batch.column(PLACE)
    ends = pc.min_max(places)
    if partition_at(ends["min"].as_py()) == partition_at(ends["max"].as_py()):
        return [batch]
    return _by_values(batch, to_partitions(places))


def _by_values(batch: pa.RecordBatch, column: pa.Array) -> list[pa.RecordBatch]:
    import pyarrow.compute as pc

    values = column.unique()
    return [batch] if len(values) == 1 else [batch.filter(pc.equal(column, value)) for value in values]


def _within(
    rows: pa.RecordBatch, partition: int, target: SubtaskTarget
) -> tuple[pa.RecordBatch, PartitionPosition]:
    """Returns the rows before the partition's end, and their offsets."""
    first, following = _offset(rows, 0), _offset(rows, -1) + 1
    if target.end is not None and following > target.end:
        import pyarrow.compute as pc

        rows = rows.filter(pc.less(rows.column(PLACE), to_place(partition, target.end)))
        first, following = min(first, target.end), target.end
    return rows, PartitionPosition(target.input_index, partition, first, following)


def _apart_from_dropped(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields each message alone, and those together that were dropped between two of them."""
    first = 0
    for row, dropped in enumerate([*rows.column(DROPPED).to_pylist(), False]):
        if not dropped:
            if first < row:
                yield rows.slice(first, row - first)
            if row < rows.num_rows:
                yield rows.slice(row, 1)
            first = row + 1


def _without_dropped(rows: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow.compute as pc

    dropped = rows.column(DROPPED)
    return rows.filter(pc.invert(dropped)) if dropped.true_count else rows


def _offset(rows: pa.RecordBatch, index: int) -> int:
    return offset_at(rows.column(PLACE)[index].as_py())


def _tombstone(topic: str, partition: int, offset: int) -> TaskError:
    return TaskError(
        f"the message at offset {offset} of {topic}, partition {partition}, has no value (a tombstone): to skip such"
        ' messages, give the source on_tombstone="skip"'
    )


def _refusal(topic: str, partition: int, rows: pa.RecordBatch, bad: UnreadableValue) -> TaskError:
    offset = _offset(rows, bad.index)
    return TaskError(
        f"the message at offset {offset} of {topic}, partition {partition}, cannot be read: {bad.why}; correct the"
        " source's format or type, or let it skip bad records"
    )
