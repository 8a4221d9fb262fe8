"""Workers as processes of this machine (`resourcemanager.worker-driver: local-process`).

Each is a detached `tailrace taskexecutor`: it outlives the jobmanager, and ends with the cluster.
`<home>/workers/<cluster>/` has a file for each, with pid and creation time, so that a successor, `cluster stop` and
`cluster status` find the process and never confuse it with another one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from ....infra import threads
from ....infra.interpreter import module_command
from ....infra.logging_setup import logger
from ....infra.process_exit_watcher import ProcessExitWatcher
from ....infra.processes import OwnedProcess, ProcessIdentity
from ....schemas.types import ResourceProfile
from ...configuration import Configuration
from .driver import OnExit, WorkerNotStarted

KILL_AFTER_S = 15.0
"""How long a worker may take to leave: it ends its tasks, and Spark."""
_SUFFIX = ".json"
_log = logger(__name__)

Command = Callable[[str, int], tuple[Sequence[str], Mapping[str, str]]]
"""(resource id, number of slots) -> the command that runs the worker, and its environment."""


class WorkerRecord(ProcessIdentity, frozen=True, kw_only=True):
    """The file of a worker."""

    resource_id: str
    log: str

    @property
    def address(self) -> str:
        """host:pid, as the process registers itself."""
        return f"{socket.gethostname()}:{self.pid}"


def worker_records(home: Path, cluster: str) -> list[WorkerRecord]:
    """Returns the live workers of a cluster. Damaged files are skipped."""
    found = []
    for path in sorted((home / "workers" / cluster).glob(f"*{_SUFFIX}")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            record = msgspec.json.decode(path.read_bytes(), type=WorkerRecord)
            if record.process() is not None:
                found.append(record)
    return found


def taskexecutor_command(configuration: Configuration) -> Command:
    """Returns the command of a TaskExecutor with this configuration, independent of the worker's environment and
    file."""
    home = configuration.home.absolute()
    environment = {
        **os.environ,
        **configuration.replace({"home": str(home)}).environment(),
        "PYTHONUNBUFFERED": "1",
    }

    def command(resource_id: str, number_of_slots: int) -> tuple[Sequence[str], Mapping[str, str]]:
        arguments = ["taskexecutor", "--resource-id", resource_id, "--slots", str(number_of_slots)]
        return module_command("tailrace.services.cli", *arguments), environment

    return command


class LocalProcessDriver:
    """The driver of `resourcemanager.worker-driver: local-process`."""

    def __init__(
        self,
        home: Path,
        cluster: str,
        command: Command,
        on_exit: OnExit,
        *,
        kill_after_s: float = KILL_AFTER_S,
    ) -> None:
        self._home = home.absolute()
        self._cluster = cluster
        self._workers = self._home / "workers" / cluster
        self._command = command
        self._on_exit = on_exit
        self._kill_after_s = kill_after_s
        self._lock = threading.Lock()
        self._started: dict[str, OwnedProcess] = {}
        self._watched: dict[str, WorkerRecord] = {}
        self._stopping: dict[str, str] = {}
        self._timers: dict[str, threading.Timer] = {}
        self._exits: ProcessExitWatcher[str] = ProcessExitWatcher(self._on_process_end)

    def start(
        self, resource_id: str, number_of_slots: int, slot_profile: ResourceProfile | None = None
    ) -> str:
        del slot_profile
        with self._lock:
            record = self._find(resource_id)
            if record is None:
                record = self._spawn(resource_id, number_of_slots)
            self._watch(record)
            return record.address

    def stop(self, resource_id: str, reason: str) -> bool:
        with self._lock:
            record = self._find(resource_id)
            process = record.process() if record is not None else None
            if record is None or process is None:
                return False
            self._watch(record)
            if resource_id not in self._stopping:
                self._stopping[resource_id] = reason
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()
                timer = threads.Timer(self._kill_after_s, self._kill, [record], name="worker kill")
                self._timers[resource_id] = timer
                timer.start()
            return True

    def survivors(self) -> Mapping[str, str]:
        with self._lock:
            records = worker_records(self._home, self._cluster)
            self._remove_all_but({record.resource_id for record in records})
            for record in records:
                self._watch(record)
            return {record.resource_id: record.address for record in records}

    def close(self) -> None:
        self._exits.close()
        with self._lock:
            for timer in self._timers.values():
                timer.cancel()

    def _path(self, resource_id: str) -> Path:
        return self._workers / f"{resource_id}{_SUFFIX}"

    def _find(self, resource_id: str) -> WorkerRecord | None:
        """Returns the worker of that name, if its process lives."""
        try:
            record = msgspec.json.decode(self._path(resource_id).read_bytes(), type=WorkerRecord)
        except (OSError, msgspec.MsgspecError):
            return None
        return record if record.process() is not None else None

    def _spawn(self, resource_id: str, number_of_slots: int) -> WorkerRecord:
        command, environment = self._command(resource_id, number_of_slots)
        log = self._home / "log" / f"{resource_id}.log"
        try:
            self._workers.mkdir(parents=True, exist_ok=True)
            log.parent.mkdir(parents=True, exist_ok=True)
            owned = OwnedProcess(command, log=log, env=environment, detached=True)
        except OSError as error:
            raise WorkerNotStarted(f"{resource_id} cannot be started: {error}; see {self._home}") from error
        self._started[resource_id] = owned
        try:
            identity = ProcessIdentity.from_pid(owned.pid)
        except psutil.NoSuchProcess:
            # It has ended already, which is reported like any end.
            identity = ProcessIdentity(owned.pid, 0.0)
        record = WorkerRecord(**msgspec.structs.asdict(identity), resource_id=resource_id, log=str(log))
        path = self._path(resource_id)
        try:
            fresh = path.with_suffix(".new")
            fresh.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
            fresh.replace(path)
        except OSError as error:
            # A worker that no successor could find must not run.
            owned.kill()
            raise WorkerNotStarted(f"{path} can't be written: {error}") from error
        _log.info("worker started", resource_id=resource_id, pid=owned.pid, log=str(log))
        return record

    def _watch(self, record: WorkerRecord) -> None:
        """Reports the process's end, once."""
        if self._watched.get(record.resource_id) == record:
            return
        self._watched[record.resource_id] = record
        if not self._exits.watch(record.resource_id, record):
            # In another thread: the caller must learn first that the worker was started.
            threads.Thread(target=self._on_process_end, args=[record.resource_id], name="worker end").start()

    def _kill(self, record: WorkerRecord) -> None:
        process = record.process()
        if process is not None:
            _log.warning(
                "a worker does not end; sends SIGKILL", resource_id=record.resource_id, pid=record.pid
            )
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _on_process_end(self, resource_id: str) -> None:
        with self._lock:
            record = self._watched.pop(resource_id, None)
            if record is None:
                return
            owned = self._started.pop(resource_id, None)
            timer = self._timers.pop(resource_id, None)
            if timer is not None:
                timer.cancel()
            asked = self._stopping.pop(resource_id, None)
            self._path(resource_id).unlink(missing_ok=True)
        # Waits a moment for its exit code, and with it for the end of the zombie.
        how = _how(owned.reap(1.0) if owned is not None else None)
        why = f" as requested: {asked}" if asked is not None else f"; see {record.log}"
        self._on_exit(resource_id, f"its process {record.address} has ended{how}{why}")

    def _remove_all_but(self, living: set[str]) -> None:
        for path in self._workers.glob(f"*{_SUFFIX}"):
            if path.stem not in living and path.stem not in self._watched:
                path.unlink(missing_ok=True)


def _how(code: int | None) -> str:
    if code is None:
        return ""
    return f" by signal {-code}" if code < 0 else f" with exit code {code}"
