"""Buffers: what one Kafka message on a channel holds.

A buffer is a fixed header and, unless it is a control buffer, one Arrow record batch: a column of
timestamps and the columns of the channel's record type. The schema is not in it: both ends have the
job graph. The header says who sent it (subtask and attempt), its place in what that attempt sent on this
channel (sequence number, from 0), the watermark that holds after its records, and whether the sender's
output ends with it. Spark hands buffers on unread, or with other records under the same header.

Times are milliseconds since the epoch. A watermark W means: no record with a timestamp <= W follows.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from ..types import RecordType

NO_WATERMARK: Final = -(1 << 63)
END_OF_TIME: Final = (1 << 63) - 1
"""The watermark of a channel that has ended: nothing follows."""

TIMESTAMP_COLUMN: Final = "~timestamp"

_FORMAT: Final = 1
_HEADER: Final = struct.Struct("<BBHIQq")
_ENDS: Final = 1


class BufferError(ValueError):
    """Bytes on a channel are no buffer, or none of the channel's record type."""


class Header(msgspec.Struct, frozen=True, gc=False):
    """What precedes the records of a buffer."""

    sender: int
    attempt: int
    sequence: int
    watermark: int
    ends: bool = False

    def __bytes__(self) -> bytes:
        flags = _ENDS if self.ends else 0
        return _HEADER.pack(_FORMAT, flags, self.sender, self.attempt, self.sequence, self.watermark)


class BufferCodec:
    """Writes and reads the buffers of channels with one record type."""

    def __init__(self, record_type: RecordType) -> None:
        self._record_type = record_type
        self._schema = pa.schema(
            [pa.field(TIMESTAMP_COLUMN, pa.int64(), nullable=False), *record_type.schema()]
        )

    def encode(self, header: Header, batch: Batch = EMPTY) -> bytes:
        """A buffer. Raises RecordTypeError where a value does not fit the record type."""
        if not batch.values:
            return bytes(header)
        columns = [pa.array(batch.timestamps, pa.int64()), *self._record_type.to_columns(batch.values)]
        payload = pa.RecordBatch.from_arrays(columns, schema=self._schema).serialize()
        return bytes(header) + bytes(payload)

    def decode(self, data: bytes) -> tuple[Header, Batch]:
        """Header and records of a buffer. Raises BufferError."""
        header = header_of(data)
        if len(data) == _HEADER.size:
            return header, EMPTY
        try:
            payload = pa.py_buffer(memoryview(data)[_HEADER.size :])
            columns = pa.ipc.read_record_batch(payload, self._schema).columns
        except (pa.ArrowException, OSError) as error:
            raise BufferError(f"a buffer of {len(data)} bytes has no readable records: {error}") from error
        timestamps = columns[0].to_numpy().tolist()
        return header, Batch(timestamps, self._record_type.from_columns(columns[1:]))

    def encode_within(self, limit: int, header: Header, batch: Batch) -> list[bytes]:
        """Buffers of at most `limit` bytes that together hold the batch, with ascending sequence numbers.

        The first has the header's sequence number, the last one its watermark and end; those before it
        promise none. Raises RecordTypeError, and ValueError for a single record that is larger than `limit`.
        """
        parts = _split(self, limit, batch)
        last = len(parts) - 1
        return [bytes(_part(header, i, last)) + part for i, part in enumerate(parts)]

    def payload(self, batch: Batch) -> bytes:
        """The records of a buffer without its header."""
        return self.encode(_NO_HEADER, batch)[_HEADER.size :]


def header_of(data: bytes) -> Header:
    """The header of a buffer. Raises BufferError."""
    if len(data) < _HEADER.size or data[0] != _FORMAT:
        raise BufferError(f"{len(data)} bytes that begin {data[:8].hex()} are no buffer of format {_FORMAT}")
    _, flags, sender, attempt, sequence, watermark = _HEADER.unpack_from(data)
    return Header(sender, attempt, sequence, watermark, bool(flags & _ENDS))


_NO_HEADER: Final = Header(0, 0, 0, NO_WATERMARK)


def _part(header: Header, index: int, last: int) -> Header:
    watermark, ends = (header.watermark, header.ends) if index == last else (NO_WATERMARK, False)
    return Header(header.sender, header.attempt, header.sequence + index, watermark, ends)


def _split(codec: BufferCodec, limit: int, batch: Batch) -> list[bytes]:
    payload = codec.payload(batch)
    if len(payload) + _HEADER.size <= limit:
        return [payload]
    if len(batch) == 1:
        raise ValueError(f"a record takes {len(payload)} bytes on its channel, which carries at most {limit}")
    middle = len(batch) // 2
    first = Batch(batch.timestamps[:middle], batch.values[:middle])
    second = Batch(batch.timestamps[middle:], batch.values[middle:])
    return [*_split(codec, limit, first), *_split(codec, limit, second)]

