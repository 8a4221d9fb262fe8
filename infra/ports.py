"""Free ports that stay reserved until the intended process has bound them.

A port that was only looked up can go to another process before its server binds it. This module therefore keeps the
socket bound, without listening: the kernel then assigns the port to nobody who asks for any free one, while a server
that names the port and sets SO_REUSEADDR, as Java servers do, can bind it and listen (socket(7), ip(7) of Linux). On
other systems two sockets cannot share an address; the port is released at once, and the race remains.
"""

from __future__ import annotations

import socket
import sys
from typing import Final, Self

HOST: Final = "127.0.0.1"

_CAN_BE_HELD: Final = sys.platform == "linux"


class ReservedPort:
    """A free port of the loopback address, reserved until `release`."""

    def __init__(self, wanted: int = 0) -> None:
        """Reserves `wanted`, or any free port for 0. Raises OSError if `wanted` is in use."""
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, wanted))
            self.number: int = self._socket.getsockname()[1]
        except BaseException:
            self._socket.close()
            raise
        if not _CAN_BE_HELD:
            self._socket.close()

    @classmethod
    def preferring(cls, wanted: int) -> Self:
        """Reserves `wanted` if it is free, else any other."""
        try:
            return cls(wanted)
        except OSError:
            return cls()

    def release(self) -> None:
        """Ends the reservation; idempotent."""
        self._socket.close()
