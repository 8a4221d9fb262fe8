"""Frames on local sockets: a length, then that many bytes.

Spark's Python workers forward buffers to StreamTasks with them, and the TaskExecutor exchanges MessagePack with its
StreamTask processes.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Final

_LENGTH: Final = struct.Struct("<I")
_RECEIVE_BYTES: Final = 1 << 18


def encode_frame(*parts: bytes) -> bytes:
    """Returns the parts as one frame."""
    return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))


class FrameReader:
    """Reads frames from a socket, which may be non-blocking."""

    def __init__(self, source: socket.socket) -> None:
        self.socket = source
        self._pending = bytearray()
        self.ended = False

    def receive(self) -> list[bytes]:
        """Returns the frames that one read completes; sets `ended` if the peer is gone."""
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except ConnectionError:
            data = b""
        if not data:
            self.ended = True
            return []
        self._pending += data
        return list(self._complete())

    def _complete(self) -> Iterator[bytes]:
        start, end = 0, len(self._pending)
        while end - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._pending, start)
            stop = start + _LENGTH.size + length
            if stop > end:
                break
            yield bytes(memoryview(self._pending)[start + _LENGTH.size : stop])
            start = stop
        del self._pending[:start]
