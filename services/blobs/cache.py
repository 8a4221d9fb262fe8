"""The BlobCache of a TaskExecutor: local copies of the blobs that it needs (Flink's PermanentBlobCache).

It looks for a blob locally, then in the cluster's store, then at the leader's BlobServer. Content is always verified
against the key's digest, local files included, so a damaged file is fetched again. The server may be dead and its
successor unknown: the cache retries, with the server's current address each time.
"""

from __future__ import annotations

import functools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...infra.logging_setup import logger
from ...infra.tls import ClientTls
from .client import BlobClient
from .errors import BlobError, BlobNotFound, BlobRefused, BlobUnavailable
from .keys import BlobKey
from .local_blob_files import BlobFiles, Incoming
from .protocol import Timeouts
from .shared_secret_auth import SharedSecret
from .single_flight import SingleFlight
from .store import BlobStore, VoidBlobStore

_log = logger(__name__)
_INITIAL_PAUSE_S = 0.1
_MAX_PAUSE_S = 5.0


class BlobCache:
    """Blobs below a directory that outlives the process. Thread-safe."""

    def __init__(
        self,
        directory: Path,
        server: Callable[[], str | None],
        store: BlobStore | None = None,
        *,
        retries: int = 5,
        size_limit: int = 1 << 36,
        first_pause_s: float = _INITIAL_PAUSE_S,
        connect_timeout_s: float = 5.0,
        pace: Timeouts | None = None,
        secret: SharedSecret | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        """Raises OSError for the directory.

        `server` returns host:port of the leader's BlobServer; None without a leader or a BlobServer.

        `size_limit`: bytes of all blobs; above it the least recently used blobs that are not pinned are deleted.
        `first_pause_s`: seconds before the first retry, doubled for each further one.
        """
        self._files: Final = BlobFiles(directory, durable=False)
        self._server = server
        self._store = store or VoidBlobStore()
        self._retries = retries
        self._size_limit = size_limit
        self._first_pause = first_pause_s
        self._connect = functools.partial(
            BlobClient, connect_timeout_s=connect_timeout_s, pace=pace, secret=secret, tls=tls
        )
        self._flights = SingleFlight()
        self._pins: Counter[BlobKey] = Counter()
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def file(self, key: BlobKey) -> Path:
        """Returns a file with the blob's content; do not change it. Raises BlobNotFound, BlobUnavailable."""
        with self._flights.lock(key):
            try:
                found = self._files.find(key)
                if found is not None:
                    self._files.touch(key)
                    return found
            except OSError as error:
                _log.warning(
                    "cannot read a blob in the cache; fetches it again",
                    blob=str(key),
                    error=str(error),
                )
            path = self._fetch(key)
        self._make_room()
        return path

    def pin(self, keys: Iterable[BlobKey]) -> None:
        """Keeps these blobs in the cache until they are unpinned as often."""
        with self._lock:
            self._pins.update(keys)

    def unpin(self, keys: Iterable[BlobKey]) -> None:
        """Reverses `pin`."""
        with self._lock:
            self._pins.subtract(keys)
            self._pins += Counter()

    def delete_job(self, job_id: str) -> None:
        """Deletes the local blobs of a job."""
        with suppress(OSError):
            self._files.delete_job(job_id)

    def jobs(self) -> dict[str, float]:
        """Returns job -> time of the last use of its local blobs, in seconds since the epoch."""
        return self._files.jobs()

    def close(self) -> None:
        """Stops waiting for servers."""
        self._closed.set()

    def _fetch(self, key: BlobKey) -> Path:
        pause = self._first_pause
        for left in range(self._retries, -1, -1):
            failures: list[BlobError] = []
            for fetch in (self._from_store, self._from_server):
                try:
                    path = fetch(key)
                    if path is not None:
                        return path
                except BlobError as error:
                    failures.append(error)
                except OSError as error:
                    raise BlobUnavailable(f"{key} can't be written here: {error}") from error
            if len(failures) == 1 and isinstance(failures[0], BlobNotFound):
                # The store answered, and does not have it either.
                raise failures[0]
            reason = (
                "; ".join(str(failure) for failure in failures) or "no jobmanager has announced a BlobServer"
            )
            if not left or self._closed.is_set():
                break
            _log.warning("cannot fetch a blob; retries", blob=str(key), tries_left=left, error=reason)
            # Random: the TaskExecutors of a job should not all retry at the same moment.
            self._closed.wait(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _MAX_PAUSE_S)
        raise BlobUnavailable(f"{key} can't be fetched, after {self._retries + 1} tries: {reason}")

    def _from_store(self, key: BlobKey) -> Path | None:
        with self._files.incoming() as incoming:
            return incoming.publish(key) if self._store.get(key, incoming) else None

    def _from_server(self, key: BlobKey) -> Path | None:
        address = self._server()
        if address is None:
            return None
        with self._connect(address) as client, self._files.incoming() as incoming:
            client.get(key, incoming.write)
            return _publish(incoming, key, address)

    def _make_room(self) -> None:
        entries = sorted(self._files.entries(), key=lambda entry: entry.stat.st_mtime_ns)
        excess = sum(entry.stat.st_size for entry in entries) - self._size_limit
        for entry in entries[:-1]:
            if excess <= 0:
                return
            with self._lock:
                if self._pins[entry.key] > 0:
                    continue
            with suppress(OSError):
                self._files.delete(entry.key)
                excess -= entry.stat.st_size


def _publish(incoming: Incoming, key: BlobKey, address: str) -> Path:
    try:
        return incoming.publish(key)
    except BlobRefused as error:
        raise BlobRefused(f"the BlobServer at {address}: {error}") from error
