"""The socket text source: read in its StreamTask, without Spark (docs/notes/socket-source.md says why).

A socket cannot be rewound. What was read but not committed when the task dies is lost, and so is what the
peer sent to the connection that broke; everything behind the task's first commit of it is not.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Final

import msgspec

from ....schemas.types import OperatorConfig
from ..failures import TaskError

RETRY_DELAY_S: Final = 0.5
"""Flink's delay between attempts to connect."""
_CONNECT_TIMEOUT_S: Final = 10.0


class SocketTextSource(msgspec.Struct, frozen=True):
    """Where the text comes from; `max_retries` is how often a refused connection is tried again, -1 for ever."""

    host: str
    port: int
    delimiter: str = "\n"
    max_retries: int = 0

    @classmethod
    def of(cls, config: OperatorConfig) -> SocketTextSource:
        """Reads the operator's parameters. Raises msgspec.ValidationError."""
        return msgspec.convert(json.loads(config.parameters), cls)

    def connect(self, pause: Callable[[float], None]) -> socket.socket:
        """A connection to the text server; `pause` waits for so many seconds, and may raise to give up.

        Raises TaskError where the server cannot be reached.
        """
        tried = 0
        while True:
            try:
                connection = socket.create_connection((self.host, self.port), _CONNECT_TIMEOUT_S)
            except OSError as error:
                if 0 <= self.max_retries <= tried:
                    raise TaskError(self._unreachable(error, tried)) from error
                tried += 1
                pause(RETRY_DELAY_S)
            else:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return connection

    def _unreachable(self, error: OSError, tried: int) -> str:
        again = f" (tried {tried + 1} times)" if tried else ""
        reason = error.strerror or str(error)
        return (
            f"socket_text_stream could not connect to {self.host}:{self.port}: {reason}{again};"
            " start the text server first, or give max_retries"
        )
