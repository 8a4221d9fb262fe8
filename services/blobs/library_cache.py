"""Counts which tasks of a TaskExecutor need which blobs (Flink's BlobLibraryCacheManager).

A task registers its blobs when it arrives and unregisters when it has ended. While a job has a task here, its blobs
stay; after the last one they stay for another interval, since a failed task often returns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from ...infra import threads
from ...infra.logging_setup import logger
from .cache import BlobCache
from .keys import BlobKey

_log = logger(__name__)


class _Job(msgspec.Struct):
    tasks: dict[str, tuple[BlobKey, ...]]
    free_since: float | None = None


class BlobLibraryCacheManager:
    """Thread-safe. `interval_s`: seconds; `clock`: seconds since the epoch."""

    def __init__(self, cache: BlobCache, interval_s: float, clock: Callable[[], float] = time.time) -> None:
        self._cache = cache
        self._interval = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        now = clock()
        # Blobs of an earlier process of this TaskExecutor: the job's tasks may be submitted here again.
        self._jobs = {job_id: _Job({}, now) for job_id in cache.jobs()}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def register_task(
        self, job_id: str, execution_attempt_id: str, keys: Iterable[BlobKey]
    ) -> Mapping[BlobKey, Path]:
        """Registers a task; returns the files of these blobs. A repeated call adds blobs that the task does not have
        yet.

        Raises BlobError; the task is not registered then, unless it had all of these blobs.
        """
        wanted = tuple(sorted(set(keys)))
        with self._lock:
            job = self._jobs.setdefault(job_id, _Job({}))
            known = job.tasks.get(execution_attempt_id)
            new = wanted if known is None else tuple(key for key in wanted if key not in known)
            if known is None or new:
                job.tasks[execution_attempt_id] = (*(known or ()), *new)
                job.free_since = None
                self._cache.pin(new)
        try:
            return {key: self._cache.file(key) for key in wanted}
        except BaseException:
            if known is None or new:
                self.unregister_task(job_id, execution_attempt_id)
            raise

    def unregister_task(self, job_id: str, execution_attempt_id: str) -> None:
        """Unregisters a task; unknown tasks are ignored."""
        with self._lock:
            job = self._jobs.get(job_id)
            wanted = None if job is None else job.tasks.pop(execution_attempt_id, None)
            if job is not None and wanted is not None:
                self._cache.unpin(wanted)
                if not job.tasks:
                    job.free_since = self._clock()

    def references(self, job_id: str) -> int:
        """Returns the number of registered tasks of a job."""
        with self._lock:
            job = self._jobs.get(job_id)
            return 0 if job is None else len(job.tasks)

    def clean_up(self) -> None:
        """Deletes the blobs of jobs that had no task here for the interval."""
        before = self._clock() - self._interval
        with self._lock:
            free = [
                job_id
                for job_id, job in self._jobs.items()
                if job.free_since is not None and job.free_since <= before
            ]
            for job_id in free:
                del self._jobs[job_id]
                # Hold the lock: a task that arrives now fetches them again.
                self._cache.delete_job(job_id)

    def start(self) -> None:
        """Starts a thread that cleans up periodically until `close`."""
        self._thread = threads.Thread(target=self._run, name="blob clean-up")
        self._thread.start()

    def close(self) -> None:
        """Stops the clean-up and waiting fetches; the cached blobs remain."""
        self._closed.set()
        self._cache.close()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(min(self._interval, 60.0)):
            try:
                self.clean_up()
            except OSError as error:
                _log.warning("cannot clean up the blobs of ended jobs; retries", error=str(error))
