"""Assembles the blob services of each kind of process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..blobs import job_graph_blob
from ..blobs.cache import BlobCache
from ..blobs.garbage_collector import (
    BlobGarbageCollector,
    JobPhase,
    JobPhaseFor,
    blob_directory,
    create_store,
)
from ..blobs.keys import BlobKey
from ..blobs.library_cache import BlobLibraryCacheManager
from ..blobs.protocol import ENDPOINT, Timeouts
from ..blobs.shared_secret_auth import SharedSecret
from ..blobs.tls import client_tls
from ..configuration import Configuration
from ..configuration.options.blob import (
    BLOB_CACHE_SIZE_MAX,
    BLOB_CLEANUP_INTERVAL,
    BLOB_CONNECT_TIMEOUT,
    BLOB_FETCH_RETRIES,
    BLOB_SERVER_HOST,
    BLOB_SOCKET_TIMEOUT,
    BLOB_STORAGE_DIRECTORY,
)
from ..core.replica import Replica
from ..core.role import DISPATCHER, JOB_MASTER, address
from ..dispatcher.state import DispatcherState, Phase
from ..job_master.state import StartedJob
from .leader_endpoints import LeaderEndpoint

_TERMINATED_PHASES = frozenset({Phase.TERMINATED, Phase.ENDED})


def create_master_blobs(
    configuration: Configuration, replica: Replica, caught_up: Callable[[], bool]
) -> BlobGarbageCollector:
    """Returns the BlobServer of a jobmanager, already listening. Its garbage collection waits until the log has been
    read to its end.

    Raises BlobUnavailable if its address or directory is not available.
    """
    blobs = BlobGarbageCollector.from_configuration(
        configuration, lambda: _read_job_phases(replica) if caught_up() else None
    )
    blobs.depot.find_in_state = lambda key: find_graph(replica, key)
    return blobs


def create_task_executor_blobs(
    configuration: Configuration, replica: Replica, resource_id: str, scratch: Path
) -> BlobLibraryCacheManager:
    """Returns the library cache of a taskexecutor, above its BlobCache, with garbage collection running. Raises
    OSError."""
    shared = configuration.get(BLOB_STORAGE_DIRECTORY) is not None
    cache = BlobCache(
        # Each TaskExecutor has its own directory: one may need a blob that another deletes.
        blob_directory(configuration) / f"cache-{resource_id}" if shared else scratch / "blobs",
        LeaderEndpoint(lambda: replica.leadership, ENDPOINT, BLOB_SERVER_HOST.key),
        create_store(configuration),
        retries=configuration.get(BLOB_FETCH_RETRIES),
        size_limit=configuration.get(BLOB_CACHE_SIZE_MAX),
        connect_timeout_s=configuration.get(BLOB_CONNECT_TIMEOUT) / 1e6,
        pace=Timeouts(answer=configuration.get(BLOB_SOCKET_TIMEOUT) / 1e6),
        secret=SharedSecret.from_configuration(configuration),
        tls=client_tls(configuration),
    )
    manager = BlobLibraryCacheManager(cache, configuration.get(BLOB_CLEANUP_INTERVAL) / 1e6)
    manager.start()
    return manager


def find_graph(replica: Replica, key: BlobKey) -> bytes | None:
    """Returns the content of a blob if it is the graph of a job that runs."""
    job = replica.states.get(address(JOB_MASTER, key.job_id))
    if not isinstance(job, StartedJob) or job.graph_blob != str(key):
        return None
    return job_graph_blob.encode(job.job_id, job.graph)


def _read_job_phases(replica: Replica) -> JobPhaseFor | None:
    state = replica.states.get(DISPATCHER)
    if not isinstance(state, DispatcherState):
        return None

    def find_phase(job_id: str) -> JobPhase:
        job = state.jobs.get(job_id)
        if job is None:
            return JobPhase.UNKNOWN
        return JobPhase.OVER if job.phase in _TERMINATED_PHASES else JobPhase.LIVE

    return find_phase
