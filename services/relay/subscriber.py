"""The relay's end of one connection: what the reader wants, and the frames that it has not received yet."""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from enum import StrEnum
from itertools import islice
from typing import Final

from ..blobs.shared_secret_auth import random_nonce
from .protocol import LARGEST_REQUEST_BYTES, FrameDecoder

_FRAMES_PER_SEND: Final = 64
_DEAD_AFTER_S: Final = 30
_READ_BYTES: Final = 64 << 10


class Stage(StrEnum):
    """What the relay sends to a reader."""

    NEW = "NEW"
    """Nothing: it has not subscribed."""
    HISTORY = "HISTORY"
    """Records that are not in memory any more; or it waits for the next reading of them."""
    LIVE = "LIVE"
    """Each record once it is read."""


class Subscriber:
    """For callers that hold the server's lock. Frames are queued, then sent by `flush`, which does not block."""

    def __init__(self, connection: socket.socket) -> None:
        """A connection with TLS sends and receives nothing before its `handshake`."""
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _DEAD_AFTER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER_S * 1000)
        self.socket: Final = connection
        self.challenge: Final = random_nonce()
        self.received: Final = FrameDecoder(LARGEST_REQUEST_BYTES)
        self.stage = Stage.NEW
        self.addresses: frozenset[str] = frozenset()
        self.position = 0
        """All its records below it have been queued; in the stage LIVE also those below the server's position."""
        self.progress_sent_at = self.since = time.monotonic()
        """The time of the last Progress, and of the connection."""
        self.progress_sent = -1
        """The position of the last Progress."""
        self.is_closing = False
        """Whether it is closed once everything is sent."""
        self.has_handshake = not isinstance(connection, ssl.SSLSocket)
        """Whether the TLS handshake is complete; True without TLS."""
        self.was_sent = True
        """The last result of `flush`."""
        self.pending_bytes = 0
        self._pending: deque[bytes | memoryview] = deque()

    @property
    def pending_count(self) -> int:
        """The number of frames that are not sent."""
        return len(self._pending)

    def queue(self, frame: bytes) -> None:
        """Adds a frame."""
        self._pending.append(frame)
        self.pending_bytes += len(frame)

    def handshake(self) -> bool:
        """Continues the TLS handshake: the client has sent something. Returns whether it is complete. Raises
        OSError."""
        assert isinstance(self.socket, ssl.SSLSocket)
        try:
            self.socket.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        self.has_handshake = True
        return True

    def receive(self) -> bytes | None:
        """Returns what has come, at most a TLS record at once: empty at the end, None for nothing. Raises OSError."""
        try:
            return self.socket.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None

    def flush(self) -> bool:
        """Sends what the connection takes; returns whether everything is sent. Raises OSError."""
        pending = self._pending
        while pending:
            try:
                sent = self._send_some()
            except (BlockingIOError, ssl.SSLWantWriteError):
                return False
            self.pending_bytes -= sent
            while sent:
                size = len(pending[0])
                if size > sent:
                    pending[0] = memoryview(pending[0])[sent:]
                    break
                sent -= size
                pending.popleft()
        return True

    def _send_some(self) -> int:
        if isinstance(self.socket, ssl.SSLSocket):
            # It has no sendmsg.
            return self.socket.send(self._pending[0])
        return self.socket.sendmsg(list(islice(self._pending, _FRAMES_PER_SEND)))
