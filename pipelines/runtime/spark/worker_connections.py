"""How Spark's Python workers reach the processes of a TaskExecutor: by Unix sockets on its machine, or by a gateway.

On a Spark cluster a worker may run on another machine. It then connects to the TaskExecutor's gateway
(task_runtime/worker_gateway.py), says the token and the path of the Unix socket, and gets an answer of one byte. After
that the bytes are those of the Unix socket.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

import msgspec

ACCEPTED: Final = b"\x01"
TOKEN_BYTES: Final = 32
PATH_LENGTH: Final = struct.Struct("<H")
CONNECT_TIMEOUT_S: Final = 10.0


class GatewayAddress(msgspec.Struct, frozen=True):
    """The gateway of a TaskExecutor."""

    host: str
    port: int
    token: bytes

    def __repr__(self) -> str:
        return f"GatewayAddress({self.host!r}, {self.port})"


def connect(path: str, gateway: GatewayAddress | None) -> socket.socket:
    """Returns a connection to the Unix socket of a TaskExecutor. Raises OSError if nobody listens there."""
    if gateway is None:
        local = socket.socket(socket.AF_UNIX)
        try:
            local.connect(path)
        except OSError:
            local.close()
            raise
        return local
    connection = socket.create_connection((gateway.host, gateway.port), CONNECT_TIMEOUT_S)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = path.encode()
        connection.sendall(gateway.token + PATH_LENGTH.pack(len(name)) + name)
        if connection.recv(1) != ACCEPTED:
            raise ConnectionRefusedError(f"the TaskExecutor at {gateway.host}:{gateway.port} has no {path}")
        connection.settimeout(None)
    except OSError:
        connection.close()
        raise
    return connection
