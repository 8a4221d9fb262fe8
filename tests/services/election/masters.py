"""Masters for tests: the view of a process on an election, and its nodes in ZooKeeper."""

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
from typing import Any, Protocol, Self

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from polling import TIMEOUT_S, wait_until

from tailrace.services.election.kafka_liveness_monitor import KafkaState
from tailrace.services.election.kubernetes_leader_election import KubernetesLeaderElection
from tailrace.services.election.kubernetes_settings import KubernetesElectionSettings
from tailrace.services.election.leader_election import LeaderElection
from tailrace.services.election.leader_information import LeaderInformation
from tailrace.services.election.lease import uptime
from tailrace.services.election.settings import ZooKeeperSettings
from tailrace.services.election.zookeeper_leader_election import ZooKeeperLeaderElection

ROLES = ("dispatcher", "resource_manager", "rest_server")
ROLE = ROLES[0]


def logged(capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the log lines since then, from stdout and stderr: structlog's default is stdout, our processes use
    stderr."""
    captured = capsys.readouterr()
    return captured.out + captured.err


def information_of(address: str) -> LeaderInformation:
    return LeaderInformation(address, f"session of {address}", 0, {"blob": "h:1"})


class Candidacy(LeaderElection, Protocol):
    """The LeaderElection of one of several simulated processes; `address` names it."""

    address: str

    def on_kafka_state(self, state: KafkaState) -> None: ...

    @property
    def granted(self) -> int | None:
        """The epoch of its grant."""
        grant = self.grant
        return None if grant is None else grant.epoch

    def epoch(self) -> int:
        """Waits until it is granted leadership, and returns the epoch."""
        return wait_until(lambda: self.granted, f"{self.address} is granted leadership")

    def believes(self) -> bool:
        """Returns whether it may decide now."""
        return self.grant is not None and not self.is_suspended

    def leads(self) -> int:
        """Returns the epoch and confirms the leadership, as a host does."""
        epoch = self.epoch()
        self.confirm_leadership(epoch)
        return epoch


class Master(ZooKeeperLeaderElection, Candidacy):
    """One that is elected by ZooKeeper."""

    def __init__(self, settings: ZooKeeperSettings, address: str) -> None:
        super().__init__(settings, information_of(address), ROLES)
        self.address = address


class KubernetesMaster(KubernetesLeaderElection, Candidacy):
    """One that is elected by Kubernetes."""

    def __init__(self, settings: KubernetesElectionSettings, address: str) -> None:
        super().__init__(settings, information_of(address))
        self.address = address


@contextlib.contextmanager
def onlooker(settings: ZooKeeperSettings, **more: Any) -> Iterator[KazooClient]:
    """Returns a client of its own."""
    kazoo = KazooClient(settings.quorum, timeout=60.0, **more)
    kazoo.start(timeout=TIMEOUT_S)
    try:
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


def tree(kazoo: KazooClient, path: str) -> list[str]:
    """Returns all nodes below a path."""
    results: list[str] = []
    try:
        children = kazoo.get_children(path)
    except NoNodeError:
        return results
    for child in children:
        results += [f"{path}/{child}", *tree(kazoo, f"{path}/{child}")]
    return sorted(results)


class Sight(msgspec.Struct, frozen=True):
    """The grants that another process had from a time on (by `uptime`, which is the same in all processes)."""

    time: float
    epoch: int | None
    is_suspended: bool


class OtherMaster:
    """A candidate in a process of its own, which prints its grants. A context manager; killed at the end."""

    def __init__(self, settings: ZooKeeperSettings | KubernetesElectionSettings, address: str) -> None:
        kind = type(settings).__name__
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("other_master.py")), address, kind],
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
        """Returns its epoch as it last printed it."""
        return self.sights[-1].epoch if self.sights else None

    @property
    def deciding(self) -> int | None:
        """Returns the epoch under which it may decide, as it last printed it."""
        last = self.sights[-1] if self.sights else None
        return None if last is None or last.is_suspended else last.epoch

    def kill(self) -> float:
        """Sends SIGKILL; returns the time of that."""
        self._process.kill()
        self._process.wait()
        return uptime()

    def pause(self) -> float:
        """Sends SIGSTOP; returns the time of that."""
        self._process.send_signal(signal.SIGSTOP)
        return uptime()

    def resume(self) -> None:
        """Sends SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Ends as a process that closes its LeaderElection first."""
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
