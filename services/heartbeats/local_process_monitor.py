"""Detects a lost TaskExecutor on this machine when its process exits, without waiting for the heartbeat timeout.

A registration carries the mark of its process (infra/process_marker.py). If the mark is of this machine and PID
namespace, the process is watched. If the process exited while no jobmanager was running, the loss is reported at once.
All other TaskExecutors are monitored by heartbeats only.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ...infra import threads
from ...infra.logging_setup import logger
from ...infra.process_exit_watcher import ProcessExitWatcher
from ...infra.process_marker import is_from_here
from ...infra.processes import find_marked

_log = logger(__name__)


class RegisteredWorker(Protocol):
    """The part of a ResourceManager's WorkerRegistration that the monitor reads."""

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
"""(resource id, instance id, reason) of a TaskExecutor whose process has exited."""
Workers = Mapping[str, RegisteredWorker]
"""The registrations by resource id."""


class LocalProcessMonitor:
    """Follows the registered TaskExecutors; reports the exit of each registration's process once."""

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
        """Sets the current registrations. Returns at once; does nothing if the mapping is the same object as before."""
        if workers is not self._newest:
            self._newest = workers
            self._handed.put(workers)

    @property
    def watched(self) -> frozenset[LocalWorker]:
        """The registrations whose processes are watched."""
        return self._exits.watched

    def close(self) -> None:
        """Stops reporting."""
        self._handed.put(None)
        self._thread.join()
        self._exits.close()

    def _run(self) -> None:
        while True:
            workers = self._handed.get()
            while workers is not None and not self._handed.empty():
                # Only the latest mapping matters.
                workers = self._handed.get()
            if workers is None:
                return
            try:
                self._update(workers)
            except Exception:
                _log.exception("cannot watch registered processes; continues with heartbeats")

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
            # Remember it even if it is not watched, so that the same registration is examined once.
            self._watched[resource_id] = worker
            if is_from_here(registered.process_mark):
                self._watch(worker, registered.process_mark)

    def _watch(self, worker: LocalWorker, mark: str) -> None:
        process = find_marked(mark)
        if process is None or not self._exits.watch(worker, process):
            self._on_exit(worker)

    def _on_exit(self, worker: LocalWorker) -> None:
        reason = f"the process of TaskExecutor {worker.resource_id} at {worker.address} has ended"
        self._on_end(worker.resource_id, worker.instance_id, reason)
