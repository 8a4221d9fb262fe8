"""Creates the BlobServer of a jobmanager, and deletes blobs that no job needs.

It is level-triggered: every jobmanager, leader or standby, periodically compares the blobs on disk and in the store
with the jobs in the log. Nothing has to be remembered, and one jobmanager deletes what a killed one has left. A
terminated job never restarts, so a jobmanager that is behind in the log keeps too much, and never deletes a needed
blob. A job that is unknown in the log may be in submission: its blobs are kept for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from ...infra import threads
from ...infra.logging_setup import logger
from ..configuration import Configuration
from ..configuration.options.blob import (
    BLOB_CLEANUP_INTERVAL,
    BLOB_FETCH_BACKLOG,
    BLOB_FETCH_CONCURRENT,
    BLOB_SERVER_HOST,
    BLOB_SERVER_PORT,
    BLOB_SIZE_MAX,
    BLOB_STORAGE_DIRECTORY,
)
from ..configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from .errors import BlobError, BlobUnavailable
from .protocol import ENDPOINT
from .server import BlobServer, ServerLimits
from .shared_secret_auth import SharedSecret
from .store import BlobStore, FileSystemBlobStore, VoidBlobStore
from .tls import server_tls

_log = logger(__name__)
_CHECK_INTERVAL_S = 1.0
_STORE_CHECK_INTERVAL_S = 30.0
"""Storage may be remote, and each listing may cost money."""


class JobPhase(StrEnum):
    """The phase of a job according to the log."""

    LIVE = "LIVE"
    OVER = "OVER"
    """It has terminated and never runs again."""
    UNKNOWN = "UNKNOWN"


JobPhaseFor = Callable[[str], JobPhase]
"""Job id -> its phase according to the log."""


def create_store(configuration: Configuration) -> BlobStore:
    """Returns the cluster's store below `high-availability.storageDir`; a void one without high availability."""
    if configuration.get(HIGH_AVAILABILITY) is HighAvailability.NONE:
        return VoidBlobStore()
    return FileSystemBlobStore(store_uri(configuration))


def store_uri(configuration: Configuration) -> str:
    """Returns the directory of the cluster's store, with high availability."""
    return f"{configuration.ha_storage}/{configuration.ha_cluster_id}/blob"


def blob_directory(configuration: Configuration) -> Path:
    """Returns the directory where the cluster's processes on this machine keep blobs."""
    directory = configuration.get(BLOB_STORAGE_DIRECTORY)
    base = configuration.home / "blobs" if directory is None else Path(directory)
    return base.absolute() / configuration.cluster_id


def create_server(configuration: Configuration) -> BlobServer:
    """Creates the configured BlobServer. Raises BlobUnavailable if its address or directory is not available;
    ConfigurationError for an invalid secret or certificate file."""
    host, ports, directory = (
        configuration.get(BLOB_SERVER_HOST),
        configuration.get(BLOB_SERVER_PORT),
        blob_directory(configuration) / "server",
    )
    limits = ServerLimits(
        connections=configuration.get(BLOB_FETCH_CONCURRENT),
        backlog=configuration.get(BLOB_FETCH_BACKLOG),
        largest=configuration.get(BLOB_SIZE_MAX),
    )
    secret, tls = SharedSecret.from_configuration(configuration), server_tls(configuration)
    try:
        return BlobServer(
            directory,
            create_store(configuration),
            host=host,
            ports=ports,
            limits=limits,
            secret=secret,
            tls=tls,
        )
    except OSError as error:
        raise BlobUnavailable(
            f"no BlobServer can be started on {host}:{ports} over {directory}: {error}; set {BLOB_SERVER_HOST.key}, "
            f"{BLOB_SERVER_PORT.key} or {BLOB_STORAGE_DIRECTORY.key}"
        ) from error


def find_orphans(store: BlobStore, jobs: Sequence[str], find_phase: JobPhaseFor, before: float) -> list[str]:
    """Returns those of `jobs` that have terminated or are unknown in the log.

    An unknown job with blobs written since `before`, in seconds since the epoch, may be in submission and is not
    included. Raises BlobUnavailable.
    """

    def unknown_for_long(job_id: str) -> bool:
        return find_phase(job_id) is JobPhase.UNKNOWN and (store.last_written(job_id) or 0.0) < before

    return [job_id for job_id in jobs if find_phase(job_id) is JobPhase.OVER or unknown_for_long(job_id)]


class BlobGarbageCollector:
    """A BlobServer with garbage collection, in its own thread after `start`."""

    def __init__(
        self, server: BlobServer, store: BlobStore, interval_s: float, fate: Callable[[], JobPhaseFor | None]
    ) -> None:
        """`interval_s`: seconds for which blobs of unknown jobs are kept. `fate` returns the current job phases; None
        if they are not known yet, and then nothing is deleted."""
        self.depot: Final = server.depot
        self.endpoints: Final[Mapping[str, str]] = {ENDPOINT: server.address}
        """In the form of LeaderElected."""
        self._server = server
        self._store = store
        self._interval = interval_s
        self._fate = fate
        self._look_at = float("-inf")
        self._stored: set[str] = set()
        """The jobs with blobs in the store at its last listing."""
        self._failed: set[str] = set()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def from_configuration(
        cls, configuration: Configuration, fate: Callable[[], JobPhaseFor | None]
    ) -> BlobGarbageCollector:
        """Creates it from the configuration. Raises BlobUnavailable if the server's address or directory is not
        available."""
        interval = configuration.get(BLOB_CLEANUP_INTERVAL) / 1e6
        return cls(create_server(configuration), create_store(configuration), interval, fate)

    def start(self) -> None:
        """Starts the garbage collection."""
        self._thread = threads.Thread(target=self._run, name="blob clean-up")
        self._thread.start()

    def close(self) -> None:
        """Stops the server; blobs remain."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
            # A cluster that shuts down has just ended its last jobs.
            self._try_to_clean_up()
        self._server.close()

    def clean_up(self) -> None:
        """Deletes blobs that no job needs. Logs each failed deletion once, and retries it."""
        find_phase = self._fate()
        if find_phase is None:
            return
        here = self.depot.files.jobs()
        self._clean_up_store()
        over = {job_id for job_id in {*here, *self._stored} if find_phase(job_id) is JobPhase.OVER}
        before = time.time() - self._interval
        over |= {
            job_id
            for job_id, wanted in here.items()
            if wanted < before and find_phase(job_id) is JobPhase.UNKNOWN
        }
        for job_id in sorted(over):
            self._delete(job_id)

    def delete_jobs(self, job_ids: Iterable[str]) -> None:
        """Deletes the blobs of these jobs, which the log forgets: later they would count as jobs in submission. Raises
        BlobError."""
        for job_id in sorted({*self.depot.files.jobs(), *self._store.jobs()}.intersection(job_ids)):
            self.depot.delete_job(job_id)

    def _clean_up_store(self) -> None:
        """For blobs from a jobmanager that is gone together with its disk."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _STORE_CHECK_INTERVAL_S
        try:
            self._stored = set(self._store.jobs())
        except BlobError as error:
            _log.warning("cannot list blobs of ended jobs", error=str(error))

    def _delete(self, job_id: str) -> None:
        try:
            self.depot.delete_job(job_id)
            self._stored.discard(job_id)
            self._failed.discard(job_id)
        except BlobError as error:
            if job_id not in self._failed:
                self._failed.add(job_id)
                _log.warning("cannot delete blobs of an ended job; retries", job=job_id, error=str(error))

    def _run(self) -> None:
        while not self._closed.wait(min(_CHECK_INTERVAL_S, self._interval)):
            self._try_to_clean_up()

    def _try_to_clean_up(self) -> None:
        try:
            self.clean_up()
        except Exception:
            _log.exception("the clean-up of blobs failed; continues")
