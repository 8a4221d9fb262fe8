"""Detects the end of a TaskExecutor's process on the same machine at once, without a heartbeat timeout.

A registration carries a marker of its process (infra/process_marker.py). If the marker is of this machine and PID
namespace, the process is watched. A process that ended while no jobmanager was running is reported at once. All other
TaskExecutors rely on heartbeats.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ...infra import threads
from ...infra.logging_setup import logger
from ...infra.process_exit_watcher import ProcessExitWatcher
from ...infra.process_marker import is_from_here, living

_log = logger(__name__)


class RegisteredWorker(Protocol):
    """What the watch needs of a ResourceManager's WorkerRegistration."""

    @property
    def resource_id(self) -> str: ...

    @property
    def instance_id(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def process_mark(self) -> str: ...


class LocalWorker(NamedTuple):
    """A registration."""

    resource_id: str
    instance_id: str
    address: str


OnEnd = Callable[[str, str, str], None]
"""(resource id, instance id, reason) of a TaskExecutor whose process has ended."""
Workers = Mapping[str, RegisteredWorker]
"""By resource id."""


class LocalProcessMonitor:
    """Follows the registered TaskExecutors; says once of each registration that its process has ended."""

    def __init__(self, on_end: OnEnd, *, use_pidfd: bool | None = None) -> None:
        self._on_end = on_end
        self._watched: dict[str, LocalWorker] = {}
        self._newest: Workers | None = None
        self._handed: queue.SimpleQueue[Workers | None] = queue.SimpleQueue()
        self._exits: ProcessExitWatcher[LocalWorker] = (
            ProcessExitWatcher(self._on_exit)
            if use_pidfd is None
            else ProcessExitWatcher(self._on_exit, use_pidfd=use_pidfd)
        )
        self._thread = threads.Thread(target=self._run, name="process watch")
        self._thread.start()

    def follow(self, workers: Workers) -> None:
        """The registrations as they are now; returns at once, and costs nothing where they are the same object."""
        if workers is not self._newest:
            self._newest = workers
            self._handed.put(workers)

    @property
    def watched(self) -> frozenset[LocalWorker]:
        """The registrations whose processes are watched."""
        return self._exits.watched

    def close(self) -> None:
        """Says nothing more."""
        self._handed.put(None)
        self._thread.join()
        self._exits.close()

    def _run(self) -> None:
        while True:
            workers = self._handed.get()
            while workers is not None and not self._handed.empty():
                # Only the newest counts.
                workers = self._handed.get()
            if workers is None:
                return
            try:
                self._update(workers)
            except Exception:
                _log.exception("registered processes can't be watched; heartbeats go on")

    def _update(self, workers: Workers) -> None:
        for resource_id in list(self._watched):
            if resource_id not in workers:
                self._exits.drop(self._watched.pop(resource_id))
        for resource_id, registered in workers.items():
            worker = LocalWorker(resource_id, registered.instance_id, registered.address)
            before = self._watched.get(resource_id)
            if before == worker:
                continue
            if before is not None:
                self._exits.drop(before)
            # Remembered also if it is not watched, so that the same registration is not looked at again.
            self._watched[resource_id] = worker
            if is_from_here(registered.process_mark):
                self._watch(worker, registered.process_mark)

    def _watch(self, worker: LocalWorker, mark: str) -> None:
        process = living(mark)
        if process is None or not self._exits.watch(worker, process):
            self._on_exit(worker)

    def _on_exit(self, worker: LocalWorker) -> None:
        reason = f"the process of TaskExecutor {worker.resource_id} at {worker.address} has ended"
        self._on_end(worker.resource_id, worker.instance_id, reason)
