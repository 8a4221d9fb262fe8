"""Reads from the diagnostics servers of other processes."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ...infra.tls import ClientTls
from ..blobs.shared_secret_auth import SharedSecret
from ..blobs.tls import client_tls
from ..configuration import Configuration
from .server import PROCESS_HEADER, TOKEN_USE

_TIMEOUT_S: Final = 2.0
_MOST_BYTES: Final = 64 << 20


class DiagnosticsUnavailable(Exception):
    """A process does not answer; the message is one line."""


class DiagnosticsNotFound(Exception):
    """A process has nothing at a path."""


class Reply(NamedTuple):
    """An answer; the names of headers are in small letters."""

    body: bytes
    headers: Mapping[str, str]


class ServerAddress(NamedTuple):
    """Where a process can be asked: host:port of its diagnostics server, and the address of the process for messages.
    `address` is empty if it has no server."""

    address: str
    process: str


class DiagnosticsClient:
    """Thread-safe; each request has its own connection."""

    def __init__(self, token: bytes | None = None, tls: ClientTls | None = None) -> None:
        self._token = token
        self._tls = tls

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> DiagnosticsClient:
        """Returns a client for the servers of a cluster. Raises ConfigurationError."""
        secret = SharedSecret.from_configuration(configuration)
        token = None if secret is None else secret.token(TOKEN_USE)
        return cls(token, client_tls(configuration))

    def get(self, server: ServerAddress, path: str, timeout_s: float = _TIMEOUT_S) -> Reply:
        """Returns what a process has at a path. `timeout_s`: for each wait.

        Raises DiagnosticsUnavailable, DiagnosticsNotFound.
        """
        address, headers = server.address, {PROCESS_HEADER: server.process}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.decode()}"
        try:
            with self._connection(address, timeout_s) as connection:
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
                body = response.read(_MOST_BYTES)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise DiagnosticsUnavailable(
                f"the process at {address} does not answer: {error!s:.200}"
            ) from None
        if response.status == 404:
            raise DiagnosticsNotFound(response.reason)
        if response.status != 200:
            raise DiagnosticsUnavailable(
                f"the process at {address} answers {response.status}: {response.reason}"
            )
        return Reply(body, {name.lower(): value for name, value in response.getheaders()})

    @contextlib.contextmanager
    def _connection(self, address: str, timeout_s: float) -> Iterator[http.client.HTTPConnection]:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        connected = socket.create_connection((host, int(port)), timeout_s)
        if self._tls is not None:
            connected = self._tls.wrap(connected, host, timeout_s)
        connection = http.client.HTTPConnection(host, int(port))
        connection.sock = connected
        try:
            yield connection
        finally:
            connection.close()
