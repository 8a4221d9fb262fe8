"""Every record reaches one channel, or each of them; equal keys the same one; everyone is told the time."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.graph.key_groups import subtask_of
from tailrace.pipelines.runtime.buffers import Batch, BufferCodec, Header
from tailrace.pipelines.runtime.stream_task.record_writer import Channel, ChannelWriter, RecordWriter
from tailrace.pipelines.types import Types
from tailrace.schemas.types import Partitioner

TYPE = Types.STRING()
CODEC = BufferCodec(TYPE)

words = st.lists(st.lists(st.text(max_size=3), max_size=20), max_size=5)


def writer(partitioner: Partitioner, partitions: int, subtask: int = 0) -> RecordWriter:
    select = (lambda word: word) if partitioner is Partitioner.HASH else None
    channel = Channel("channel", partitions, partitioner, 128, select)
    return RecordWriter([ChannelWriter(channel, TYPE, subtask, 4)])


def written(
    partitioner: Partitioner, partitions: int, batches: list[list[str]]
) -> dict[int, list[tuple[Header, Batch]]]:
    target = writer(partitioner, partitions)
    found = defaultdict(list)
    for number, values in enumerate(batches):
        target.write(Batch([number] * len(values), values))
        for outgoing in target.flush(number):
            found[outgoing.partition].append(CODEC.decode(outgoing.data))
    return found


def values_by_partition(found: dict[int, list[tuple[Header, Batch]]]) -> dict[int, list[str]]:
    return {partition: [v for _, batch in each for v in batch.values] for partition, each in found.items()}


@given(words, st.integers(1, 5))
def test_hash_sends_each_record_where_its_key_belongs(batches: list[list[str]], partitions: int) -> None:
    found = values_by_partition(written(Partitioner.HASH, partitions, batches))
    for partition, values in found.items():
        assert {subtask_of(value, 128, partitions) for value in values} == {partition}
    assert Counter(v for each in found.values() for v in each) == Counter(v for b in batches for v in b)


@given(words, st.integers(1, 5))
def test_rebalance_loses_nothing_and_is_even(batches: list[list[str]], partitions: int) -> None:
    found = values_by_partition(written(Partitioner.REBALANCE, partitions, batches))
    assert Counter(v for each in found.values() for v in each) == Counter(v for b in batches for v in b)
    sizes = [len(found.get(partition, [])) for partition in range(partitions)]
    assert max(sizes) - min(sizes) <= 1


@given(words, st.integers(1, 5))
def test_broadcast_sends_all_to_all_in_order(batches: list[list[str]], partitions: int) -> None:
    found = values_by_partition(written(Partitioner.BROADCAST, partitions, batches))
    for partition in range(partitions):
        assert found.get(partition, []) == [v for batch in batches for v in batch]


@given(words, st.integers(1, 5))
def test_numbers_on_a_channel_have_no_gap(batches: list[list[str]], partitions: int) -> None:
    for each in written(Partitioner.HASH, partitions, batches).values():
        assert [header.sequence for header, _ in each] == list(range(len(each)))
        assert {(header.sender, header.attempt) for header, _ in each} == {(0, 4)}


def test_every_channel_is_told_the_time_and_the_end() -> None:
    target = writer(Partitioner.HASH, 3)
    told = [CODEC.decode(each.data) for each in target.flush(77, tell_all=True)]
    assert [(header.watermark, header.ends, len(batch)) for header, batch in told] == [(77, False, 0)] * 3
    assert target.told == 77
    ended = [CODEC.decode(each.data)[0] for each in target.flush(78, ends=True, tell_all=True)]
    assert all(header.ends for header in ended)


def test_nothing_is_sent_when_nothing_happened() -> None:
    assert list(writer(Partitioner.HASH, 3).flush(1)) == []
