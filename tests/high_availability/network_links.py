"""The network between one master and Kafka, and between it and each ZooKeeper server, which a test can cut."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from tailrace.schemas.primitives import write_long, write_string

from ..fault_injection.kafka_proxy import KafkaProxy
from ..fault_injection.network_link import NetworkConnection, NetworkLink

PRODUCE: Final = 0
"""The API key of what appends records."""
FETCH: Final = 1
"""The API key of what reads them."""
_SIZE_AND_KEY: Final = struct.Struct(">ih")
_MOST: Final = 1 << 20
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
"""How a frame of zstd begins."""
_BETWEEN_LOOKS_S: Final = 0.05


def event_prefix(sender: str, epoch: int, recipient: str) -> bytes:
    """Returns the bytes of sender and recipient as they stand in the header of an event."""
    return write_string(sender) + write_long(epoch) + write_string(recipient)


class KafkaLink(KafkaProxy):
    """Can delay what the master appends, while the master continues to read: a network whose packets arrive late."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._first = self._last = b""
        self._passing = threading.Event()
        self._passing.set()
        self._fetching = threading.Event()
        self._fetching.set()
        self.held = threading.Event()
        """Whether what `hold` was to wait for has been kept back."""
        super().__init__(bootstrap_servers)

    def hold(self, first: bytes, last: bytes = b"") -> None:
        """Delays what the master appends, from the first request that contains one byte string on; sets `held` when
        another byte string is delayed too."""
        self._first, self._last = first, last
        self.held.clear()
        self._passing.clear()

    def hold_fetches(self) -> None:
        """Delays everything that reads records; appends and questions for the end of the log pass."""
        self._fetching.clear()

    def release(self) -> None:
        """Delivers the delayed requests."""
        self._passing.set()
        self._fetching.set()

    def pass_on(self, request: bytes, client: socket.socket) -> None:
        """Returns when the request may pass."""
        _, api_key = _SIZE_AND_KEY.unpack_from(request)
        if api_key == FETCH:
            self._fetching.wait()
        if api_key == PRODUCE and not self._passing.is_set() and self._first in _decompressed(request):
            while self._last not in _decompressed(request + _peek_bytes(client)) and not self._passing.wait(
                _BETWEEN_LOOKS_S
            ):
                pass
            self.held.set()
            self._passing.wait()

    def close(self) -> None:
        self.release()
        super().close()

    def _conversation(self) -> NetworkConnection:
        return _DelayedConnection(super()._conversation(), self)


class _DelayedConnection(NetworkConnection):
    def __init__(self, inner: NetworkConnection, link: KafkaLink) -> None:
        self._inner, self._link = inner, link

    def requests(self, client: socket.socket) -> Iterator[bytes]:
        for request in self._inner.requests(client):
            self._link.pass_on(request, client)
            yield request

    def answers(self, server: socket.socket) -> Iterator[bytes]:
        return self._inner.answers(server)


def _decompressed(requests: bytes) -> bytes:
    """Returns the requests with the content of their compressed batches."""
    parts, start = [requests], requests.find(_ZSTD)
    while start >= 0:
        # A frame that has not arrived as a whole, or bytes that look like one.
        with (
            contextlib.suppress(OSError),
            pa.CompressedInputStream(pa.py_buffer(requests[start:]), "zstd") as frame,
        ):
            while chunk := frame.read(1):
                parts.append(chunk)
        start = requests.find(_ZSTD, start + 1)
    return b"".join(parts)


def _peek_bytes(connection: socket.socket) -> bytes:
    """Returns the received bytes that nobody has read, and leaves them in the socket."""
    with contextlib.suppress(BlockingIOError):
        return connection.recv(_MOST, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return b""


class Network:
    """All links of one master. A context manager."""

    def __init__(self, kafka: str, zookeeper: Sequence[str]) -> None:
        with contextlib.ExitStack() as stack:
            self.kafka = stack.enter_context(KafkaLink(kafka))
            self.zookeeper = [stack.enter_context(NetworkLink(item)) for item in zookeeper]
            self._closing = stack.pop_all()

    def cut_zookeeper(self) -> None:
        """Cuts all servers of ZooKeeper; connections stay open."""
        for link in self.zookeeper:
            link.cut()

    def heal(self) -> None:
        """Heals all links."""
        for link in (self.kafka, *self.zookeeper):
            link.heal()

    def close(self) -> None:
        """Closes all connections."""
        self._closing.close()
