"""The network between one master and Kafka, and between it and each server of ZooKeeper, for a test to take away."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from tailrace.schemas.primitives import write_long, write_string

from ..fault_injection.kafka_proxy import KafkaProxy
from ..fault_injection.network_link import NetworkConnection, NetworkLink

PRODUCE: Final = 0
"""The API key of what appends records."""
_SIZE_AND_KEY: Final = struct.Struct(">ih")
_MOST: Final = 1 << 20
_BETWEEN_LOOKS_S: Final = 0.05


def event_prefix(sender: str, epoch: int, recipient: str) -> bytes:
    """Who says it and to whom, as any event's header has it."""
    return write_string(sender) + write_long(epoch) + write_string(recipient)


class KafkaLink(KafkaProxy):
    """Can keep back what the master appends: it goes on reading, and what it says is on its way for as long as is
    wanted, as with a network whose packets come late."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._first = self._last = b""
        self._passing = threading.Event()
        self._passing.set()
        self.held = threading.Event()
        """Whether what `hold` was to wait for has been kept back."""
        super().__init__(bootstrap_servers)

    def hold(self, first: bytes, last: bytes = b"") -> None:
        """What the master appends from now on is on its way, from the first request on that has the one in it; `held`
        is set once the other is among it."""
        self._first, self._last = first, last
        self.held.clear()
        self._passing.clear()

    def release(self) -> None:
        """All of it arrives."""
        self._passing.set()

    def pass_on(self, request: bytes, client: socket.socket) -> None:
        """Returns when the request may go on its way."""
        _, api_key = _SIZE_AND_KEY.unpack_from(request)
        if api_key == PRODUCE and not self._passing.is_set() and self._first in request:
            while self._last not in request + _peek_bytes(client) and not self._passing.wait(
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


def _peek_bytes(connection: socket.socket) -> bytes:
    """What has come and nobody has read yet, which stays there."""
    with contextlib.suppress(BlockingIOError):
        return connection.recv(_MOST, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return b""


class Network:
    """All links of one master. A context manager."""

    def __init__(self, kafka: str, zookeeper: Sequence[str]) -> None:
        with contextlib.ExitStack() as stack:
            self.kafka = stack.enter_context(KafkaLink(kafka))
            self.zookeeper = [stack.enter_context(NetworkLink(each)) for each in zookeeper]
            self._closing = stack.pop_all()

    def cut_zookeeper(self) -> None:
        """No server of ZooKeeper is reached, and nobody is told."""
        for link in self.zookeeper:
            link.cut()

    def heal(self) -> None:
        """Everything is as it was."""
        for link in (self.kafka, *self.zookeeper):
            link.heal()

    def close(self) -> None:
        """Ends all connections."""
        self._closing.close()
