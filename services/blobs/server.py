"""The BlobServer of a jobmanager: PUT, GET and DELETE over TCP.

It runs one thread for each connection, up to a limit. At the limit it closes idle connections, and accepts no new one
until a connection has ended. Clients are authenticated only if the cluster has a secret (shared_secret_auth.py). The
server does not decide what may run: submitted jobs name blobs by digest. It listens on the loopback interface by
default.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ...infra.server_socket import listen
from ...infra.tls import ServerTls, UnusableTlsFile
from .connection import BlobServerConnection
from .local_blob_files import BlobFiles
from .protocol import Channel, Timeouts
from .shared_secret_auth import SharedSecret
from .store import BlobStore, VoidBlobStore
from .tiered_store import TieredBlobStore

_log = logger(__name__)
_PAUSE_S = 0.2
_MIN_IDLE_S = 0.5
"""The idle time after which a connection is closed in favour of a waiting one."""


class ServerLimits(msgspec.Struct, frozen=True):
    """The limits of one server."""

    connections: int = 50
    """Concurrent connections (`blob.fetch.num-concurrent`)."""
    backlog: int = 1000
    """Connections waiting to be accepted (`blob.fetch.backlog`)."""
    largest: int = 1 << 30
    """Bytes of a blob (`blob.size.max`)."""
    pace: Timeouts = Timeouts()


class BlobServer(Closeable):
    """Serves blobs below a directory, from its construction until `close`.

    Raises OSError if the address or the directory is not available.
    """

    def __init__(
        self,
        directory: Path,
        store: BlobStore | None = None,
        *,
        host: str = "127.0.0.1",
        ports: Iterable[int] = (0,),
        limits: ServerLimits | None = None,
        secret: SharedSecret | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """Listens on the first free port of `ports`; 0: any. Serves clients that know the `secret`; None: all
        clients."""
        self._secret = secret
        self._tls = tls
        self._limits = limits or ServerLimits()
        files = BlobFiles(directory, durable=True)
        self.depot: Final = TieredBlobStore(files, store or VoidBlobStore(), largest=self._limits.largest)
        """Its blobs, for use in the same process."""
        self._socket = listen(host, ports, self._limits.backlog)
        self._socket.settimeout(_PAUSE_S)
        self.address: Final = f"{host}:{self._socket.getsockname()[1]}"
        """host:port."""
        self._active: dict[BlobServerConnection, threading.Thread] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threads.Thread(target=self._accept, name="blob server")
        self._thread.start()

    def close(self) -> None:
        """Closes all connections; blobs remain on disk."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._socket.close()
        with self._changed:
            active = dict(self._active)
        for connection in active:
            connection.close()
        for thread in active.values():
            thread.join(self._limits.pace.idle)

    def _accept(self) -> None:
        while self._wait_for_room():
            try:
                accepted, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError as error:
                # For example too many open files: ending connections release theirs.
                _log.warning("the BlobServer cannot accept a connection", error=str(error))
                time.sleep(_PAUSE_S)
                continue
            self._serve(accepted)

    def _serve(self, accepted: socket.socket) -> None:
        try:
            accepted = accepted if self._tls is None else self._tls.wrap(accepted)
            connection = BlobServerConnection(Channel(accepted, self._limits.pace), self.depot, self._secret)
            thread = threads.Thread(
                target=self._run, args=(connection,), name="blob server connection", daemon=True
            )
            with self._changed:
                self._active[connection] = thread
            thread.start()
        except (OSError, RuntimeError, UnusableTlsFile) as error:
            _log.warning("the BlobServer cannot serve a connection", error=str(error))
            accepted.close()

    def _run(self, connection: BlobServerConnection) -> None:
        try:
            connection.run(self._limits.pace.idle)
        except Exception:
            _log.exception("a connection of the BlobServer failed")
        finally:
            with self._changed:
                self._active.pop(connection, None)
                self._changed.notify_all()

    def _wait_for_room(self) -> bool:
        """Waits until another connection may be accepted; returns False if the server is closed."""
        with self._changed:
            while not self._closed and len(self._active) >= self._limits.connections:
                self._end_idle()
                self._changed.wait(_PAUSE_S)
            return not self._closed

    def _end_idle(self) -> None:
        waiting = [
            (connection.idle_since, connection)
            for connection in self._active
            if connection.idle_since is not None
        ]
        if waiting:
            since, connection = min(waiting, key=lambda pair: pair[0])
            if time.monotonic() - since > _MIN_IDLE_S:
                connection.close()
