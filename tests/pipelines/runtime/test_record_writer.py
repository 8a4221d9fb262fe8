"""Every record reaches one channel, or each of them; equal keys the same one; everyone is told the time."""

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
from tailrace.pipelines.runtime.stream_task.output.record_writer import ChannelWriter, RecordWriter
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
        Partitioner.HASH: (lambda each: each[0],),
        Partitioner.CUSTOM: (lambda key, count: key % count, lambda each: each[1]),
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
    found = defaultdict(list)
    for batch in given:
        if len(batch):
            target.write(batch)
        for outgoing in target.flush():
            found[outgoing.partition].append(CODEC.decode(outgoing.data))
    return found


def values_by_partition(found: dict[int, list[tuple[BufferHeader, Batch]]]) -> dict[int, list[Any]]:
    return {partition: [v for _, batch in each for v in batch.values] for partition, each in found.items()}


@given(batches, st.integers(1, 5), forms, st.sampled_from(["f0", None]))
def test_hash_sends_each_record_where_its_key_belongs_by_row_and_by_column(
    given: list[list[tuple[str, int]]], partitions: int, form: str, key_field: str | None
) -> None:
    target = writer(edge(Partitioner.HASH, key_field), partitions)
    found = values_by_partition(written(target, [batch_of(values, form) for values in given]))
    sent = [value for values in given for value in values]
    for partition in range(partitions):
        mine = [value for value in sent if subtask_of(value[0], 128, partitions) == partition]
        assert found.get(partition, []) == mine, "in order"


@given(batches, st.integers(1, 5), forms, st.sampled_from(ALL_TO_ALL))
def test_each_record_goes_to_one_partition_and_keeps_its_place_there(
    given: list[list[tuple[str, int]]], partitions: int, form: str, partitioner: Partitioner
) -> None:
    numbered = [[(word, i * 1000 + j) for j, (word, _) in enumerate(each)] for i, each in enumerate(given)]
    target = writer(edge(partitioner), partitions)
    found = values_by_partition(written(target, [batch_of(values, form) for values in numbered]))
    assert Counter(v for each in found.values() for v in each) == Counter(v for b in numbered for v in b)
    for values in found.values():
        assert values == sorted(values, key=lambda value: value[1])


@given(batches, st.integers(1, 5), forms)
def test_rebalance_is_even(given: list[list[tuple[str, int]]], partitions: int, form: str) -> None:
    target = writer(edge(Partitioner.REBALANCE), partitions, subtask=0)
    found = values_by_partition(written(target, [batch_of(values, form) for values in given]))
    sizes = [len(found.get(partition, [])) for partition in range(partitions)]
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
    told: Counter[int] = Counter()
    for subtask in range(senders):
        target = writer(joined, partitions, senders=senders, subtask=subtask)
        reached = set(values_by_partition(written(target, [batch_of(each, "rows") for each in given])))
        told.update(each.partition for each in target.flush(tell_all=True))
        result = IntermediateResult(joined, senders, partitions, range(senders))
        assert reached <= {p for p in range(partitions) if subtask in result.producers_for(p)}
    assert told == {p: len(result.producers_for(p)) for p in range(partitions)}


@given(batches, st.integers(1, 5))
def test_broadcast_sends_all_to_all_in_order(given: list[list[tuple[str, int]]], partitions: int) -> None:
    found = values_by_partition(
        written(writer(edge(Partitioner.BROADCAST), partitions), [batch_of(each, "rows") for each in given])
    )
    for partition in range(partitions):
        assert found.get(partition, []) == [v for each in given for v in each]


def test_global_sends_all_to_the_first_and_tells_all() -> None:
    target = writer(edge(Partitioner.GLOBAL), 3)
    target.write(batch_of([("a", 1), ("b", 2)], "rows"))
    assert [len(CODEC.decode(each.data)[1]) for each in target.flush(tell_all=True)] == [2, 0, 0]


@pytest.mark.parametrize("place", [-1, 3, "first"])
def test_a_partitioner_must_give_a_partition(place: Any) -> None:
    target = writer(edge(Partitioner.CUSTOM, functions=(lambda key, count: place, lambda each: each)), 3)
    with pytest.raises(UserCodeError):
        target.write(batch_of([("a", 1)], "rows"))


@pytest.mark.parametrize("of", [Types.TUPLE([Types.OPTIONAL(str), int]), Types.PICKLED_BYTE_ARRAY()])
def test_keys_that_are_no_plain_column_are_selected(of: RecordType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioners, "_FEW", 1)
    target = writer(edge(Partitioner.HASH, "f0"), 4, of=of)
    values = [(None, 1), ("a", 2), ("b", 3)] if of != PAIR else []
    target.write(Batch([0] * 3, values))
    codec = BufferCodec(of)
    for outgoing in target.flush():
        for value in codec.decode(outgoing.data)[1].values:
            assert subtask_of(value[0], 128, 4) == outgoing.partition


@given(batches, st.integers(1, 5))
def test_numbers_on_a_channel_have_no_gap(given: list[list[tuple[str, int]]], partitions: int) -> None:
    target = writer(edge(Partitioner.HASH), partitions)
    for each in written(target, [batch_of(values, "rows") for values in given]).values():
        assert [header.sequence for header, _ in each] == list(range(len(each)))
        assert {(header.sender, header.attempt) for header, _ in each} == {(0, 4)}


def test_every_channel_is_told_the_time_and_the_end() -> None:
    target = writer(edge(Partitioner.HASH), 3)
    target.advance_watermark(77)
    target.set_idle(True)
    told = [CODEC.decode(each.data) for each in target.flush(tell_all=True)]
    assert [(h.watermark, h.idle, h.ends, len(batch)) for h, batch in told] == [(77, True, False, 0)] * 3
    assert not target.is_behind
    ended = [CODEC.decode(each.data)[0] for each in target.flush(ends=True, tell_all=True)]
    assert all(header.ends and header.watermark == MAX_WATERMARK for header in ended)


def test_each_channel_has_its_own_event_time() -> None:
    early, late = writer(edge(Partitioner.HASH), 1), writer(edge(Partitioner.HASH), 1)
    early.advance_watermark(5)
    late.advance_watermark(9)
    headers = [CODEC.decode(each.data)[0] for each in RecordWriter([early, late]).flush(tell_all=True)]
    assert [header.watermark for header in headers] == [5, 9]


def test_time_is_told_by_ticks_once_a_partition_knows_the_attempt() -> None:
    target = writer(edge(Partitioner.HASH), 2)
    ticked: list[BufferHeader] = []
    sent: list[BufferHeader] = []

    def into(found: list[BufferHeader]) -> Any:
        return lambda topic, partition, data: found.append(CODEC.decode(data)[0])

    records = RecordWriter([target])
    target.advance_watermark(5)
    records.announce_time(into(ticked), into(sent))
    assert (len(ticked), [header.sequence for header in sent]) == (0, [0, 0])
    target.advance_watermark(6)
    records.announce_time(into(ticked), into(sent))
    assert [(header.tick, header.sequence, header.watermark) for header in ticked] == [(True, 1, 6)] * 2
    records.announce_time(into(ticked), into(sent))
    assert (len(ticked), len(sent)) == (2, 2), "nothing new"
    assert [CODEC.decode(each.data)[0].sequence for each in target.flush(tell_all=True)] == [1, 1]


def test_time_is_repeated_to_a_few_partitions_in_turn_until_all_have_heard_it() -> None:
    target = writer(edge(Partitioner.HASH), 10)
    target.advance_watermark(5)
    records, told = RecordWriter([target]), list[int]()
    list(target.flush(tell_all=True))

    def tick(topic: str, partition: int, data: bytes) -> None:
        assert decode_header(data).tick
        told.append(partition)

    def send(topic: str, partition: int, data: bytes) -> None:
        raise AssertionError("it takes no transaction")

    records.announce_time(tick, send)
    assert told == []
    for _ in range(5):
        records.announce_time(tick, send, again=True)
    assert sorted(told) == sorted([*range(10)] * 2)
    target.advance_watermark(6)
    told.clear()
    records.announce_time(tick, send, again=True)
    assert told == [*range(10)], "news is told to all"


def test_nothing_is_sent_when_nothing_happened() -> None:
    assert list(writer(edge(Partitioner.HASH), 3).flush()) == []


@given(st.lists(pair, max_size=20), st.integers(1, 4), st.sampled_from(ALL_TO_ALL))
def test_a_barrier_reaches_every_partition_behind_the_records(
    records: list[tuple[str, int]], partitions: int, partitioner: Partitioner
) -> None:
    options = CheckpointOptions(snapshot_type=SnapshotType.CHECKPOINT, directory="d", shared="s")
    checkpoint = CheckpointTrigger(checkpoint_id=3, timestamp=1, options=options)
    channel = writer(edge(partitioner), partitions)
    if records:
        channel.write(Batch([0] * len(records), list(records)))
    sent: dict[int, list[bytes]] = defaultdict(list)
    for each in (*channel.flush(), *channel.barrier(checkpoint), *channel.flush(tell_all=True)):
        sent[each.partition].append(each.data)
    assert sent.keys() == set(range(partitions))
    for buffers in sent.values():
        assert [CODEC.decode(data)[0].sequence for data in buffers] == list(range(len(buffers)))
        assert [is_barrier(data) for data in buffers[-2:]] == [True, False]
        assert not any(map(is_barrier, buffers[:-2]))
        assert read_barrier(buffers[-2]) == checkpoint
    assert not channel.is_behind, "a barrier tells the time as well"
