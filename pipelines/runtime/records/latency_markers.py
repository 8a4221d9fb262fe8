"""Latency markers (Flink's LatencyMarker): a source emits them at intervals, and whoever receives one knows how long
records take to come here.

A marker is a buffer on a channel, behind the records that its sender has sent before. It takes no sequence number, and
tells neither event time nor idleness, so no result depends on it. It goes into the transaction of these records, or
outside of transactions if nothing waits for a commit. It may get lost.
"""

from __future__ import annotations

import msgspec

from .buffers import HEADER_BYTES, BufferHeader


class LatencyMarker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A marker of one subtask of a source."""

    created: int
    """In milliseconds since the epoch."""
    source_id: str
    """The operator id of the source."""
    source_subtask: int


_DECODER = msgspec.msgpack.Decoder(LatencyMarker)


def write_marker(header: BufferHeader, marker: LatencyMarker) -> bytes:
    """Returns the buffer of a marker; its header says that it is one."""
    return bytes(header) + msgspec.msgpack.encode(marker)


def read_marker(data: bytes) -> LatencyMarker | None:
    """Returns the marker of a buffer; None if it cannot be read: a measurement must not fail a task."""
    try:
        return _DECODER.decode(memoryview(data)[HEADER_BYTES:])
    except msgspec.MsgspecError:
        return None
