"""Jobmanager processes that compete for leadership, each with a network of its own to the servers."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from process_status import command_line

from tailrace.services.cli.local.local_process import LocalProcess
from tailrace.services.configuration import Configuration

from .network_links import Network


class Master:
    """A jobmanager that can be restarted under the same name."""

    def __init__(
        self, name: str, values: Mapping[str, str], kafka: str, zookeeper: Sequence[str], log: Path
    ) -> None:
        self.name = name
        self.network = Network(kafka, zookeeper)
        self._log = log
        self._environment = {
            **Configuration(
                {
                    **values,
                    "bootstrap.servers": self.network.kafka.address,
                    "high-availability.zookeeper.quorum": ",".join(
                        link.address for link in self.network.zookeeper
                    ),
                }
            ).environment(),
            "PYTHONUNBUFFERED": "1",
        }
        self._process: LocalProcess | None = None
        self._stopped = False

    def start(self) -> None:
        """Starts the process if it does not run; does not wait for it."""
        if not self.is_running():
            self._process = LocalProcess.start(
                self.name, ["jobmanager"], log=self._log, environment=self._environment, detached=False
            )

    @property
    def address(self) -> str:
        """Returns its address in the log."""
        assert self._process is not None
        return self._process.address

    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    def kill(self) -> None:
        """Sends SIGKILL and waits until the process is gone."""
        if self._process is not None:
            self._process.kill()
        self._stopped = False

    def ask_to_end(self) -> None:
        """Sends SIGTERM; does not wait."""
        assert self._process is not None
        os.kill(self._process.record.pid, signal.SIGTERM)

    def builds(self) -> bool:
        """Returns whether a program builds its graph there now."""
        assert self._process is not None
        children = psutil.Process(self._process.record.pid).children()
        return any("api.build" in " ".join(command_line(child)) for child in children)

    def pause(self) -> None:
        """Sends SIGSTOP."""
        assert self._process is not None
        os.kill(self._process.record.pid, signal.SIGSTOP)
        self._stopped = True

    def resume(self) -> None:
        """Sends SIGCONT."""
        if self._stopped and self._process is not None:
            self._stopped = False
            os.kill(self._process.record.pid, signal.SIGCONT)

    def read_output(self) -> str:
        """Returns the end of its output."""
        return self._process.last_lines() if self._process is not None else ""

    def close(self) -> None:
        """Kills the process and removes its files."""
        self.kill()
        self.network.close()


class Masters:
    """The masters of one cluster. A context manager: starts them on entry, kills them on exit."""

    def __init__(
        self, count: int, values: Mapping[str, str], kafka: str, zookeeper: Sequence[str], home: Path
    ) -> None:
        common = {**values, "home": str(home), "high-availability.type": "zookeeper"}
        names = [f"jobmanager-{number}" for number in range(1, count + 1)]
        self.all = [Master(name, common, kafka, zookeeper, home / "log" / f"{name}.log") for name in names]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts the masters that do not run; does not wait for them."""
        for master in self.all:
            master.start()

    def close(self) -> None:
        for master in self.all:
            master.close()

    def at(self, address: str) -> Master:
        """Returns the master with that address. Raises StopIteration if there is none."""
        return next(master for master in self.all if master.is_running() and master.address == address)

    def others(self, master: Master) -> list[Master]:
        return [item for item in self.all if item is not master]
