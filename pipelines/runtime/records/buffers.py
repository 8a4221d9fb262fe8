"""Buffers: what one Kafka message on a channel holds.

A buffer is a fixed header and, unless it is a control buffer, one Arrow record batch: a column of
timestamps and the columns of the channel's record type; a few rows are MessagePack instead. The schema is
not in it: both ends have the job graph. The header says who sent it (subtask and attempt), its place in what
that attempt sent on this channel (sequence number, from 0), how far event time has come after its records,
whether the sender is idle, and whether its output ends with it; and of which generation of the job it is. Spark hands
buffers on unread, or with other records under the same header.

A *barrier* is a buffer too, numbered like any other: instead of records it holds the checkpoint that it belongs to.
What its sender sent before it is part of that checkpoint, and what follows it is not (Chandy and Lamport 1985, as
adapted by Carbone et al. 2015).

A record that is larger than a message is sent in *fragments*: consecutive buffers with a part of its payload each.

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
"""Of a watermark, or a clock, that nobody has told yet."""
MAX_RECORD_BYTES: Final = 32 << 20
"""Bytes of a record on a channel at most."""
MAX_WATERMARK: Final = (1 << 63) - 1
"""Of a channel that has ended, on both clocks: nothing follows."""

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
_SMALL: Final = b"\x00"
"""How a payload begins that is no Arrow message: these begin with 0xFF."""

_NO_PAYLOAD: Final = b"\x01"
"""Neither a small batch nor an Arrow message."""


class BufferError(ValueError):
    """Bytes on a channel are no buffer, or none of the channel's record type."""


class RecordTooLarge(ValueError):
    """A record that no channel carries."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a record has {size:,} bytes, and a channel carries at most {MAX_RECORD_BYTES:,}")


class BufferHeader(msgspec.Struct, frozen=True, gc=False):
    """What precedes the records of a buffer."""

    sender: int
    attempt: int
    sequence: int
    watermark: int = NO_WATERMARK
    """Event time."""
    ends: bool = False
    idle: bool = False
    """Whether the receiver is to go on without this sender's watermark."""
    tick: bool = False
    """Whether it only tells the time, outside of transactions: it has the number of the next buffer, and takes none."""
    generation: int = 0
    """How often the job was rolled back before the sender began: what older ones sent counts for nothing."""
    barrier: bool = False
    """Whether it holds a checkpoint instead of records."""
    stops: bool = False
    """Of an end: the sender was stopped with a savepoint, and what it held back is kept there for later."""
    fragment: bool = False
    """Whether it holds a part of one record: the sender's neighbouring buffers hold the others."""
    last_fragment: bool = False
    """Whether it holds the last part; then `fragment` is true as well."""

    def __bytes__(self) -> bytes:
        flags = (
            _ENDS * self.ends
            | _IDLE * self.idle
            | _TICK * self.tick
            | _BARRIER * self.barrier
            | _STOPS * self.stops
            | _FRAGMENT * self.fragment
            | _LAST_FRAGMENT * self.last_fragment
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
        """A buffer. Raises RecordTypeError where a value does not fit the record type."""
        return bytes(header) + self.payload(batch)

    def decode(self, data: bytes) -> tuple[BufferHeader, Batch]:
        """Header and records of a buffer; as columns, unless they are few. Raises BufferError.

        None of a barrier or a fragment.
        """
        header = decode_header(data)
        return header, EMPTY if header.barrier or header.fragment else self.read_payload(data, _HEADER.size)

    def encode_within(self, limit: int, header: BufferHeader, batch: Batch) -> list[bytes]:
        """Buffers of at most `limit` bytes that together hold the batch, with ascending sequence numbers.

        The first has the header's sequence number, the last one its watermark, idleness and end; those before it
        promise none. A single record that is larger than `limit` is cut into fragments. Raises RecordTypeError, and
        RecordTooLarge for one that is larger than LARGEST_RECORD.
        """
        parts = [part for payload in self._split(limit, batch) for part in _fragments(limit, payload)]
        last = len(parts) - 1
        return [bytes(_part(header, i, last, flags)) + part for i, (flags, part) in enumerate(parts)]

    def payload(self, batch: Batch) -> bytes:
        """The records of a buffer without its header; nothing for no records. Raises RecordTypeError."""
        if not len(batch):
            return b""
        if len(batch) <= (MAX_SMALL_COLUMN_ROWS if batch.is_columnar else MAX_SMALL_ROWS):
            small = self._small.encode(batch.timestamps, batch.values)
            if small is not None:
                return _SMALL + small
        columns = [batch.timestamp_column(), *batch.columns(self.record_type)]
        return bytes(pa.RecordBatch.from_arrays(columns, schema=self._schema).serialize())

    def read_payload(self, data: bytes, start: int = 0) -> Batch:
        """What `payload` wrote; `start` is where it begins in `data`. Raises BufferError."""
        if len(data) == start:
            return EMPTY
        try:
            if data[start] == _SMALL[0]:
                return Batch(*self._small.decode(memoryview(data)[start + 1 :]))
            payload = pa.py_buffer(data)
            timestamps, *columns = pa.ipc.read_record_batch(
                payload.slice(start) if start else payload, self._schema
            ).columns
        except Exception as error:  # nobody knows what other bytes make of the libraries that read them
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
    """The header of a buffer. Raises BufferError."""
    if len(data) < _HEADER.size or data[0] != _FORMAT:
        raise BufferError(f"{len(data)} bytes that begin {data[:8].hex()} are no buffer of format {_FORMAT}")
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
    )


def write_barrier(header: BufferHeader, checkpoint: CheckpointTrigger) -> bytes:
    """The barrier of a checkpoint; the header says that it is one."""
    return bytes(header) + msgspec.msgpack.encode(checkpoint)


def read_barrier(data: bytes) -> CheckpointTrigger:
    """What `write_barrier` was given. Raises BufferError."""
    try:
        return msgspec.msgpack.decode(memoryview(data)[_HEADER.size :], type=CheckpointTrigger)
    except msgspec.MsgspecError as error:
        raise BufferError(f"a barrier of {len(data)} bytes has no readable checkpoint: {error}") from error


def without_records(data: bytes) -> bytes:
    """Of bytes that are no buffer: bytes that are none either, with the same header, if there is one."""
    return data[: _HEADER.size] + _NO_PAYLOAD


def join_fragments(last: BufferHeader, parts: Sequence[bytes]) -> bytes:
    """The buffer that fragments make together: the payloads of all, and the header of the last one."""
    header = msgspec.structs.replace(last, fragment=False, last_fragment=False)
    return b"".join([bytes(header), *parts])


def is_barrier(data: bytes) -> bool:
    """Whether a buffer is a barrier."""
    return len(data) >= _HEADER.size and data[0] == _FORMAT and data[1] & _BARRIER != 0


def is_opaque(data: bytes) -> bool:
    """Whether nobody on the way may change a buffer: it is a barrier or a fragment."""
    return len(data) >= _HEADER.size and data[0] == _FORMAT and data[1] & (_BARRIER | _FRAGMENT) != 0


_Flags = tuple[bool, bool]
"""`fragment` and `last_fragment` of a header."""


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
