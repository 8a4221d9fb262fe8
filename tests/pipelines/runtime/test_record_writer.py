"""Every record reaches one channel, or all; equal keys reach the same one; every channel gets the event time."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.graph.execution_graph import IntermediateResult
from tailrace.pipelines.graph.key_groups import subtask_of
from tailrace.pipelines.runtime.common.deployment import CheckpointTrigger
from tailrace.pipelines.runtime.common.failures import UserCodeError
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import (
    MAX_WATERMARK,
    BufferCodec,
    BufferHeader,
    decode_header,
    is_barrier,
    read_barrier,
)
from tailrace.pipelines.runtime.stream_task.output import partitioners
from tailrace.pipelines.runtime.stream_task.output.partitioners import create_partitioner
from tailrace.pipelines.runtime.stream_task.output.record_writer import (
    ChannelWriter,
    OutgoingBuffer,
    RecordWriter,
)
from tailrace.pipelines.types import RecordType, Types
from tailrace.schemas.types import CheckpointOptions, JobEdge, Partitioner, SnapshotType

PAIR = Types.TUPLE([str, int])
CODEC = BufferCodec(PAIR)
ALL_TO_ALL = [Partitioner.HASH, Partitioner.REBALANCE, Partitioner.SHUFFLE, Partitioner.CUSTOM]

pair = st.tuples(st.text(max_size=3), st.integers(0, 9))
batches = st.lists(st.lists(pair, max_size=100), max_size=4)
forms = st.sampled_from(["rows", "columns"])


def edge(partitioner: Partitioner, key_field: str | None = None, functions: Any = None) -> JobEdge:
    defaults: dict[Partitioner, tuple[Any, ...]] = {
        Partitioner.HASH: (lambda item: item[0],),
        Partitioner.CUSTOM: (lambda key, count: key % count, lambda element: element[1]),
    }
    chosen = functions or defaults.get(partitioner)
    return JobEdge(
        data_set_id="channel", source_vertex_id="a", target_vertex_id="b", partitioner=partitioner,
        code=cloudpickle.dumps(chosen) if chosen else b"",
        parameters=json.dumps({"key_type": "str", "key_field": key_field}),
    )  # fmt: skip


def writer(
    joined: JobEdge,
    partitions: int,
    *,
    senders: int = 1,
    subtask: int = 0,
    of: RecordType = PAIR,
) -> ChannelWriter:
    reachable = IntermediateResult(joined, senders, partitions, range(senders)).partitions_for(subtask)
    partition = create_partitioner(
        joined, of, reachable=reachable, partitions=partitions, max_parallelism=128, subtask=subtask
    )
    return ChannelWriter("channel", of, partition, reachable, subtask=subtask, attempt=4)


def batch_of(values: list[tuple[str, int]], form: str, timestamp: int = 0) -> Batch:
    batch = Batch([timestamp] * len(values), values)
    return batch if form == "rows" else CODEC.decode(CODEC.encode(BufferHeader(0, 0, 0), batch))[1]


def written(target: ChannelWriter, given: list[Batch]) -> dict[int, list[tuple[BufferHeader, Batch]]]:
    result = defaultdict(list)
    for batch in given:
        if len(batch):
            target.write(batch)
        for outgoing in target.flush():
            result[outgoing.partition].append(CODEC.decode(outgoing.data))
    return result


def values_by_partition(found: dict[int, list[tuple[BufferHeader, Batch]]]) -> dict[int, list[Any]]:
    return {partition: [v for _, batch in group for v in batch.values] for partition, group in found.items()}


@given(batches, st.integers(1, 5), forms, st.sampled_from(["f0", None]))
def test_hash_sends_each_record_to_owner_of_key_by_row_and_by_column(
    given: list[list[tuple[str, int]]], partitions: int, form: str, key_field: str | None
) -> None:
    target = writer(edge(Partitioner.HASH, key_field), partitions)
    result = values_by_partition(written(target, [batch_of(values, form) for values in given]))
    sent = [value for values in given for value in values]
    for partition in range(partitions):
        mine = [value for value in sent if subtask_of(value[0], 128, partitions) == partition]
        assert result.get(partition, []) == mine, "in order"


@given(batches, st.integers(1, 5), forms, st.sampled_from(ALL_TO_ALL))
def test_each_record_goes_to_one_partition_in_order(
    given: list[list[tuple[str, int]]], partitions: int, form: str, partitioner: Partitioner
) -> None:
    numbered = [[(word, i * 1000 + j) for j, (word, _) in enumerate(group)] for i, group in enumerate(given)]
    target = writer(edge(partitioner), partitions)
    result = values_by_partition(written(target, [batch_of(values, form) for values in numbered]))
    assert Counter(v for item in result.values() for v in item) == Counter(v for b in numbered for v in b)
    for values in result.values():
        assert values == sorted(values, key=lambda value: value[1])


@given(batches, st.integers(1, 5), forms)
def test_rebalance_is_even(given: list[list[tuple[str, int]]], partitions: int, form: str) -> None:
    target = writer(edge(Partitioner.REBALANCE), partitions, subtask=0)
    result = values_by_partition(written(target, [batch_of(values, form) for values in given]))
    sizes = [len(result.get(partition, [])) for partition in range(partitions)]
    assert max(sizes) - min(sizes) <= 1


@given(
    batches, st.integers(1, 5), st.integers(1, 5), st.sampled_from([Partitioner.RESCALE, Partitioner.FORWARD])
)
def test_pointwise_edges_reach_some_partitions_and_together_all(
    given: list[list[tuple[str, int]]], senders: int, partitions: int, partitioner: Partitioner
) -> None:
    if partitioner is Partitioner.FORWARD:
        partitions = senders
    joined = edge(partitioner)
    counts: Counter[int] = Counter()
    for subtask in range(senders):
        target = writer(joined, partitions, senders=senders, subtask=subtask)
        reached = set(values_by_partition(written(target, [batch_of(group, "rows") for group in given])))
        counts.update(buffer.partition for buffer in target.flush(tell_all=True))
        result = IntermediateResult(joined, senders, partitions, range(senders))
        assert reached <= {p for p in range(partitions) if subtask in result.producers_for(p)}
    assert counts == {p: len(result.producers_for(p)) for p in range(partitions)}


@given(batches, st.integers(1, 5))
def test_broadcast_sends_all_to_all_in_order(given: list[list[tuple[str, int]]], partitions: int) -> None:
    result = values_by_partition(
        written(writer(edge(Partitioner.BROADCAST), partitions), [batch_of(group, "rows") for group in given])
    )
    for partition in range(partitions):
        assert result.get(partition, []) == [v for item in given for v in item]


def test_global_sends_all_records_to_first_and_time_to_all() -> None:
    target = writer(edge(Partitioner.GLOBAL), 3)
    target.write(batch_of([("a", 1), ("b", 2)], "rows"))
    assert [len(CODEC.decode(buffer.data)[1]) for buffer in target.flush(tell_all=True)] == [2, 0, 0]


@pytest.mark.parametrize("place", [-1, 3, "first"])
def test_partitioner_must_return_partition(place: Any) -> None:
    target = writer(edge(Partitioner.CUSTOM, functions=(lambda key, count: place, lambda item: item)), 3)
    with pytest.raises(UserCodeError):
        target.write(batch_of([("a", 1)], "rows"))


@pytest.mark.parametrize("of", [Types.TUPLE([Types.OPTIONAL(str), int]), Types.PICKLED_BYTE_ARRAY()])
def test_computed_keys_are_selected(of: RecordType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioners, "_FEW", 1)
    target = writer(edge(Partitioner.HASH, "f0"), 4, of=of)
    values = [(None, 1), ("a", 2), ("b", 3)] if of != PAIR else []
    target.write(Batch([0] * 3, values))
    codec = BufferCodec(of)
    for outgoing in target.flush():
        for value in codec.decode(outgoing.data)[1].values:
            assert subtask_of(value[0], 128, 4) == outgoing.partition


@given(batches, st.integers(1, 5))
def test_numbers_on_channel_have_no_gap(given: list[list[tuple[str, int]]], partitions: int) -> None:
    target = writer(edge(Partitioner.HASH), partitions)
    for group in written(target, [batch_of(values, "rows") for values in given]).values():
        assert [header.sequence for header, _ in group] == list(range(len(group)))
        assert {(header.sender, header.attempt) for header, _ in group} == {(0, 4)}


def test_every_channel_gets_time_and_end() -> None:
    target = writer(edge(Partitioner.HASH), 3)
    target.advance_watermark(77)
    target.set_idle(True)
    reports = [CODEC.decode(buffer.data) for buffer in target.flush(tell_all=True)]
    assert [(h.watermark, h.idle, h.ends, len(batch)) for h, batch in reports] == [(77, True, False, 0)] * 3
    assert not target.is_behind
    ended = [CODEC.decode(buffer.data)[0] for buffer in target.flush(ends=True, tell_all=True)]
    assert all(header.ends and header.watermark == MAX_WATERMARK for header in ended)


def test_each_channel_has_its_own_event_time() -> None:
    early, late = writer(edge(Partitioner.HASH), 1), writer(edge(Partitioner.HASH), 1)
    early.advance_watermark(5)
    late.advance_watermark(9)
    headers = [CODEC.decode(buffer.data)[0] for buffer in RecordWriter([early, late]).flush(tell_all=True)]
    assert [header.watermark for header in headers] == [5, 9]


def test_time_is_sent_by_ticks_after_first_message() -> None:
    target = writer(edge(Partitioner.HASH), 2)
    ticked: list[BufferHeader] = []
    sent: list[BufferHeader] = []

    def into(found: list[BufferHeader]) -> Any:
        return lambda buffer: found.append(CODEC.decode(buffer.data)[0])

    records = RecordWriter([target])
    target.advance_watermark(5)
    records.announce_time(into(ticked), into(sent))
    assert (len(ticked), [header.sequence for header in sent]) == (0, [0, 0])
    target.advance_watermark(6)
    records.announce_time(into(ticked), into(sent))
    assert [(header.tick, header.sequence, header.watermark) for header in ticked] == [(True, 1, 6)] * 2
    records.announce_time(into(ticked), into(sent))
    assert (len(ticked), len(sent)) == (2, 2), "nothing new"
    assert [CODEC.decode(buffer.data)[0].sequence for buffer in target.flush(tell_all=True)] == [1, 1]


def test_time_is_repeated_to_a_few_partitions_in_turn() -> None:
    target = writer(edge(Partitioner.HASH), 10)
    target.advance_watermark(5)
    records, reports = RecordWriter([target]), list[int]()
    list(target.flush(tell_all=True))

    def tick(buffer: OutgoingBuffer) -> None:
        assert decode_header(buffer.data).tick
        reports.append(buffer.partition)

    def send(buffer: OutgoingBuffer) -> None:
        raise AssertionError("it takes no transaction")

    records.announce_time(tick, send)
    assert reports == []
    for _ in range(5):
        records.announce_time(tick, send, again=True)
    assert sorted(reports) == sorted([*range(10)] * 2)
    target.advance_watermark(6)
    reports.clear()
    records.announce_time(tick, send, again=True)
    assert reports == [*range(10)], "news is told to all"


def test_nothing_is_sent_without_change() -> None:
    assert list(writer(edge(Partitioner.HASH), 3).flush()) == []


@given(st.lists(pair, max_size=20), st.integers(1, 4), st.sampled_from(ALL_TO_ALL))
def test_barrier_reaches_every_partition_after_records(
    records: list[tuple[str, int]], partitions: int, partitioner: Partitioner
) -> None:
    options = CheckpointOptions(snapshot_type=SnapshotType.CHECKPOINT, directory="d", shared="s")
    checkpoint = CheckpointTrigger(checkpoint_id=3, timestamp=1, options=options)
    channel = writer(edge(partitioner), partitions)
    if records:
        channel.write(Batch([0] * len(records), list(records)))
    sent: dict[int, list[bytes]] = defaultdict(list)
    for buffer in (*channel.flush(), *channel.barrier(checkpoint), *channel.flush(tell_all=True)):
        sent[buffer.partition].append(buffer.data)
    assert sent.keys() == set(range(partitions))
    for buffers in sent.values():
        assert [CODEC.decode(data)[0].sequence for data in buffers] == list(range(len(buffers)))
        assert [is_barrier(data) for data in buffers[-2:]] == [True, False]
        assert not any(map(is_barrier, buffers[:-2]))
        assert read_barrier(buffers[-2]) == checkpoint
    assert not channel.is_behind, "a barrier tells the time as well"
