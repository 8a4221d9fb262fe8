"""The BlobServer of a jobmanager, as configured, and the deletion of blobs that no job needs any more.

Level-triggered: every jobmanager, leader or standby, periodically compares what is on disk and in the store with the
states of the jobs in the log. So nothing has to be remembered, and one process removes what a killed one left. A job
that has ended never starts again, so a process that lags behind the log keeps too much and deletes nothing that is
needed. Blobs of a job that the log does not know may belong to a submission in progress: they are kept for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
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

_log = logger(__name__)
_CHECK_INTERVAL_S = 1.0
_STORE_CHECK_INTERVAL_S = 30.0
"""Storage may be far away, and each look may cost money."""


class JobPhase(StrEnum):
    """What the log says of a job."""

    LIVE = "LIVE"
    OVER = "OVER"
    """It has ended, and never runs again."""
    UNKNOWN = "UNKNOWN"


JobPhaseFor = Callable[[str], JobPhase]
"""Job id -> what the log says of it."""


def create_store(configuration: Configuration) -> BlobStore:
    """The cluster's store, below `high-availability.storageDir`; a void one without high availability."""
    if configuration.get(HIGH_AVAILABILITY) is HighAvailability.NONE:
        return VoidBlobStore()
    return FileSystemBlobStore(f"{configuration.ha_storage}/{configuration.ha_cluster_id}/blob")


def blob_directory(configuration: Configuration) -> Path:
    """Where this machine's processes of the cluster keep blobs."""
    directory = configuration.get(BLOB_STORAGE_DIRECTORY)
    base = configuration.home / "blobs" if directory is None else Path(directory)
    return base.absolute() / configuration.cluster_id


def create_server(configuration: Configuration) -> BlobServer:
    """A BlobServer as configured. Raises BlobUnavailable where it can't have its address or directory;
    ConfigurationError for a file that should hold a secret."""
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
    secret = SharedSecret.from_configuration(configuration)
    try:
        return BlobServer(
            directory, create_store(configuration), host=host, ports=ports, limits=limits, secret=secret
        )
    except OSError as error:
        raise BlobUnavailable(
            f"no BlobServer can be started on {host}:{ports} over {directory}: {error}; set {BLOB_SERVER_HOST.key}, "
            f"{BLOB_SERVER_PORT.key} or {BLOB_STORAGE_DIRECTORY.key}"
        ) from error


def find_orphans(store: BlobStore, jobs: Sequence[str], fate_of: JobPhaseFor, before: float) -> list[str]:
    """Those of some `jobs` with blobs in the store that have ended, or that the log does not know.

    What was written since `before`, in seconds since the epoch, may be of a job that is being submitted: it is none.
    Raises BlobUnavailable.
    """

    def unknown_for_long(job_id: str) -> bool:
        return fate_of(job_id) is JobPhase.UNKNOWN and (store.last_written(job_id) or 0.0) < before

    return [each for each in jobs if fate_of(each) is JobPhase.OVER or unknown_for_long(each)]


class BlobGarbageCollector:
    """A BlobServer with its clean-up, in a thread of its own from `start` on."""

    def __init__(
        self, server: BlobServer, store: BlobStore, interval: float, fate: Callable[[], JobPhaseFor | None]
    ) -> None:
        """`interval`: seconds that blobs of unknown jobs, and transient ones, stay. `fate` gives what the log says of
        jobs now; None: that is not known yet, and nothing is deleted."""
        self.depot: Final = server.depot
        self.endpoints: Final[Mapping[str, str]] = {ENDPOINT: server.address}
        """As LeaderElected has them."""
        self._server = server
        self._store = store
        self._interval = interval
        self._fate = fate
        self._look_at = float("-inf")
        self._stored: set[str] = set()
        """The jobs that owned blobs in the store when it was last looked into."""
        self._failed: set[str] = set()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def from_configuration(
        cls, configuration: Configuration, fate: Callable[[], JobPhaseFor | None]
    ) -> BlobGarbageCollector:
        """As configured. Raises BlobUnavailable where the server can't have its address or directory."""
        interval = configuration.get(BLOB_CLEANUP_INTERVAL) / 1e6
        return cls(create_server(configuration), create_store(configuration), interval, fate)

    def start(self) -> None:
        """Begins to clean up."""
        self._thread = threads.Thread(target=self._run, name="blob clean-up")
        self._thread.start()

    def close(self) -> None:
        """Ends the server; blobs stay."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
            # A cluster that ends has just ended its last jobs.
            self._try_to_clean_up()
        self._server.close()

    def clean_up(self) -> None:
        """Deletes what the log says nobody needs. What can't be deleted is named once, and tried again."""
        fate_of = self._fate()
        if fate_of is None:
            return
        here = self.depot.files.jobs()
        self._clean_up_store()
        over = {job_id for job_id in {*here, *self._stored} if fate_of(job_id) is JobPhase.OVER}
        before = time.time() - self._interval
        over |= {
            job_id
            for job_id, wanted in here.items()
            if wanted < before and fate_of(job_id) is JobPhase.UNKNOWN
        }
        self.depot.files.delete_older(self._interval, transient=True)
        for job_id in sorted(over):
            self._delete(job_id)

    def _clean_up_store(self) -> None:
        """For what was put by a jobmanager that is gone with its disk."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _STORE_CHECK_INTERVAL_S
        try:
            self._stored = set(self._store.jobs())
        except BlobError as error:
            _log.warning("can't look for blobs of jobs that have ended", error=str(error))

    def _delete(self, job_id: str) -> None:
        try:
            self.depot.delete_job(job_id)
            self._stored.discard(job_id)
            self._failed.discard(job_id)
        except BlobError as error:
            if job_id not in self._failed:
                self._failed.add(job_id)
                _log.warning("blobs of a job that has ended stay; tries again", job=job_id, error=str(error))

    def _run(self) -> None:
        while not self._closed.wait(min(_CHECK_INTERVAL_S, self._interval)):
            self._try_to_clean_up()

    def _try_to_clean_up(self) -> None:
        try:
            self.clean_up()
        except Exception:
            _log.exception("the clean-up of blobs has failed; goes on")
