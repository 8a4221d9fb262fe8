"""Buffers: the content of a Kafka message on a channel.

A buffer is a fixed header and, unless it is a control buffer, one Arrow record batch: a column of timestamps and the
columns of the channel's record type. A few rows are MessagePack instead. A buffer does not contain the schema: both
ends have the job graph. The header has the sender (subtask and attempt), the sequence number among the buffers of that
attempt on this channel (from 0), the event time after its records, whether the sender is idle, whether its output ends,
and the generation of the job. Spark forwards buffers unread, or with other records under the same header.

A *barrier* is a buffer too, with a sequence number like any other: instead of records it has the id of its checkpoint.
Everything that its sender sent before it is part of that checkpoint, everything after it is not (Chandy and Lamport
1985, as adapted by Carbone et al. 2015).

A *latency marker* is outside of that order (latency_markers.py): it takes no number and tells no time.

A record that is larger than a message is sent in *fragments*: consecutive buffers, each with a part of its payload.

Times are milliseconds since the epoch. A watermark W means: no record with a timestamp <= W follows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from ...types import RecordType
from ..common.deployment import CheckpointTrigger
from .batch import EMPTY, Batch
from .small_batches import MAX_SMALL_COLUMN_ROWS, MAX_SMALL_ROWS, SmallBatchCodec

NO_WATERMARK: Final = -(1 << 63)
"""The value of a watermark or clock that has not been set."""
MAX_RECORD_BYTES: Final = 32 << 20
"""The size limit of a record on a channel, in bytes."""
MAX_WATERMARK: Final = (1 << 63) - 1
"""The value of both clocks after the end of a channel."""

TIMESTAMP_COLUMN: Final = "~timestamp"

_FORMAT: Final = 3
_HEADER: Final = struct.Struct("<BBHIIQq8x")
HEADER_BYTES: Final = _HEADER.size
"""Bytes before the payload."""
_ENDS: Final = 1
_IDLE: Final = 2
_TICK: Final = 4
_BARRIER: Final = 8
_STOPS: Final = 16
_FRAGMENT: Final = 32
_LAST_FRAGMENT: Final = 64
_MARKER: Final = 128
_SMALL: Final = b"\x00"
"""The first byte of a small batch; that of an Arrow message is 0xFF."""

_NO_PAYLOAD: Final = b"\x01"
"""Neither a small batch nor an Arrow message."""


class BufferError(ValueError):
    """Bytes on a channel are not a buffer, or not of the channel's record type."""


class RecordTooLarge(ValueError):
    """A record is too large for any channel."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a record has {size:,} bytes, but a channel carries at most {MAX_RECORD_BYTES:,}")


class BufferHeader(msgspec.Struct, frozen=True, gc=False):
    """The header before the records of a buffer."""

    sender: int
    attempt: int
    sequence: int
    watermark: int = NO_WATERMARK
    """Event time."""
    ends: bool = False
    idle: bool = False
    """Whether this sender is idle: the receiver does not wait for its watermark."""
    tick: bool = False
    """Whether it only carries the time, outside of transactions: it has the number of the next buffer, without using
    it up."""
    generation: int = 0
    """The number of rollbacks of the job before the sender began: messages of older generations are ignored."""
    barrier: bool = False
    """Whether it contains a checkpoint id instead of records."""
    stops: bool = False
    """At an end: a savepoint stopped the sender, and the savepoint contains the records that the sender held back."""
    fragment: bool = False
    """Whether it contains a part of one record: the sender's neighbouring buffers contain the others."""
    last_fragment: bool = False
    """Whether it contains the last part; then `fragment` is true as well."""
    marker: bool = False
    """Whether it contains a latency marker instead of records."""

    def __bytes__(self) -> bytes:
        flags = (
            _ENDS * self.ends
            | _IDLE * self.idle
            | _TICK * self.tick
            | _BARRIER * self.barrier
            | _STOPS * self.stops
            | _FRAGMENT * self.fragment
            | _LAST_FRAGMENT * self.last_fragment
            | _MARKER * self.marker
        )
        return _HEADER.pack(
            _FORMAT,
            flags,
            self.sender,
            self.attempt,
            self.generation,
            self.sequence,
            self.watermark,
        )


class BufferCodec:
    """Writes and reads the buffers of channels with one record type."""

    def __init__(self, record_type: RecordType) -> None:
        self.record_type = record_type
        self._small = SmallBatchCodec(record_type)
        self._schema = pa.schema(
            [pa.field(TIMESTAMP_COLUMN, pa.int64(), nullable=False), *record_type.schema()]
        )

    def encode(self, header: BufferHeader, batch: Batch = EMPTY) -> bytes:
        """Returns a buffer. Raises RecordTypeError if a value does not fit the record type."""
        return bytes(header) + self.payload(batch)

    def decode(self, data: bytes) -> tuple[BufferHeader, Batch]:
        """Returns header and records of a buffer; as columns, unless they are few. Raises BufferError.

        A barrier, a fragment and a latency marker have no records.
        """
        header = decode_header(data)
        has_records = not (header.barrier or header.fragment or header.marker)
        return header, self.read_payload(data, _HEADER.size) if has_records else EMPTY

    def encode_within(self, limit: int, header: BufferHeader, batch: Batch) -> list[bytes]:
        """Returns buffers of at most `limit` bytes that together hold the batch, with ascending sequence numbers.

        The first has the header's sequence number, the last one its watermark, idleness and end; the others have none
        of these. A single record that is larger than `limit` is cut into fragments. Raises RecordTypeError, and
        RecordTooLarge for a record that is larger than LARGEST_RECORD.
        """
        parts = [part for payload in self._split(limit, batch) for part in _fragments(limit, payload)]
        last = len(parts) - 1
        return [bytes(_part(header, i, last, flags)) + part for i, (flags, part) in enumerate(parts)]

    def check_sizes(self, batch: Batch, most_bytes: int) -> None:
        """Raises RecordTooLarge if a record is too large for a channel. `most_bytes` is at least the size of all
        values: only if it is near the limit, the records are encoded."""
        if most_bytes > MAX_RECORD_BYTES // 2:
            self._split(MAX_RECORD_BYTES, batch)

    def payload(self, batch: Batch) -> bytes:
        """Returns the records of a buffer without its header; empty if there are none. Raises RecordTypeError."""
        if not len(batch):
            return b""
        if len(batch) <= (MAX_SMALL_COLUMN_ROWS if batch.is_columnar else MAX_SMALL_ROWS):
            small = self._small.encode(batch.timestamps, batch.values)
            if small is not None:
                return _SMALL + small
        columns = [batch.timestamp_column(), *batch.columns(self.record_type)]
        return bytes(pa.RecordBatch.from_arrays(columns, schema=self._schema).serialize())

    def read_payload(self, data: bytes, start: int = 0) -> Batch:
        """Decodes what `payload` returned, from `start` in `data`. Raises BufferError."""
        if len(data) == start:
            return EMPTY
        try:
            if data[start] == _SMALL[0]:
                return Batch(*self._small.decode(memoryview(data)[start + 1 :]))
            # A copy, because values behind the header are not aligned: Arrow's kernels warn about them on stderr.
            payload = pa.py_buffer(data[start:])
            timestamps, *columns = pa.ipc.read_record_batch(payload, self._schema).columns
        except Exception as error:  # invalid bytes may make the libraries raise any error
            raise BufferError(f"a buffer of {len(data)} bytes has no readable records: {error}") from error
        return Batch.from_columns(timestamps, columns, self.record_type)

    def _split(self, limit: int, batch: Batch) -> list[bytes]:
        payload = self.payload(batch)
        if len(payload) + _HEADER.size <= limit:
            return [payload]
        if len(batch) == 1:
            if len(payload) > MAX_RECORD_BYTES:
                raise RecordTooLarge(len(payload))
            return [payload]
        middle = len(batch) // 2
        return [
            *self._split(limit, batch.slice(0, middle)),
            *self._split(limit, batch.slice(middle, len(batch))),
        ]


def decode_header(data: bytes) -> BufferHeader:
    """Returns the header of a buffer. Raises BufferError."""
    if len(data) < _HEADER.size or data[0] != _FORMAT:
        raise BufferError(
            f"{len(data)} bytes that begin {data[:8].hex()} are not a buffer of format {_FORMAT}"
        )
    _, flags, sender, attempt, generation, sequence, watermark = _HEADER.unpack_from(data)
    return BufferHeader(
        sender,
        attempt,
        sequence,
        watermark,
        flags & _ENDS != 0,
        flags & _IDLE != 0,
        flags & _TICK != 0,
        generation,
        flags & _BARRIER != 0,
        flags & _STOPS != 0,
        flags & _FRAGMENT != 0,
        flags & _LAST_FRAGMENT != 0,
        flags & _MARKER != 0,
    )


def write_barrier(header: BufferHeader, checkpoint: CheckpointTrigger) -> bytes:
    """Returns the barrier of a checkpoint; its header says that it is a barrier."""
    return bytes(header) + msgspec.msgpack.encode(checkpoint)


def read_barrier(data: bytes) -> CheckpointTrigger:
    """Returns the checkpoint of a barrier. Raises BufferError."""
    try:
        return msgspec.msgpack.decode(memoryview(data)[_HEADER.size :], type=CheckpointTrigger)
    except msgspec.MsgspecError as error:
        raise BufferError(f"a barrier of {len(data)} bytes has no readable checkpoint: {error}") from error


def without_records(data: bytes) -> bytes:
    """Returns a short prefix of bytes that are not a buffer: also not a buffer, with the same header, if there is
    one."""
    return data[: _HEADER.size] + _NO_PAYLOAD


def join_fragments(last: BufferHeader, parts: Sequence[bytes]) -> bytes:
    """Returns the buffer of these fragments: the payloads of all, and the header of the last one."""
    header = msgspec.structs.replace(last, fragment=False, last_fragment=False)
    return b"".join([bytes(header), *parts])


def is_barrier(data: bytes) -> bool:
    """Whether a buffer is a barrier."""
    return len(data) >= _HEADER.size and data[0] == _FORMAT and data[1] & _BARRIER != 0


def is_opaque(data: bytes) -> bool:
    """Whether a buffer must be forwarded unchanged: it is a barrier, a fragment or a latency marker."""
    return (
        len(data) >= _HEADER.size and data[0] == _FORMAT and data[1] & (_BARRIER | _FRAGMENT | _MARKER) != 0
    )


_Flags = tuple[bool, bool]
"""The flags `fragment` and `last_fragment` of a header."""


def _fragments(limit: int, payload: bytes) -> list[tuple[_Flags, bytes]]:
    size = limit - _HEADER.size
    if len(payload) <= size:
        return [((False, False), payload)]
    starts = range(0, len(payload), size)
    return [((True, start == starts[-1]), payload[start : start + size]) for start in starts]


def _part(header: BufferHeader, index: int, last: int, flags: _Flags) -> BufferHeader:
    sequence, (fragment, last_fragment) = header.sequence + index, flags
    if index == last:
        return msgspec.structs.replace(
            header, sequence=sequence, fragment=fragment, last_fragment=last_fragment
        )
    return BufferHeader(
        header.sender,
        header.attempt,
        sequence,
        generation=header.generation,
        fragment=fragment,
        last_fragment=last_fragment,
    )
