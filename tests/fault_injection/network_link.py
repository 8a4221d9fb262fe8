"""A network between clients and one server that a test can cut and heal.

A proxy on a loopback port of its own. A cut link loses packets: connections stay open, nothing passes, and after
healing the data arrives, as with TCP retransmissions. A severed link is a machine that is down: connections close, also
new ones. Clients that connect directly are not affected.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Final, Self

REQUESTS: Final = "requests"
ANSWERS: Final = "answers"
"""The two directions."""

_CHUNK: Final = 1 << 16
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time; closing then is a reset (socket(7))."""


class NetworkConnection:
    """Forwards the data of one connection unchanged. Subclasses inspect it, change it, and close the connection."""

    def requests(self, client: socket.socket) -> Iterator[bytes]:
        """Forwards data to the server until the client closes."""
        return _chunks(client)

    def answers(self, server: socket.socket) -> Iterator[bytes]:
        """Forwards data to the client until the server closes."""
        return _chunks(server)


class NetworkLink:
    """Forwards connections from `address` to a server (host:port) until it is closed. A context manager."""

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._far = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._changed = threading.Condition()
        self._held: set[str] = set()
        self._severed = self._closed = False
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="link", daemon=True).start()

    def cut(self, *, requests: bool = True, answers: bool = True) -> None:
        """Lets nothing pass, or nothing in one direction. Connections stay open, and new ones hang."""
        with self._changed:
            self._held = {way for way, held in ((REQUESTS, requests), (ANSWERS, answers)) if held}

    def sever(self) -> None:
        """Closes all connections, and every new one until `heal`."""
        with self._changed:
            self._severed = True
        self.reset()

    def heal(self) -> None:
        """Lets everything pass again, held data first."""
        with self._changed:
            self._held = set()
            self._severed = False
            self._changed.notify_all()

    def reset(self) -> None:
        """Closes the present connections; new ones are accepted."""
        with self._changed:
            sockets = list(self._sockets)
        for item in sockets:
            _shut(item)

    @property
    def connections(self) -> int:
        """Returns how many connections to the server are open."""
        with self._changed:
            return len(self._sockets) // 2

    def close(self) -> None:
        """Closes all connections and accepts no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        _shut(self._listener)
        self.reset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _conversation(self) -> NetworkConnection:
        return NetworkConnection()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        if self._severed:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        # A handshake needs both directions.
        if self._severed or not self._wait(REQUESTS, ANSWERS):
            client.close()
            return
        try:
            server = socket.create_connection(self._far, timeout=10)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        for item in (client, server):
            item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            self._sockets |= {client, server}
            over = self._severed or self._closed
        if over:
            self._end(client, server)
            return
        conversation = self._conversation()
        ask = conversation.requests(client), server, REQUESTS, client
        answer = conversation.answers(server), client, ANSWERS, server
        for arguments in (ask, answer):
            threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(self, passing: Iterator[bytes], target: socket.socket, way: str, source: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for data in passing:
                if not self._wait(way):
                    break
                target.sendall(data)
        # Nor does an end get through a network that is cut.
        self._wait(way)
        self._end(source, target)

    def _wait(self, *ways: str) -> bool:
        """Waits until data may pass in the directions. Returns False if the link is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._held.isdisjoint(ways))
            return not self._closed

    def _end(self, *sockets: socket.socket) -> None:
        with self._changed:
            self._sockets.difference_update(sockets)
        for item in sockets:
            _shut(item)


def _chunks(connection: socket.socket) -> Iterator[bytes]:
    while data := connection.recv(_CHUNK):
        yield data


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
