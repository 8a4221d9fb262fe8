"""A listening socket: each of its connections is served by a thread of its own."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any

from ....infra import threads


class ConnectionListener:
    """Listens from its creation until `close`."""

    def __init__(
        self,
        listener: socket.socket,
        serve: Callable[[socket.socket, Any], None],
        *,
        name: str,
        connection_name: str,
    ) -> None:
        """`serve` gets a connection, which it closes, and the address of the peer. The names are those of threads."""
        self._listener = listener
        self._serve = serve
        self._connection_name = connection_name
        threads.Thread(target=self._accept, name=name).start()

    def close(self) -> None:
        """Refuses further connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted = self._listener.accept()
            except OSError:
                return
            threads.Thread(target=self._serve, args=accepted, name=self._connection_name).start()
