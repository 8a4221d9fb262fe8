"""A proxy between Kafka clients and one broker. It can be cut, and it can drop chosen responses.

It reads the API key and correlation id of a request (the first fields of every request header since Kafka 0.8; KIP-482
only adds fields behind them), and the correlation id of a response. Responses contain the address of the broker, which
clients connect to, so the proxy replaces the broker's port by its own of the same length.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from typing import Final

from .network_link import NetworkConnection, NetworkLink

END_TXN: Final = 26
"""The API key of EndTxn: the end of a transaction."""

_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")


class KafkaProxy(NetworkLink):
    """Listens on a loopback port of its own until it is closed. A context manager."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.partition(":")
        self._lock = threading.Lock()
        self._unwanted: int | None = None
        self._close = False
        self.dropped = threading.Event()
        """Whether the answer that was to be dropped has been."""
        super().__init__(bootstrap_servers)
        self.named = host.encode() + _SIZE.pack(int(port)), host.encode() + _SIZE.pack(self.port)
        """The broker's address as it stands in answers, and what takes its place."""

    def drop_next(self, api_key: int, *, close: bool) -> None:
        """Drops the next response to such a request; `close`: also closes the connection."""
        with self._lock:
            self._unwanted, self._close = api_key, close
        self.dropped.clear()

    def drops(self, api_key: int | None) -> bool:
        """Returns whether to drop the response to such a request. Only one is dropped."""
        with self._lock:
            if api_key is None or api_key != self._unwanted:
                return False
            self._unwanted = None
        self.dropped.set()
        return True

    @property
    def closes(self) -> bool:
        """Returns whether the connection closes together with the dropped response."""
        return self._close

    def _conversation(self) -> NetworkConnection:
        return _KafkaConnection(self)


class _KafkaConnection(NetworkConnection):
    def __init__(self, proxy: KafkaProxy) -> None:
        self._proxy = proxy
        self._asked: dict[int, int] = {}

    def requests(self, client: socket.socket) -> Iterator[bytes]:
        while (request := _frame(client)) is not None:
            api_key, _, correlation = _REQUEST.unpack_from(request)
            self._asked[correlation] = api_key
            yield _SIZE.pack(len(request)) + request

    def answers(self, server: socket.socket) -> Iterator[bytes]:
        while (answer := _frame(server)) is not None:
            (correlation,) = _SIZE.unpack_from(answer)
            if self._proxy.drops(self._asked.pop(correlation, None)):
                if self._proxy.closes:
                    return
                continue
            yield _SIZE.pack(len(answer)) + answer.replace(*self._proxy.named)


def _frame(connection: socket.socket) -> bytes | None:
    """Reads a frame with its size in front; returns None at the end."""
    head = _exactly(connection, _SIZE.size)
    return None if head is None else _exactly(connection, *_SIZE.unpack(head))


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            return None
        data += part
    return bytes(data)
