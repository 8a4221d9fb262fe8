"""A proxy between Kafka clients and one broker that loses chosen answers, and only those.

It reads of a request no more than its API key and correlation id (the first fields of every request header since
Kafka 0.8; KIP-482 only added behind them), and of an answer its correlation id. A broker names its own address in
answers, and clients go there: wherever the address stands in an answer, the proxy's port takes the place of the
broker's, which has the same length.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Final

END_TXN: Final = 26
"""The API key of EndTxn: the end of a transaction."""

_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")


class KafkaProxy:
    """Listens on a loopback port of its own until it is closed. A context manager."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.partition(":")
        self._broker = host, int(port)
        self._server = socket.create_server(("127.0.0.1", 0))
        own = self._server.getsockname()[1]
        self.address = f"127.0.0.1:{own}"
        self._named = host.encode() + _SIZE.pack(int(port)), host.encode() + _SIZE.pack(own)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._unwanted: int | None = None
        self._close = False
        self.dropped = threading.Event()
        """Whether the answer that was to be dropped has been."""
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def drop_next(self, api_key: int, *, close: bool) -> None:
        """The next answer to such a request is lost; `close`: and the connection with it."""
        with self._lock:
            self._unwanted, self._close = api_key, close
        self.dropped.clear()

    def close(self) -> None:
        """Ends all connections, and takes no more."""
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Ends all connections that there are."""
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            _shut(each)

    def __enter__(self) -> KafkaProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._broker, timeout=10)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, broker}
            asked: dict[int, int] = {}
            for target in (self._ask, self._answer):
                threading.Thread(target=target, args=(client, broker, asked), daemon=True).start()

    def _ask(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        with contextlib.suppress(OSError):
            while (request := _frame(client)) is not None:
                api_key, _, correlation = _REQUEST.unpack_from(request)
                asked[correlation] = api_key
                broker.sendall(_SIZE.pack(len(request)) + request)
        self._end(client, broker)

    def _answer(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        with contextlib.suppress(OSError):
            while (answer := _frame(broker)) is not None:
                (correlation,) = _SIZE.unpack_from(answer)
                if self._is_unwanted(asked.pop(correlation, None)):
                    if self._close:
                        break
                    continue
                client.sendall(_SIZE.pack(len(answer)) + answer.replace(*self._named))
        self._end(client, broker)

    def _is_unwanted(self, api_key: int | None) -> bool:
        with self._lock:
            if api_key is None or api_key != self._unwanted:
                return False
            self._unwanted = None
        self.dropped.set()
        return True

    def _end(self, *sockets: socket.socket) -> None:
        with self._lock:
            self._sockets.difference_update(sockets)
        for each in sockets:
            _shut(each)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _frame(connection: socket.socket) -> bytes | None:
    """What follows a size; None at the end."""
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
