"""Sockets of servers: the first free port of those that are configured."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

_ADDRESS_IN_USE: Final = (errno.EADDRINUSE, errno.EACCES)


def listen(host: str, ports: Iterable[int], backlog: int) -> socket.socket:
    """Returns a socket that listens on the first free port of `ports`; 0: any. Raises OSError if none is free."""
    refusal = OSError(errno.EADDRINUSE, "no port is given")
    for port in ports:
        try:
            return socket.create_server((host, port), backlog=backlog)
        except OSError as error:
            if error.errno not in _ADDRESS_IN_USE:
                raise
            refusal = error
    raise refusal


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
