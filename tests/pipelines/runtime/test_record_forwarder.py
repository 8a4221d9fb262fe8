"""The input of a StreamTask is the same for every division of the messages into batches."""

from __future__ import annotations

import contextlib
import json
import pickle
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.common.frames import FrameReader
from tailrace.pipelines.runtime.common.protocol import (
    FAILURE,
    FORWARDED,
    RECORDS,
    SKIPPED,
    SKIPPED_COUNTS,
    TIMED,
    TIMED_RECORDS,
    WORK_TIME,
    WORKED,
    WORKING,
    SkippedRecords,
)
from tailrace.pipelines.runtime.formats import ValueFormat
from tailrace.pipelines.runtime.formats.format import FormatKind
from tailrace.pipelines.runtime.operators.kafka_source_parameters import (
    KafkaSourceParameters,
    OnBadRecord,
    OnTombstone,
)
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import BufferCodec, BufferHeader
from tailrace.pipelines.runtime.spark.buffer_forwarder import BufferForwardingPlan
from tailrace.pipelines.runtime.spark.message_condition import MessageCondition
from tailrace.pipelines.runtime.spark.message_place import (
    NO_MESSAGE,
    check_partitions,
    offset_at,
    partition_at,
    to_offsets,
    to_partitions,
    to_place,
)
from tailrace.pipelines.runtime.spark.partition_forwarder import (
    StatelessPrefix,
    SubtaskConnections,
    SubtaskTarget,
)
from tailrace.pipelines.runtime.spark.record_forwarder import RecordForwardingPlan
from tailrace.pipelines.runtime.spark.session import REAL_TIME_ROWS
from tailrace.pipelines.runtime.spark.work import PIECE_S
from tailrace.pipelines.runtime.stream_task.loop.mailbox import ForwardedMessage
from tailrace.pipelines.types import RecordType
from tailrace.schemas.types import OperatorConfig

TOPIC, PARTITION, QUERY = "numbers", 3, 7
INT = RecordType.of(int)
COUNT = RecordType.of(tuple[str, int])


class Frame(ForwardedMessage, frozen=True):
    """A frame for a StreamTask, and its answer."""

    @property
    def skipped(self) -> SkippedRecords:
        return (
            SkippedRecords(*SKIPPED.unpack_from(self.content))
            if self.kind in (SKIPPED_COUNTS, TIMED_RECORDS)
            else SkippedRecords()
        )

    @property
    def greatest(self) -> int | None:
        """The greatest timestamp that was assigned."""
        return TIMED.unpack_from(self.content)[2] if self.kind == TIMED_RECORDS else None

    def records(self, of: RecordType) -> list[tuple[int, Any]]:
        """Returns timestamps and records."""
        head = {SKIPPED_COUNTS: SKIPPED.size, TIMED_RECORDS: TIMED.size}.get(self.kind, 0)
        batch = BufferCodec(of).read_payload(self.content, head)
        return list(zip(batch.timestamps, batch.values, strict=True))


@contextlib.contextmanager
def stream_task() -> Iterator[tuple[str, list[Frame]]]:
    """Listens as a StreamTask for one worker; the frames with data are available after the block."""
    with whole_stream_task() as (path, frames):
        yield path, frames
    frames[:] = [frame for frame in frames if frame.kind not in (WORKING, WORKED)]


@contextlib.contextmanager
def whole_stream_task() -> Iterator[tuple[str, list[Frame]]]:
    """Listens in the same way; all frames are available after the block."""
    frames: list[Frame] = []
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        path = str(Path(directory) / "task")
        listener.bind(path)
        listener.listen()

        def read() -> None:
            connection, _ = listener.accept()
            with connection:
                reader = FrameReader(connection)
                while not reader.ended:
                    frames.extend(
                        Frame(*FORWARDED.unpack_from(value), value[FORWARDED.size :])  # type: ignore[call-arg]
                        for value in reader.receive()
                    )

        reading = threading.Thread(target=read)
        reading.start()
        yield path, frames
        reading.join()


def run(plan: RecordForwardingPlan | BufferForwardingPlan, batches: list[pa.RecordBatch]) -> None:
    """Runs a worker."""
    connections = SubtaskConnections(QUERY)
    worker = plan.worker(connections)
    worker.open()
    for batch in batches:
        with connections.work:
            worker.take(batch)
    with connections.work:
        worker.finish()
    connections.finish()
    worker.close()


def places(partitions: list[int], offsets: list[int]) -> pa.Int64Array:
    """Returns a column; a negative offset is an empty row."""
    pairs = zip(partitions, offsets, strict=True)
    return pa.array(
        [NO_MESSAGE if offset < 0 else to_place(partition, offset) for partition, offset in pairs], pa.int64()
    )


def rows(messages: list[tuple[int, bytes | None]], topic: str | None = None) -> pa.RecordBatch:
    """Returns Spark rows (offset, value); the timestamp is a thousand times the offset, in milliseconds."""
    offsets = [offset for offset, _ in messages]
    columns = {
        "place": places([PARTITION] * len(messages), offsets),
        "timestamp": pa.array([offset * 1_000_000 for offset in offsets], pa.timestamp("us", "UTC")),
        "value": pa.array([value for _, value in messages], pa.binary()),
    }
    if topic is not None:
        columns["topic"] = pa.array([topic] * len(messages))
    return pa.RecordBatch.from_pydict(columns)


def hand_over(
    batches: list[pa.RecordBatch],
    *,
    end: int | None = None,
    skips: bool = False,
    prefix: StatelessPrefix | None = None,
    record_type: RecordType = INT,
    gathers: bool = False,
    form: FormatKind = FormatKind.JSON,
    one_by_one_to: int = 0,
    condition: MessageCondition | None = None,
    delivers_one_by_one: bool = False,
) -> list[Frame]:
    with stream_task() as (path, frames):
        plan = RecordForwardingPlan(
            {TOPIC: {PARTITION: SubtaskTarget(path, 2, end, one_by_one_to=one_by_one_to)}},
            ValueFormat(form),
            record_type.to_json(),
            OnBadRecord.SKIP if skips else OnBadRecord.FAIL,
            OnTombstone.SKIP if skips else OnTombstone.FAIL,
            prefix,
            gathers=gathers,
            condition=condition,
            delivers_one_by_one=delivers_one_by_one,
        )
        run(plan, batches)
    return frames


values = st.integers(0, 99).map(lambda n: b"%d" % n)
anything = st.one_of(values, st.sampled_from([b"{", b""]), st.none())


@st.composite
def logs(draw: st.DrawFn, value: st.SearchStrategy[bytes | None]) -> list[tuple[int, bytes | None]]:
    """Draws rising offsets, with gaps of control records and compacted messages."""
    contents = draw(st.lists(value, min_size=1, max_size=12))
    gaps = draw(st.lists(st.integers(1, 3), min_size=len(contents), max_size=len(contents)))
    offsets = [sum(gaps[: i + 1]) for i in range(len(contents))]
    return list(zip(offsets, contents, strict=True))


def cut(log: list[Any], data: st.DataObject) -> list[list[Any]]:
    places = sorted(data.draw(st.sets(st.integers(1, len(log)), max_size=4)))
    return [
        part for part in (log[a:b] for a, b in zip([0, *places], [*places, len(log)], strict=True)) if part
    ]


@given(logs(anything), st.data(), st.none() | st.integers(0, 40))
def test_forwarded_messages_are_independent_of_batches(
    log: list[tuple[int, bytes | None]], data: st.DataObject, end: int | None
) -> None:
    frames = hand_over([rows(part) for part in cut(log, data)], end=end, skips=True)
    before = [(offset, value) for offset, value in log if end is None or offset < end]
    good = [(offset * 1000, int(value)) for offset, value in before if value not in (None, b"", b"{")]
    assert [record for frame in frames for record in frame.records(INT)] == good
    assert sum(frame.skipped.bad for frame in frames) == sum(value in (b"", b"{") for _, value in before)
    assert sum(frame.skipped.tombstones for frame in frames) == sum(value is None for _, value in before)
    last = log[-1][0] + 1
    assert frames[-1].following == (last if end is None else min(last, end))
    assert all(frame.first <= frame.following for frame in frames)
    assert all(a.following <= b.first for a, b in pairwise(frames))
    assert {(f.input_index, f.query, f.partition) for f in frames} == {(2, QUERY, PARTITION)}


@given(logs(values), st.data(), st.integers(0, 40))
def test_messages_before_given_offset_are_forwarded_one_by_one(
    log: list[tuple[int, bytes | None]], data: st.DataObject, one_by_one_to: int
) -> None:
    frames = hand_over([rows(part) for part in cut(log, data)], one_by_one_to=one_by_one_to)
    single = [offset for offset, _ in log if offset < one_by_one_to]
    assert [(frame.first, frame.following) for frame in frames if frame.first < one_by_one_to] == [
        (offset, offset + 1) for offset in single
    ]
    assert [record for frame in frames for record in frame.records(INT)] == [
        (offset * 1000, int(value or b"")) for offset, value in log
    ]


@given(logs(values))
def test_empty_rows_of_real_time_mode_are_no_messages(log: list[tuple[int, bytes | None]]) -> None:
    spread = [row for message in log for row in (message, *[(-1, None)] * REAL_TIME_ROWS)]
    batches = [spread[first : first + REAL_TIME_ROWS] for first in range(0, len(spread), REAL_TIME_ROWS)]
    frames = hand_over(list(map(rows, batches)))
    assert [(frame.kind, frame.first, frame.following) for frame in frames] == [
        (RECORDS, offset, offset + 1) for offset, _ in log
    ]


@given(logs(anything), st.data(), st.none() | st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_messages_that_spark_drops_are_covered_by_positions(
    log: list[tuple[int, bytes | None]],
    data: st.DataObject,
    end: int | None,
    one_by_one_to: int,
    in_real_time: bool,
) -> None:
    dropped = data.draw(st.sets(st.sampled_from([offset for offset, _ in log])))
    found = []
    for offset, value in log:
        row = rows([(offset, value)])
        if offset in dropped:
            place = pa.array([-2 - to_place(PARTITION, offset)])
            row = row.set_column(0, "place", place).set_column(2, "value", pa.nulls(1, pa.binary()))
        found.append(row)
        if in_real_time and offset not in dropped:
            found += [rows([(-1, None)])] * REAL_TIME_ROWS
    batches = [pa.concat_batches(part) for part in cut(found, data)]
    frames = hand_over(
        batches,
        end=end,
        skips=True,
        one_by_one_to=one_by_one_to,
        condition=MessageCondition(None, "FALSE"),
        delivers_one_by_one=in_real_time,
    )
    if in_real_time:
        assert all(f.following - f.first == 1 for f in frames if f.content)
    before = [(offset, value) for offset, value in log if end is None or offset < end]
    good = [
        (offset * 1000, int(value))
        for offset, value in before
        if value not in (None, b"", b"{") and offset not in dropped
    ]
    assert [record for frame in frames for record in frame.records(INT)] == good
    last = log[-1][0] + 1
    assert frames[-1].following == (last if end is None else min(last, end))
    assert all(a.following <= b.first for a, b in pairwise(frames))
    assert all(f.following - f.first == 1 for f in frames if f.first < min(one_by_one_to, end or 99))


def test_bad_message_names_its_position_and_stops_its_batch() -> None:
    frames = hand_over([rows([(5, b"1")]), rows([(6, b"2"), (8, b"{")])])
    assert [(frame.kind, frame.first, frame.following) for frame in frames] == [
        (RECORDS, 5, 6),
        (FAILURE, 6, 9),
    ]
    assert (
        frames[1]
        .content.decode()
        .startswith("the message at offset 8 of numbers, partition 3, cannot be read: ")
    )


def test_tombstone_that_is_bad_record_names_its_position() -> None:
    (frame,) = hand_over([rows([(6, b"2"), (8, None), (9, None)])])
    assert (frame.kind, frame.first, frame.following) == (FAILURE, 6, 10)
    assert frame.content.decode().startswith(
        "the message at offset 8 of numbers, partition 3, has no value (a tombstone): "
    )


def fails_at(bad: int) -> StatelessPrefix:
    """Drops multiples of 3, repeats the rest, and fails at one number."""

    def fail(value: int) -> int:
        if value == bad:
            raise ValueError("no such number")
        return value

    functions: list[tuple[str, Any]] = [
        ("filter", lambda n: n % 3),
        ("flat_map", lambda n: [n] * (n % 3)),
        ("map", fail),
    ]
    return StatelessPrefix(
        tuple(
            OperatorConfig(
                operator_id=kind[0] * 32,
                name=kind,
                kind=OperatorKind(kind),
                code=cloudpickle.dumps((function,)),
                parameters='{"output_type": "int"}',
            )
            for kind, function in functions
        ),
        INT.to_json(),
    )


@given(logs(st.integers(1, 99).filter(lambda n: n % 3).map(lambda n: b"%d" % n)), st.data())
def test_error_of_function_names_position_of_record(
    log: list[tuple[int, bytes | None]], data: st.DataObject
) -> None:
    offset, value = data.draw(st.sampled_from(log))
    mixed = [(offset - 1, b"{"), *log, (log[-1][0] + 1, b"99")] if offset == log[0][0] else log
    frames = hand_over([rows(mixed)], prefix=fails_at(int(value or b"")), skips=True)
    first = next(offset for offset, item in log if item == value)
    (reason,) = [frame.content.decode().splitlines()[0] for frame in frames if frame.kind == FAILURE]
    assert reason.startswith("ValueError: no such number at ")
    assert reason.endswith(f"in operator 'map', at topic numbers [3] offset {first}")


@given(st.lists(st.integers(1, 99).filter(lambda n: n % 3), min_size=1, max_size=9), st.data())
def test_error_of_function_names_record_within_buffer(numbers: list[int], data: st.DataObject) -> None:
    bad = data.draw(st.sampled_from(numbers))
    buffer = BufferCodec(INT).encode(BufferHeader(0, 0, 0), Batch([0] * len(numbers), list(numbers)))
    columns = {"place": places([PARTITION], [17]), "value": [buffer]}
    with stream_task() as (path, frames):
        targets = {"edge": {PARTITION: SubtaskTarget(path, 0)}}
        plan = BufferForwardingPlan(targets, (INT.to_json(),), fails_at(bad))
        run(plan, [pa.RecordBatch.from_pydict(columns)])
    (reason,) = [frame.content.decode().splitlines()[0] for frame in frames if frame.kind == FAILURE]
    within = f", record {numbers.index(bad) + 1} of {len(numbers)}" if len(numbers) > 1 else ""
    assert reason.endswith(f"in operator 'map', at topic edge [3] offset 17{within}")


@given(st.integers(0, (1 << 15) - 1), st.integers(0, (1 << 48) - 1))
def test_place_has_partition_and_offset(partition: int, offset: int) -> None:
    place = to_place(partition, offset)
    assert 0 <= place < 1 << 63
    assert (partition_at(place), offset_at(place)) == (partition, offset)
    column = pa.array([place])
    assert to_partitions(column).to_pylist() == [partition]
    assert to_offsets(column).to_pylist() == [offset]


def test_partition_without_place_is_refused_by_name() -> None:
    check_partitions("t", [(1 << 15) - 1])
    with pytest.raises(TaskError, match="partition 32768 of topic t cannot be read"):
        check_partitions("t", [0, 1 << 15])


@pytest.mark.parametrize("assigns", [True, False])
def test_timestamps_are_not_read_if_they_are_replaced(*, assigns: bool) -> None:
    strategy = TIMED_PRE_AGGREGATE.operators[0]
    parameters = json.loads(strategy.parameters) | {"assigns_timestamps": assigns}
    prefix = replace(TIMED_PRE_AGGREGATE, operators=(replace(strategy, parameters=json.dumps(parameters)),))
    plan = RecordForwardingPlan(
        {TOPIC: {}}, ValueFormat(FormatKind.JSON), COUNT.to_json(), OnBadRecord.FAIL, OnTombstone.FAIL, prefix
    )
    assert plan.columns == (*(() if assigns else ("timestamp",)), "place", "value")
    assert "timestamp" in replace(plan, key_format=plan.format).columns
    if assigns:
        log = rows([(0, b'["a", 7]'), (1, b'["b", 5]')])
        frames = hand_over([log.select(plan.columns)], prefix=prefix, record_type=COUNT)
        assert frames[0].records(COUNT) == [(7, ("a", 7)), (5, ("b", 5))]


def test_rows_of_several_partitions_are_separated() -> None:
    mixed = pa.concat_batches([rows([(1, b"1")], TOPIC), rows([(2, b"2")], TOPIC)])
    columns = mixed.to_pydict() | {"place": places([PARTITION, 4], [1, 2])}
    batch = pa.RecordBatch.from_pydict(columns, schema=mixed.schema)
    with stream_task() as (path, frames):
        targets = {
            TOPIC: {PARTITION: SubtaskTarget(path, 0), 4: SubtaskTarget(path, 0)},
            "other": {0: SubtaskTarget(path, 1)},
        }
        plan = RecordForwardingPlan(
            targets, ValueFormat(FormatKind.JSON), "int", OnBadRecord.FAIL, OnTombstone.FAIL
        )
        run(plan, [batch])
    assert sorted((frame.partition, frame.first) for frame in frames) == [(PARTITION, 1), (4, 2)]


TIMED_PRE_AGGREGATE = StatelessPrefix(
    (
        OperatorConfig(
            operator_id="a" * 32,
            name="Timestamps",
            kind=OperatorKind.WATERMARKS,
            code=cloudpickle.dumps((lambda count: count[1],)),
            parameters=json.dumps({"out_of_orderness_ms": 0, "output_type": COUNT.to_json()}),
        ),
        OperatorConfig(
            operator_id="b" * 32,
            name="Sum",
            kind=OperatorKind.PRE_AGGREGATE,
            code=pickle.dumps((len,)),
            parameters=json.dumps(
                {
                    "function": "sum",
                    "field": "f1",
                    "key_type": "str",
                    "key_field": "f0",
                    "output_type": COUNT.to_json(),
                }
            ),
        ),
    ),
    COUNT.to_json(),
)
PRE_AGGREGATE = replace(TIMED_PRE_AGGREGATE, operators=TIMED_PRE_AGGREGATE.operators[1:])


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.data())
def test_aggregates_span_batches_during_backlog(words: list[str], data: st.DataObject) -> None:
    log = [(offset, json.dumps([word, 1]).encode()) for offset, word in enumerate(words)]
    frames = hand_over(
        [rows(part) for part in cut(log, data)], prefix=PRE_AGGREGATE, record_type=COUNT, gathers=True
    )
    (frame,) = frames
    assert (frame.first, frame.following) == (0, len(words))
    assert sorted(record for _, record in frame.records(COUNT)) == sorted(
        (word, words.count(word)) for word in set(words)
    )


@given(logs(st.integers(0, 99).map(lambda n: b"%d" % n) | st.sampled_from([b"{", None])), st.data())
def test_greatest_timestamp_of_worker_is_that_of_readable_messages(
    log: list[tuple[int, bytes | None]], data: st.DataObject
) -> None:
    parts = cut([(offset, value and b'["a", %s]' % value) for offset, value in log], data)
    for gathers in (False, True):
        frames = hand_over(
            list(map(rows, parts)),
            prefix=TIMED_PRE_AGGREGATE,
            record_type=COUNT,
            gathers=gathers,
            skips=True,
        )
        readable = [[int(v[6:-1]) for _, v in part if v is not None and b"{" not in v] for part in parts]
        greatest = [max(part, default=None) for part in readable]
        if gathers:
            greatest = [max((time for time in greatest if time is not None), default=None)]
        assert [frame.greatest for frame in frames] == greatest
        assert sum(frame.skipped.bad for frame in frames) == sum(value == b"{" for _, value in log)


@given(st.integers(1, 5), st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(1, 4))
def test_partitions_are_divided_over_subtasks_and_added_ones_move_none(
    parallelism: int, counts: list[int], more: int
) -> None:
    listed = KafkaSourceParameters(tuple(f"t{i}" for i in range(len(counts))), ValueFormat(FormatKind.TEXT))
    matching = KafkaSourceParameters((), ValueFormat(FormatKind.TEXT), topic_pattern="t.*")
    names = listed.topics

    def owners(source: KafkaSourceParameters, of: dict[str, int]) -> dict[tuple[str, int], int]:
        return {
            place: subtask
            for subtask in range(parallelism)
            for place in source.assigned_partitions(of, subtask, parallelism)
        }

    named = dict(zip(names, counts, strict=True))
    for source in (listed, matching):
        before = owners(source, named)
        assert sorted(before) == [(topic, p) for topic in names for p in range(named[topic])]
        after = owners(source, {**named, "t0": counts[0] + more})
        assert {place: after[place] for place in before} == before
        if source is matching:
            wider = owners(source, {**named, "a": more, "z": more})
            assert {place: wider[place] for place in before} == before
    before = owners(listed, named)
    loads = [sum(owner == subtask for owner in before.values()) for subtask in range(parallelism)]
    if len(counts) == 1:
        assert max(loads) - min(loads) <= 1


def work_of(operators: tuple[OperatorConfig, ...], count: int) -> list[Frame]:
    """Returns all frames for messages in one batch."""
    with whole_stream_task() as (path, frames):
        plan = RecordForwardingPlan(
            {TOPIC: {PARTITION: SubtaskTarget(path, 2)}},
            ValueFormat(FormatKind.JSON),
            INT.to_json(),
            OnBadRecord.FAIL,
            OnTombstone.FAIL,
            StatelessPrefix(operators, INT.to_json()),
        )
        run(plan, [rows([(offset, b"%d" % offset) for offset in range(count)])])
    return frames


def sleeping(kind: OperatorKind, function: Any) -> tuple[OperatorConfig, ...]:
    return (
        OperatorConfig(
            operator_id="a" * 32,
            name="slow",
            kind=kind,
            code=cloudpickle.dumps((function,)),
            parameters='{"output_type": "int"}',
        ),
    )


def test_messages_of_a_slow_function_come_in_pieces_whose_work_is_announced_and_reported() -> None:
    count, cost_s = 700, 0.002

    def slow(value: int) -> int:
        time.sleep(cost_s)
        return value

    frames = work_of(sleeping(OperatorKind.MAP, slow), count)
    data = [frame for frame in frames if frame.kind == RECORDS]
    assert data[0].first == 0
    assert data[-1].following == count
    assert all(a.following == b.first for a, b in pairwise(data))
    assert len(data) >= 2, "the first piece is made without a measurement"
    assert data[1].following - data[1].first <= PIECE_S / cost_s
    kinds = [frame.kind for frame in frames]
    assert kinds[: 3 * len(data)] == [WORKING, WORKED, RECORDS] * len(data)
    worked_s = sum(WORK_TIME.unpack(frame.content)[0] for frame in frames if frame.kind == WORKED) / 1e6
    assert count * cost_s <= worked_s
    assert {frame.partition for frame in frames} == {PARTITION}


def test_vectorised_function_gets_whole_batches() -> None:
    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(0.02)
        return batch

    frames = work_of(sleeping(OperatorKind.MAP_BATCHES, slow), 5_000)
    (data,) = [frame for frame in frames if frame.kind == RECORDS]
    assert (data.first, data.following) == (0, 5_000)


def test_short_work_is_reported_at_the_end() -> None:
    frames = work_of(sleeping(OperatorKind.MAP, lambda value: value), 3)
    assert [frame.kind for frame in frames] == [RECORDS, WORKED]
    assert WORK_TIME.unpack(frames[1].content)[0] > 0
