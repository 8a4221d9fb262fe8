"""What embedded servers have in common: a process over a data directory, with a log and a record of where it serves.

The data survives `stop`, `kill` and a restart on the same directory. The record, `<name>.json` in that directory, has
the process and its address, so that another process can attach.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

import msgspec

from .disk_space import describe_shortage
from .processes import OwnedProcess, ProcessIdentity, end_process, wait_until_stopped

STOP_TIMEOUT_S: Final = 20.0

SMALL_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""The C1 compiler and the serial collector: a small JVM that starts fast."""

SIMPLE_LOGGER: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)
"""Options of a JVM that logs by slf4j-simple, as Kafka's jars do."""


class ServerUnavailable(Exception):
    """A server did not start or is not running; the message gives the reason and the location of its log."""


class ServerRecord(ProcessIdentity, frozen=True, kw_only=True):
    """`<name>.json`: the process that serves a data directory, and its address (`host:port`)."""

    address: str


class Server:
    """A server, or several that belong together. As a context manager it starts on entry and stops on exit."""

    def start(self) -> Self:
        """Starts what is not running and returns when it serves."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stops it and returns when it is gone."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class EmbeddedServer(Server):
    """One process that serves a data directory."""

    name: ClassVar[str]
    unavailable: ClassVar[type[ServerUnavailable]]

    def __init__(self, data_dir: Path | None) -> None:
        """`data_dir` holds all data; None: a temporary directory, which `stop` removes."""
        self._is_temporary = data_dir is None
        self.data_dir = (
            data_dir or Path(tempfile.mkdtemp(prefix=f"tailrace-{self.name.lower()}-"))
        ).absolute()
        self._owned: OwnedProcess | None = None
        self._record: ServerRecord | None = None
        self._log_start = 0

    @classmethod
    def attach(cls, data_dir: Path) -> Self:
        """Returns the server that another process started over `data_dir`. Raises `unavailable` if none is running
        there."""
        server = cls(data_dir)
        record = server._read_record()
        if record is None or record.process() is None:
            raise cls.unavailable(f"no {cls.name} is running over {data_dir}: start the cluster first")
        server._record = record
        return server

    @property
    def address(self) -> str:
        """`host:port` for clients. Raises `unavailable` before the first start."""
        return self._started_record().address

    @property
    def pid(self) -> int:
        """The server's process id. Raises `unavailable` before the first start."""
        return self._started_record().pid

    @property
    def log_path(self) -> Path:
        """The server's log file (not its data)."""
        return self._path("log")

    def is_running(self) -> bool:
        """Whether the server's process is alive."""
        if self._owned is not None:
            return self._owned.poll() is None
        return self._record is not None and self._record.process() is not None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops the server cleanly (SIGKILL after `timeout_s` seconds) and returns when it is gone; the data remains.

        A server with a temporary directory is killed, and the directory removed: a clean stop helps only a later
        restart. Stopping a stopped server does nothing.
        """
        if self._is_temporary:
            self.kill()
            shutil.rmtree(self.data_dir, ignore_errors=True)
            return
        if self.is_running():
            # A paused process does not receive SIGTERM.
            with contextlib.suppress(ProcessLookupError):
                self.resume()
        self._end(timeout_s)

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash; returns when the process is gone. The data remains."""
        self._end(None)

    def pause(self) -> None:
        """Sends SIGSTOP, and returns when no thread runs: the process does not answer clients until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)
        wait_until_stopped(self.pid)

    def resume(self) -> None:
        """Sends SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self if self.is_running() else self.start()

    def _path(self, suffix: str) -> Path:
        return self.data_dir / f"{self.name.lower()}.{suffix}"

    def _started_record(self) -> ServerRecord:
        if self._record is None:
            raise self.unavailable(f"the {self.name} over {self.data_dir} has not been started")
        return self._record

    def _read_record(self) -> ServerRecord | None:
        """Returns the record of the last start over this directory, in any process; None before the first."""
        try:
            return msgspec.json.decode(self._path("json").read_bytes(), type=ServerRecord)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _write_record(self, pid: int, address: str) -> None:
        identity = ProcessIdentity.from_pid(pid)
        self._record = ServerRecord(pid, identity.created, identity.mark, address=address)
        fresh = self._path("new")
        fresh.write_bytes(msgspec.json.encode(self._record))
        fresh.replace(self._path("json"))

    def _earlier_port(self) -> int:
        """Returns the port of the last start, so that clients find the server again; 0 before the first."""
        record = self._read_record()
        return 0 if record is None else int(record.address.rpartition(":")[2])

    def _already_running(self) -> ServerUnavailable:
        """Returns the error of a start over a directory that has a running server."""
        record = self._read_record()
        owner = "" if record is None else f" (pid {record.pid}, {record.address})"
        return self.unavailable(
            f"a {self.name} is already running over {self.data_dir}{owner}: attach to it, or stop it first"
        )

    def _launch(
        self, command: Sequence[str], address: str, *, detached: bool, pass_fds: Sequence[int] = ()
    ) -> None:
        """Starts the process and records it; `detached`, it outlives this process."""
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        try:
            self._owned = OwnedProcess(
                command, log=self.log_path, cwd=self.data_dir, detached=detached, pass_fds=pass_fds
            )
            self._write_record(self._owned.pid, address)
        except BaseException:
            self.kill()
            raise

    def _require_running(self, deadline: float) -> None:
        """Raises `unavailable` with the last lines of the log if the process has ended, or at the deadline."""
        code = None if self._owned is None else self._owned.poll()
        if code is None and time.monotonic() <= deadline:
            return
        reason = (
            "did not answer in time" if code is None else f"ended with exit code {code} before it answered"
        )
        raise self.unavailable(
            f"{self.name} {reason}{describe_shortage(self.data_dir)};"
            f" its log, {self.log_path}, ends with:\n{tail(self._read_log())}"
        )

    def _read_log(self) -> str:
        """Returns the log since the last launch."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _end(self, timeout_s: float | None) -> None:
        """Ends the process. `timeout_s` None: kills it at once."""
        if self._owned is not None:
            self._owned.kill() if timeout_s is None else self._owned.stop(timeout_s)
            self._owned = None
        elif self._record is not None and (process := self._record.process()) is not None:
            end_process(process, timeout_s)


def java_properties(values: Mapping[str, str]) -> str:
    """Returns the text of a properties file."""
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in values.items())


def tail(text: str, lines: int = 8) -> str:
    """Returns the last lines of a log, without stack frames."""
    telling = [line for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", "\t..."))]
    return "\n".join(f"  {line[:300]}" for line in telling[-lines:])
