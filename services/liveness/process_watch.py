"""A TaskExecutor whose process runs on this machine is lost when the process ends, not a heartbeat timeout later.

A registration names a process, host:pid. It is watched only where it is certain that a process here is the one that
registered: same host name, same PID namespace (a container may have our host's name), a command line that starts a
taskexecutor of that resource id, and a cluster id that does not differ. Everything else is left to heartbeats.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import psutil
import structlog

from ...infra.processes import ProcessIdentity
from ..configuration.options import CLUSTER_ID, RESOURCE_ID, variable
from .exits import Exits

_log = structlog.get_logger(__name__)
_COMMAND = "taskexecutor"
_RESOURCE_ID_OPTION = "--resource-id"
_CLUSTER_ID_OPTION = "--cluster-id"


class Registered(Protocol):
    """What the watch needs of a ResourceManager's WorkerRegistration."""

    @property
    def resource_id(self) -> str: ...

    @property
    def instance_id(self) -> str: ...

    @property
    def address(self) -> str: ...


class Worker(NamedTuple):
    """A registration."""

    resource_id: str
    instance_id: str


OnEnd = Callable[[str, str, str], None]
"""(resource id, instance id, reason) of a TaskExecutor whose process has ended."""
Workers = Mapping[str, Registered]
"""By resource id."""


class ProcessWatch:
    """Follows the registered TaskExecutors; says once of each registration that its process has ended."""

    def __init__(self, cluster: str, on_end: OnEnd, *, use_pidfd: bool | None = None) -> None:
        self._cluster = cluster
        self._on_end = on_end
        self._host = socket.gethostname()
        self._watched: dict[str, tuple[Worker, int]] = {}
        self._newest: Workers | None = None
        self._handed: queue.SimpleQueue[Workers | None] = queue.SimpleQueue()
        self._exits: Exits[tuple[Worker, int]] = (
            Exits(self._ended) if use_pidfd is None else Exits(self._ended, use_pidfd=use_pidfd)
        )
        self._thread = threading.Thread(target=self._run, name="process watch", daemon=True)
        self._thread.start()

    def follow(self, workers: Workers) -> None:
        """The registrations as they are now; returns at once, and costs nothing where they are the same object."""
        if workers is not self._newest:
            self._newest = workers
            self._handed.put(workers)

    @property
    def watched(self) -> frozenset[tuple[Worker, int]]:
        """The registrations whose processes are watched, with their pids."""
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
            worker = Worker(resource_id, registered.instance_id)
            before = self._watched.get(resource_id)
            if before is not None and before[0] == worker:
                continue
            if before is not None:
                self._exits.drop(self._watched.pop(resource_id))
            host, _, pid = registered.address.rpartition(":")
            if host == self._host and pid.isdecimal():
                self._watch(worker, int(pid))

    def _watch(self, worker: Worker, pid: int) -> None:
        key = worker, pid
        # Remembered also if it is not watched, so that the same registration is not looked at again.
        self._watched[worker.resource_id] = key
        identity = find(pid, self._cluster, worker.resource_id)
        if identity is not None and not self._exits.watch(key, identity):
            self._ended(key)

    def _ended(self, key: tuple[Worker, int]) -> None:
        worker, pid = key
        self._on_end(
            worker.resource_id,
            worker.instance_id,
            f"the process of TaskExecutor {worker.resource_id} at {self._host}:{pid} has ended",
        )


def find(pid: int, cluster: str, resource_id: str) -> ProcessIdentity | None:
    """The process that has the pid, if it certainly is the TaskExecutor of that resource id in that cluster."""
    with contextlib.suppress(psutil.Error, OSError):
        identity = ProcessIdentity.of(pid)
        process = psutil.Process(pid)
        if _is_in_our_namespace(pid) and _is_taskexecutor(
            process.cmdline(), process.environ(), cluster, resource_id
        ):
            return identity
    return None


def _is_in_our_namespace(pid: int) -> bool:
    own = "/proc/self/ns/pid"
    return not os.path.exists(own) or os.stat(own).st_ino == os.stat(f"/proc/{pid}/ns/pid").st_ino


def _is_taskexecutor(
    command: list[str], environment: Mapping[str, str], cluster: str, resource_id: str
) -> bool:
    if _COMMAND not in command:
        return False
    arguments = command[command.index(_COMMAND) + 1 :]
    named = _value(arguments, RESOURCE_ID.key, _RESOURCE_ID_OPTION, environment)
    of_cluster = _value(arguments, CLUSTER_ID.key, _CLUSTER_ID_OPTION, environment)
    return named == resource_id and of_cluster in (cluster, None)


def _value(arguments: list[str], key: str, option: str, environment: Mapping[str, str]) -> str | None:
    """What a command line, or else its environment, says; None where that is said elsewhere."""
    for index, argument in enumerate(arguments):
        if argument == option and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    for argument in arguments:
        text = argument.removeprefix("-D").strip()
        if text.startswith(f"{key}="):
            return text.partition("=")[2]
    return environment.get(variable(key))
