"""Jobmanager processes that contend for the lead, each with a network of its own between it and the servers."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tailrace.services.cli.local.local_process import LocalProcess
from tailrace.services.configuration import Configuration

from .network_links import Network


class Master:
    """A jobmanager, which may be started again and again under one name."""

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
        """Begins to start it, if it does not run."""
        if not self.is_running():
            self._process = LocalProcess.start(
                self.name, ["jobmanager"], log=self._log, environment=self._environment, detached=False
            )

    @property
    def address(self) -> str:
        """As it calls itself in the log."""
        assert self._process is not None
        return self._process.address

    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self._process is not None:
            self._process.kill()
        self._stopped = False

    def ask_to_end(self) -> None:
        """SIGTERM; returns at once."""
        assert self._process is not None
        os.kill(self._process.record.pid, signal.SIGTERM)

    def builds(self) -> bool:
        """Whether a program is just building its graph there."""
        assert self._process is not None
        children = psutil.Process(self._process.record.pid).children()
        return any("api.build" in " ".join(each.cmdline()) for each in children)

    def pause(self) -> None:
        """SIGSTOP."""
        assert self._process is not None
        os.kill(self._process.record.pid, signal.SIGSTOP)
        self._stopped = True

    def resume(self) -> None:
        """SIGCONT."""
        if self._stopped and self._process is not None:
            self._stopped = False
            os.kill(self._process.record.pid, signal.SIGCONT)

    def read_output(self) -> str:
        """The end of its log for people."""
        return self._process.last_lines() if self._process is not None else ""

    def close(self) -> None:
        """Nothing of it is left."""
        self.kill()
        self.network.close()


class Masters:
    """Several of one cluster. A context manager: they are started on entry, and killed on exit."""

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
        """Begins to start those that do not run."""
        for each in self.all:
            each.start()

    def close(self) -> None:
        for each in self.all:
            each.close()

    def at(self, address: str) -> Master:
        """The one that calls itself so. Raises StopIteration where none does."""
        return next(each for each in self.all if each.is_running() and each.address == address)

    def others(self, master: Master) -> list[Master]:
        return [each for each in self.all if each is not master]
