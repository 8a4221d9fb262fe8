"""The blobs of each kind of process, put together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..blobs.cache import BlobCache
from ..blobs.garbage_collector import BlobKeeper, Fate, FateOf, directory_of, store_of
from ..blobs.library_cache import BlobLibraryCacheManager
from ..blobs.protocol import Pace
from ..blobs.shared_secret_auth import SharedSecret
from ..client.blob_upload import address_of
from ..configuration import Configuration
from ..configuration.options.blob import (
    BLOB_CACHE_SIZE_MAX,
    BLOB_CLEANUP_INTERVAL,
    BLOB_CONNECT_TIMEOUT,
    BLOB_FETCH_RETRIES,
    BLOB_SOCKET_TIMEOUT,
    BLOB_STORAGE_DIRECTORY,
)
from ..core.replica import Replica
from ..core.role import DISPATCHER
from ..dispatcher.state import DispatcherState, Phase

_OVER = frozenset({Phase.TERMINATED, Phase.ENDED})


def of_master(configuration: Configuration, replica: Replica, caught_up: Callable[[], bool]) -> BlobKeeper:
    """The BlobServer of a jobmanager, which listens already; its clean-up waits until the log was read to its end.

    Raises BlobUnavailable where it can't have its address or directory.
    """
    return BlobKeeper.of(configuration, lambda: _fates(replica) if caught_up() else None)


def of_task_executor(
    configuration: Configuration, replica: Replica, resource_id: str, scratch: Path
) -> BlobLibraryCacheManager:
    """The library cache of a taskexecutor, on top of its BlobCache; its clean-up has begun. Raises OSError."""
    shared = configuration.get(BLOB_STORAGE_DIRECTORY) is not None
    cache = BlobCache(
        # Each has one of its own: what one needs no more another may need.
        directory_of(configuration) / f"cache-{resource_id}" if shared else scratch / "blobs",
        lambda: address_of(replica.leadership),
        store_of(configuration),
        retries=configuration.get(BLOB_FETCH_RETRIES),
        size_limit=configuration.get(BLOB_CACHE_SIZE_MAX),
        connect_timeout=configuration.get(BLOB_CONNECT_TIMEOUT) / 1e6,
        pace=Pace(answer=configuration.get(BLOB_SOCKET_TIMEOUT) / 1e6),
        secret=SharedSecret.of(configuration),
    )
    manager = BlobLibraryCacheManager(cache, configuration.get(BLOB_CLEANUP_INTERVAL) / 1e6)
    manager.start()
    return manager


def _fates(replica: Replica) -> FateOf | None:
    state = replica.states.get(DISPATCHER)
    if not isinstance(state, DispatcherState):
        return None

    def fate_of(job_id: str) -> Fate:
        job = state.jobs.get(job_id)
        if job is None:
            return Fate.UNKNOWN
        return Fate.OVER if job.phase in _OVER else Fate.LIVE

    return fate_of
