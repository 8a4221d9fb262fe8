"""The network between some clients and one server, which a test can take away and give back.

A proxy on a loopback port of its own. Cut, it is a network that loses packets: connections stay, nothing gets through,
and what was said meanwhile arrives after healing, as TCP would send it again. Severed, it is a machine that is down:
connections end, and new ones do too. Whoever comes to the server by another way does not notice.
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
    """What passes on one connection: everything, as it is. Others may look into it, change it, and end it."""

    def requests(self, client: socket.socket) -> Iterator[bytes]:
        """What goes on to the server, until the client ends."""
        return _chunks(client)

    def answers(self, server: socket.socket) -> Iterator[bytes]:
        """What goes on to the client, until the server ends."""
        return _chunks(server)


class NetworkLink:
    """From `address` to a server (host:port), until it is closed. A context manager."""

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
        """From now on nothing gets through, or nothing in one direction; connections stay, and new ones hang."""
        with self._changed:
            self._held = {way for way, held in ((REQUESTS, requests), (ANSWERS, answers)) if held}

    def sever(self) -> None:
        """Ends all connections, and until healing every new one."""
        with self._changed:
            self._severed = True
        self.reset()

    def heal(self) -> None:
        """Everything passes again, what was held first."""
        with self._changed:
            self._held = set()
            self._severed = False
            self._changed.notify_all()

    def reset(self) -> None:
        """Ends the connections that there are; new ones are welcome."""
        with self._changed:
            sockets = list(self._sockets)
        for each in sockets:
            _shut(each)

    @property
    def connections(self) -> int:
        """How many go through to the server now."""
        with self._changed:
            return len(self._sockets) // 2

    def close(self) -> None:
        """Ends all connections, and takes no more."""
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
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
        """Until what goes those ways passes; False: the link has been closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._held.isdisjoint(ways))
            return not self._closed

    def _end(self, *sockets: socket.socket) -> None:
        with self._changed:
            self._sockets.difference_update(sockets)
        for each in sockets:
            _shut(each)


def _chunks(connection: socket.socket) -> Iterator[bytes]:
    while data := connection.recv(_CHUNK):
        yield data


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
