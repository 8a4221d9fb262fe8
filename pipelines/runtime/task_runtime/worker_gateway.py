"""A TCP server through which Spark's workers on other machines reach the Unix sockets of this TaskExecutor.

A connection must begin with the token, which only the plan of a query has, and names a socket in the TaskExecutor's own
directory. The bytes are copied both ways, with the ends of both sides, so a StreamTask that reads slowly holds back the
query as before.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import secrets
import socket
from pathlib import Path
from typing import Final

from ....infra import threads
from ..spark.worker_connections import ACCEPTED, CONNECT_TIMEOUT_S, PATH_LENGTH, TOKEN_BYTES, GatewayAddress
from .connection_listener import ConnectionListener

log = logging.getLogger(__name__)

_COPY_BYTES: Final = 1 << 18
_KEEPALIVE_S: Final = 30


class WorkerGateway:
    """Listens from its creation until `close`."""

    def __init__(self, host: str, directory: Path) -> None:
        """Raises OSError if the host is not an address of this machine."""
        self._directory = directory
        listener = socket.create_server((host, 0), backlog=256)
        self.address = GatewayAddress(host, listener.getsockname()[1], secrets.token_bytes(TOKEN_BYTES))
        self._listener = ConnectionListener(
            listener, self._serve, name="worker-gateway", connection_name="worker-connection"
        )

    def close(self) -> None:
        """Refuses further connections."""
        self._listener.close()

    def _serve(self, connection: socket.socket, peer: tuple[str, int]) -> None:
        with connection:
            try:
                connection.settimeout(CONNECT_TIMEOUT_S)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # A host that is cut off ends no connection.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
                target = self._connect(connection, peer[0])
                if target is None:
                    return
                with target:
                    connection.settimeout(None)
                    connection.sendall(ACCEPTED)
                    back = threads.Thread(target=_copy, args=(target, connection), name="worker-answers")
                    back.start()
                    _copy(connection, target)
                    back.join()
            except OSError:
                return

    def _connect(self, connection: socket.socket, peer: str) -> socket.socket | None:
        token = _receive(connection, TOKEN_BYTES)
        if not hmac.compare_digest(token, self.address.token):
            log.warning("a connection from %s to the gateway of Spark's workers has a wrong token", peer)
            return None
        (length,) = PATH_LENGTH.unpack(_receive(connection, PATH_LENGTH.size))
        path = Path(_receive(connection, length).decode(errors="replace"))
        if path.parent != self._directory:
            return None
        target = socket.socket(socket.AF_UNIX)
        try:
            target.connect(str(path))
        except OSError:
            target.close()
            return None
        return target


def _receive(connection: socket.socket, length: int) -> bytes:
    """Returns so many bytes. Raises ConnectionError if fewer come."""
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copies until the source ends, and ends the target. If the target is gone, the source is ended."""
    try:
        while data := source.recv(_COPY_BYTES):
            target.sendall(data)
    except OSError:
        with contextlib.suppress(OSError):
            source.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
