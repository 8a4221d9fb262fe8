"""A ZooKeeper ensemble on this machine: several servers of which more than half must live.

For tests of what one server cannot show: a leader that dies, a minority that is cut off, a rolling restart. Every
server is an EmbeddedZooKeeper of its own, to be stopped, killed, paused and started again by itself.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from .ports import HOST, ReservedPort
from .zookeeper import START_TIMEOUT_S, STOP_TIMEOUT_S, EmbeddedZooKeeper, Membership, ZooKeeperUnavailable

_LEADER_LOOK_S: Final = 0.05


class EnsembleRecord(msgspec.Struct, frozen=True):
    """`ensemble.json`: the members, by their ports."""

    members: tuple[Membership, ...]


class ZooKeeperEnsemble:
    """Servers that know each other, numbered from 1. As a context manager all are started and stopped."""

    def __init__(
        self,
        size: int = 3,
        data_dir: Path | None = None,
        *,
        heap: str = "128m",
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
    ) -> None:
        """`data_dir` holds a directory for each server; a temporary one, removed by `stop`, without it.

        Over a directory of an earlier ensemble of that size its ports are taken again; OSError where one is in use.
        All ports, also those that only a later leader binds, are held until `stop`.
        """
        if size < 1:
            raise ValueError(f"an ensemble has one server or more, not {size}")
        self._scratch = (
            tempfile.TemporaryDirectory(prefix="tailrace-zookeeper-") if data_dir is None else None
        )
        self.data_dir = Path(self._scratch.name if self._scratch else str(data_dir)).absolute()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._ports: list[ReservedPort] = []
        members = self._members(size)
        self.servers: tuple[EmbeddedZooKeeper, ...] = tuple(
            EmbeddedZooKeeper(
                self.data_dir / str(member.number),
                heap=heap,
                settings=settings,
                jvm_options=jvm_options,
                membership=member,
            )
            for member in members
        )
        self.connect_string: Final = ",".join(f"{HOST}:{member.client_port}" for member in members)

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Starts those that are not running and returns when all serve. Raises as EmbeddedZooKeeper.start."""
        deadline = time.monotonic() + timeout_s
        fresh = [server for server in self.servers if not server.is_running()]
        try:
            for server in fresh:
                server.launch()
            for server in fresh:
                server.wait_until_serving(deadline - time.monotonic())
        except BaseException:
            for server in fresh:
                server.kill()
            raise
        return self

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ends all in order, at once, and gives their ports back. The data stays.

        With a temporary directory they are killed, and the directory removed.
        """
        if self._scratch is None:
            with ThreadPoolExecutor(len(self.servers)) as threads:
                list(threads.map(lambda server: server.stop(timeout_s), self.servers))
        else:
            self.kill()
            self._scratch.cleanup()
        for port in self._ports:
            port.release()

    def kill(self) -> None:
        """SIGKILL to all, as when the machine fails."""
        for server in self.servers:
            server.kill()

    def pause(self) -> None:
        """SIGSTOP to all that run."""
        for server in self._running():
            server.pause()

    def resume(self) -> None:
        """SIGCONT to all that run."""
        for server in self._running():
            server.resume()

    def leader(self, timeout_s: float = START_TIMEOUT_S) -> EmbeddedZooKeeper:
        """The server that leads; waits for an election that is under way.

        Raises ZooKeeperUnavailable if none leads in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            # The only one of an ensemble of one calls itself standalone.
            for server in self._running():
                if server.mode() in ("leader", "standalone"):
                    return server
            if time.monotonic() > deadline:
                raise ZooKeeperUnavailable(
                    f"no server of {self.connect_string} leads: fewer than half of them serve?"
                )
            time.sleep(_LEADER_LOOK_S)

    def followers(self, timeout_s: float = START_TIMEOUT_S) -> tuple[EmbeddedZooKeeper, ...]:
        """All other servers than `leader`, whether they run or not. Raises as that."""
        leader = self.leader(timeout_s)
        return tuple(server for server in self.servers if server is not leader)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> list[EmbeddedZooKeeper]:
        return [server for server in self.servers if server.is_running()]

    def _members(self, size: int) -> tuple[Membership, ...]:
        path = self.data_dir / "ensemble.json"
        earlier = msgspec.json.decode(path.read_bytes(), type=EnsembleRecord).members if path.exists() else ()
        if len(earlier) != size:
            earlier = ()
        wanted = [port for m in earlier for port in (m.client_port, *m.peers[m.number])] or [0] * (3 * size)
        self._ports = [ReservedPort(number) for number in wanted]
        numbers = iter(port.number for port in self._ports)
        drawn = {number: (next(numbers), next(numbers), next(numbers)) for number in range(1, size + 1)}
        peers = {number: (quorum, election) for number, (_, quorum, election) in drawn.items()}
        members = tuple(Membership(number, client, peers) for number, (client, _, _) in drawn.items())
        path.write_bytes(msgspec.json.encode(EnsembleRecord(members)))
        return members
