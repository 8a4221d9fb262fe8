"""A buffer is decoded as it was encoded, whole or in parts; other bytes are rejected."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.deployment import CheckpointTrigger
from tailrace.pipelines.runtime.records import buffers
from tailrace.pipelines.runtime.records.batch import Batch, concatenate
from tailrace.pipelines.runtime.records.buffers import (
    HEADER_BYTES,
    MAX_WATERMARK,
    NO_WATERMARK,
    BufferCodec,
    BufferError,
    BufferHeader,
    RecordTooLarge,
    decode_header,
    is_barrier,
    is_opaque,
    join_fragments,
    read_barrier,
    write_barrier,
)
from tailrace.pipelines.runtime.records.small_batches import MAX_SMALL_ROWS
from tailrace.pipelines.types import Types
from tailrace.schemas.types import CheckpointOptions, SnapshotType

times = st.integers(NO_WATERMARK, MAX_WATERMARK)
headers = st.builds(
    BufferHeader,
    sender=st.integers(0, 2**16 - 1),
    attempt=st.integers(0, 2**32 - 1),
    sequence=st.integers(0, 2**63 - 1),
    watermark=times,
    ends=st.booleans(),
    idle=st.booleans(),
    tick=st.booleans(),
    generation=st.integers(0, 2**32 - 1),
    stops=st.booleans(),
)
records = st.lists(st.tuples(st.integers(0, 2**41), st.tuples(st.text(max_size=9), st.integers(0, 99))))

CODEC = BufferCodec(Types.TUPLE([str, int]))


def batch_of(pairs: list[tuple[int, tuple[str, int]]]) -> Batch:
    return Batch([timestamp for timestamp, _ in pairs], [value for _, value in pairs])


@given(headers, records)
def test_header_and_records_survive_round_trip(
    header: BufferHeader, pairs: list[tuple[int, tuple[str, int]]]
) -> None:
    data = CODEC.encode(header, batch_of(pairs))
    assert decode_header(data) == header
    assert CODEC.decode(data) == (header, batch_of(pairs))


@pytest.mark.parametrize("rows", [MAX_SMALL_ROWS + 1, 1_000])
def test_values_are_aligned_in_memory(rows: int) -> None:
    """Otherwise Arrow's aggregations warn on the stderr of each task."""
    batch = batch_of([(i, (f"word {i}", i)) for i in range(rows)])
    _, decoded = CODEC.decode(CODEC.encode(BufferHeader(0, 0, 0), batch))
    assert decoded.is_columnar
    arrays = [decoded.timestamp_column(), *decoded.columns(CODEC.record_type)]
    buffers_of = [each for array in arrays for each in array.buffers() if each is not None]
    assert [each.address % 8 for each in buffers_of] == [0] * len(buffers_of)


@given(headers, records, st.integers(500, 3000))
def test_parts_have_the_same_records_with_consecutive_numbers(
    header: BufferHeader, pairs: list[tuple[int, tuple[str, int]]], limit: int
) -> None:
    parts = [CODEC.decode(data) for data in CODEC.encode_within(limit, header, batch_of(pairs))]
    assert concatenate([batch for _, batch in parts]) == batch_of(pairs)
    assert [header.sequence for header, _ in parts] == [header.sequence + i for i in range(len(parts))]
    for buffer_header, _ in parts[:-1]:
        assert (buffer_header.watermark, buffer_header.ends, buffer_header.idle) == (
            NO_WATERMARK,
            False,
            False,
        )
    assert msgspec.structs.replace(parts[-1][0], sequence=header.sequence) == header


@given(records)
def test_payload_is_buffer_without_header(pairs: list[tuple[int, tuple[str, int]]]) -> None:
    payload = CODEC.payload(batch_of(pairs))
    assert CODEC.encode(BufferHeader(1, 2, 3), batch_of(pairs)) == bytes(BufferHeader(1, 2, 3)) + payload
    read = CODEC.read_payload(payload)
    assert read == batch_of(pairs)
    assert read.is_columnar is (len(pairs) > MAX_SMALL_ROWS), "rows are made when they are asked for"


@given(records, st.integers(500, 3000))
def test_no_part_is_larger_than_limit(pairs: list[tuple[int, tuple[str, int]]], limit: int) -> None:
    parts = CODEC.encode_within(limit, BufferHeader(0, 0, 0, 0), batch_of(pairs))
    assert all(len(part) <= limit for part in parts)


@given(records, st.lists(st.integers(0, 2000), min_size=1, max_size=3), st.integers(100, 700))
def test_record_larger_than_limit_is_cut_into_fragments(
    pairs: list[tuple[int, tuple[str, int]]], sizes: list[int], limit: int
) -> None:
    pairs = [*pairs, *((1, ("x" * size, size)) for size in sizes)]
    header = BufferHeader(3, 1, 10, 7, ends=True, generation=2)
    parts = CODEC.encode_within(limit, header, batch_of(pairs))
    assert all(len(part) <= limit for part in parts)
    headers = list(map(decode_header, parts))
    assert [header.sequence for header in headers] == list(range(10, 10 + len(parts)))
    assert {(header.sender, header.attempt, header.generation) for header in headers} == {(3, 1, 2)}
    assert {header.watermark for header in headers[:-1]} <= {NO_WATERMARK}
    assert [is_opaque(part) for part in parts] == [header.fragment for header in headers]
    given_back, fragments = [], list[bytes]()
    for buffer_header, part in zip(headers, parts, strict=True):
        if not buffer_header.fragment:
            assert not fragments
            given_back += list(CODEC.decode(part)[1].values)
            continue
        fragments.append(part[HEADER_BYTES:])
        if buffer_header.last_fragment:
            whole, batch = CODEC.decode(join_fragments(buffer_header, fragments))
            assert not whole.fragment
            assert len(batch) == 1
            given_back += list(batch.values)
            fragments.clear()
    assert given_back == [value for _, value in pairs]
    assert headers[-1].ends
    assert headers[-1].watermark == 7


def test_oversized_record_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MAX_RECORD_BYTES", 1_000)
    with pytest.raises(
        RecordTooLarge, match=r"a record has 1,0\d\d bytes, but a channel carries at most 1,000"
    ):
        CODEC.encode_within(400, BufferHeader(0, 0, 0, 0), batch_of([(1, ("x" * 1000, 1))]))


@given(st.binary(max_size=100))
def test_invalid_bytes_are_rejected(data: bytes) -> None:
    try:
        CODEC.decode(data)
    except BufferError:
        return
    assert data[:1] == b"\x02", "only what has the format's number may be read"


def test_truncated_buffer_is_rejected() -> None:
    data = CODEC.encode(BufferHeader(0, 0, 0, 0), batch_of([(1, ("a", 1))]))
    with pytest.raises(BufferError):
        CODEC.decode(data[:-40])


checkpoints = st.builds(
    CheckpointTrigger,
    checkpoint_id=st.integers(1, 2**40),
    timestamp=st.integers(0, 2**52),
    options=st.builds(
        CheckpointOptions,
        snapshot_type=st.sampled_from(SnapshotType),
        directory=st.text(),
        shared=st.text(),
        full=st.booleans(),
        stops=st.booleans(),
        drains=st.booleans(),
    ),
)


@given(headers, checkpoints)
def test_barrier_survives_round_trip_and_has_no_records(
    header: BufferHeader, checkpoint: CheckpointTrigger
) -> None:
    header = msgspec.structs.replace(header, barrier=True)
    data = write_barrier(header, checkpoint)
    assert is_barrier(data)
    read, batch = CODEC.decode(data)
    assert (read, len(batch)) == (header, 0)
    assert read_barrier(data) == checkpoint


@given(headers, records)
def test_buffer_of_records_is_no_barrier(
    header: BufferHeader, pairs: list[tuple[int, tuple[str, int]]]
) -> None:
    assert not is_barrier(CODEC.encode(header, batch_of(pairs)))


def test_truncated_barrier_is_rejected() -> None:
    with pytest.raises(BufferError, match="barrier"):
        read_barrier(bytes(BufferHeader(0, 0, 0, barrier=True)) + b"\xc1")
