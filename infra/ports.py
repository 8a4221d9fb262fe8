"""Free ports that stay ours until the process they are for has bound them.

A port that is only looked up can go to another process before its server binds it. So the socket that found it is
kept, bound but never listening: the kernel gives its port to nobody who asks for any free one, while a server that
names the port and sets SO_REUSEADDR, as Java's do, may bind it and listen beside us (socket(7), ip(7), of Linux).
Elsewhere two sockets cannot share an address, and the port is free again at once: there the old race remains.
"""

from __future__ import annotations

import socket
import sys
from typing import Final, Self

HOST: Final = "127.0.0.1"

_CAN_BE_HELD: Final = sys.platform == "linux"


class ReservedPort:
    """A free port of the loopback address, held until `release`."""

    def __init__(self, wanted: int = 0) -> None:
        """Takes `wanted`, or any free port for 0. Raises OSError where `wanted` is in use."""
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
        """Takes `wanted` where it is free, else any other."""
        try:
            return cls(wanted)
        except OSError:
            return cls()

    def release(self) -> None:
        """From now on the port is its server's alone, or anybody's. Twice is fine."""
        self._socket.close()
