"""A ZooKeeper ensemble on this machine: several servers, of which a majority must run.

It is for tests that need more than one server: a dying leader, a partitioned minority, a rolling restart. Every server
is a separate EmbeddedZooKeeper that can be stopped, killed, paused and started alone.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

import msgspec

from .embedded_server import STOP_TIMEOUT_S, Server
from .ports import HOST, ReservedPort
from .zookeeper import START_TIMEOUT_S, EmbeddedZooKeeper, Membership, ZooKeeperUnavailable

_LEADER_LOOK_S: Final = 0.05


class EnsembleRecord(msgspec.Struct, frozen=True):
    """`ensemble.json`: the members with their ports."""

    members: tuple[Membership, ...]


class ZooKeeperEnsemble(Server):
    """Servers of one ensemble, numbered from 1. As a context manager it starts and stops all of them."""

    def __init__(
        self,
        size: int = 3,
        data_dir: Path | None = None,
        *,
        heap: str = "128m",
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
    ) -> None:
        """`data_dir` has a directory for each server; the default is a temporary one, which `stop` removes.

        A directory of an earlier ensemble of that size keeps its ports; OSError if one is in use. All ports, also those
        that only a later leader binds, are reserved until `stop`.
        """
        if size < 1:
            raise ValueError(f"an ensemble has at least one server, not {size}")
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
        """Starts the servers that are not running and returns when all serve. Raises like EmbeddedZooKeeper.start."""
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
        """Stops all servers cleanly, in parallel, and releases their ports. The data remains.

        With a temporary directory they are killed, and the directory is removed.
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
        """Sends SIGKILL to all servers, as in a crash of the machine."""
        for server in self.servers:
            server.kill()

    def pause(self) -> None:
        """Sends SIGSTOP to all running servers."""
        for server in self._running():
            server.pause()

    def resume(self) -> None:
        """Sends SIGCONT to all running servers."""
        for server in self._running():
            server.resume()

    def leader(self, timeout_s: float = START_TIMEOUT_S) -> EmbeddedZooKeeper:
        """Returns the leading server; waits for a running election.

        Raises ZooKeeperUnavailable if there is no leader in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            # The single server of an ensemble of one reports `standalone`.
            for server in self._running():
                if server.mode() in ("leader", "standalone"):
                    return server
            if time.monotonic() > deadline:
                raise ZooKeeperUnavailable(
                    f"no server of {self.connect_string} leads: does a majority of them run?"
                )
            time.sleep(_LEADER_LOOK_S)

    def followers(self, timeout_s: float = START_TIMEOUT_S) -> tuple[EmbeddedZooKeeper, ...]:
        """Returns all servers except `leader`, running or not. Raises like `leader`."""
        leader = self.leader(timeout_s)
        return tuple(server for server in self.servers if server is not leader)

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
