"""Masters for tests: what a process sees of an election, and what ZooKeeper has of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from polling import TIMEOUT_S, wait_until

from tailrace.services.election.leader_information import LeaderInformation
from tailrace.services.election.lease import uptime
from tailrace.services.election.settings import ZooKeeperSettings
from tailrace.services.election.zookeeper_leader_election import ZooKeeperLeaderElection

ROLE = "dispatcher"


def logged(capsys: pytest.CaptureFixture[str]) -> str:
    """What was logged since, on whichever stream: by default structlog takes stdout, our processes take stderr."""
    captured = capsys.readouterr()
    return captured.out + captured.err


class Master(ZooKeeperLeaderElection):
    """The mandates of one process among others in this one; `address` names it."""

    def __init__(self, settings: ZooKeeperSettings, address: str) -> None:
        super().__init__(settings, LeaderInformation(address, f"session of {address}", 0, {"blob": "h:1"}))
        self.address = address

    def epoch(self, role: str = ROLE) -> int:
        """Its epoch, as soon as it has been granted the role."""
        wait_until(lambda: role in self.grants(), f"{self.address} is granted {role}")
        epoch = self.grants()[role]
        assert epoch is not None
        return epoch

    def believes(self, role: str = ROLE) -> bool:
        """Whether it would decide something now."""
        return role in self.grants() and not self.suspended

    def leads(self, role: str = ROLE) -> int:
        """As `epoch`, and has it confirmed as a host does."""
        epoch = self.epoch(role)
        self.confirm_leadership(role, epoch)
        return epoch


@contextlib.contextmanager
def onlooker(settings: ZooKeeperSettings, **more: Any) -> Iterator[KazooClient]:
    """A client of its own."""
    kazoo = KazooClient(settings.quorum, timeout=60.0, **more)
    kazoo.start(timeout=TIMEOUT_S)
    try:
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


def tree(kazoo: KazooClient, path: str) -> list[str]:
    """All nodes below a path."""
    found: list[str] = []
    try:
        children = kazoo.get_children(path)
    except NoNodeError:
        return found
    for child in children:
        found += [f"{path}/{child}", *tree(kazoo, f"{path}/{child}")]
    return sorted(found)


class Sight(msgspec.Struct, frozen=True):
    """What another process saw of its mandates from a time on (of `uptime`, the same in all processes)."""

    time: float
    epoch: int | None
    suspended: bool


class OtherMaster:
    """A process that contends for ROLE, and writes down what it sees. A context manager; killed at its end."""

    def __init__(self, settings: ZooKeeperSettings, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("other_master.py")), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.sights: list[Sight] = []
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(settings) + b"\n")
        self._process.stdin.flush()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def epoch(self) -> int | None:
        """As it last said."""
        return self.sights[-1].epoch if self.sights else None

    @property
    def deciding(self) -> int | None:
        """The epoch under which it would decide something, as it last said."""
        last = self.sights[-1] if self.sights else None
        return None if last is None or last.suspended else last.epoch

    def kill(self) -> float:
        """SIGKILL; returns when that was."""
        self._process.kill()
        self._process.wait()
        return uptime()

    def pause(self) -> float:
        """SIGSTOP; returns when that was."""
        self._process.send_signal(signal.SIGSTOP)
        return uptime()

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """As a process ends that closes its mandates first."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.sights.append(Sight(**json.loads(line)))
