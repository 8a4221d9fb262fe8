"""One process of a local cluster, started by this process or read from cluster.json."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from ....infra.interpreter import module_command
from ....infra.processes import OwnedProcess, ProcessIdentity
from ..exit_codes import CommandFailure, ExitCode
from .cluster_record import ProcessRecord

Progress = Callable[[str], None]
"""Shows a line of progress."""
_LAST_LINES = 12
_LONGEST_TAIL = 8192


class LocalProcess:
    """A process, whether it is a child of this one or not."""

    def __init__(self, record: ProcessRecord, owned: OwnedProcess | None = None, log_start: int = 0) -> None:
        self.record = record
        self._owned = owned
        self._log_start = log_start

    @classmethod
    def start(
        cls,
        name: str,
        arguments: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str],
        detached: bool,
    ) -> LocalProcess:
        """Runs `tailrace ARGUMENTS`; `detached`, it outlives this process."""
        log.parent.mkdir(parents=True, exist_ok=True)
        log_start = log.stat().st_size if log.exists() else 0
        owned = OwnedProcess(
            module_command("tailrace.services.cli", *arguments),
            log=log,
            env={**os.environ, **environment},
            detached=detached,
        )
        identity = ProcessIdentity.from_pid(owned.pid)
        record = ProcessRecord(
            pid=identity.pid, created=identity.created, mark=identity.mark, name=name, log=str(log)
        )
        return cls(record, owned, log_start)

    @property
    def name(self) -> str:
        """The name of a jobmanager, or a TaskExecutor's resource id."""
        return self.record.name

    @property
    def address(self) -> str:
        """host:pid, as the process calls itself in the log."""
        return f"{socket.gethostname()}:{self.record.pid}"

    def is_running(self) -> bool:
        """Whether it runs."""
        if self._owned is not None:
            return self._owned.poll() is None
        return self.record.process() is not None

    def raise_if_ended(self) -> None:
        """Raises CommandFailure, with the end of its log, if the process has died."""
        if self.is_running():
            return
        code = self._owned.poll() if self._owned is not None else None
        how = "died" if code is None else f"ended with {_describe_exit(code)}"
        raise CommandFailure(
            ExitCode.PROCESS_FAILED,
            f"{self.name} {how} before it was ready; its log, {self.record.log}, ends with:",
            self.last_lines(),
        )

    def last_lines(self) -> str:
        """Returns the last lines of its log."""
        with contextlib.suppress(OSError), Path(self.record.log).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _LONGEST_TAIL))
            text = log.read().decode("utf-8", "replace")
            return "\n".join(f"  {line[:300]}" for line in text.splitlines()[-_LAST_LINES:])
        return ""

    def terminate(self) -> None:
        """Sends SIGTERM."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if self.is_running():
                psutil.Process(self.record.pid).terminate()

    def kill(self) -> None:
        """Sends SIGKILL, and waits until the process has ended."""
        if self._owned is not None:
            self._owned.kill()
            return
        process = self.record.process()
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                process.wait(10)


def _describe_exit(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
