"""An embedded ZooKeeper server, from the jars that pyspark ships, on free loopback ports over a data directory.

It is for tests, and for clusters on one machine without a ZooKeeper; several form an ensemble
(infra/zookeeper_ensemble.py). Its data survives `stop`, `kill` and a restart on the same directory, which uses the
previous port if it is free. `zookeeper.json` in that directory records the process and its address, so that another
process can attach.

ZooKeeper does not detect a second server over its data, which would destroy the data. The server therefore inherits an
open, locked file of its directory (flock(2)): the lock lives exactly as long as the server, however it ends.

A server starts in 0.9 s; a class archive, as for Kafka, saves only 0.2 s, so there is none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from .embedded_server import SIMPLE_LOGGER, SMALL_JVM, EmbeddedServer, ServerUnavailable, java_properties
from .jars import JarsUnavailable, kafka_classpath, pyspark_jars_dir
from .ports import HOST, ReservedPort
from .prerequisites import find_java

START_TIMEOUT_S: Final = 60.0

_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

_SETTINGS: Final[Mapping[str, str]] = {
    # Session timeouts are checked once per tick, and a session may be as short as two ticks: fast detection in tests.
    "tickTime": "250",
    "minSessionTimeout": "500",
    "maxSessionTimeout": "300000",
    # A busy server is not a dead one: 10 s to join an ensemble, 5 s of silence within it.
    "initLimit": "40",
    "syncLimit": "20",
    # All clients come from the loopback address, which is limited to 60 connections by default.
    "maxClientCnxns": "0",
    # No HTTP server; of the four-letter words only the one that cannot be disabled, which the readiness check uses.
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "srvr",
    # In KiB; the default preallocates 64 MiB for each file of the log.
    "preAllocSize": "1024",
    "autopurge.snapRetainCount": "3",
    "autopurge.purgeInterval": "1",
    "fastleader.maxNotificationInterval": "1000",
}

_JARS: Final = ("zookeeper-*", "netty-*", "metrics-core-*", "snappy-java-*", "commons-cli-*", "commons-io-*")

_LOGGING: Final = (*SIMPLE_LOGGER, "-Dzookeeper.jmx.log4j.disable=true")


class ZooKeeperUnavailable(ServerUnavailable):
    """The embedded ZooKeeper did not start or is not running; the message gives the reason and the location of its
    log."""


class Membership(msgspec.Struct, frozen=True):
    """A server's place in an ensemble: its number, its client port, and the peer ports of all servers.

    `peers` maps a number to the quorum port and the election port.
    """

    number: int
    client_port: int
    peers: dict[int, tuple[int, int]]


class EmbeddedZooKeeper(EmbeddedServer):
    """One ZooKeeper server. As a context manager it starts on entry and stops on exit."""

    name = "ZooKeeper"
    unavailable = ZooKeeperUnavailable

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        heap: str = "128m",
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
        membership: Membership | None = None,
        host: str = HOST,
    ) -> None:
        """`data_dir` holds all data; the default is a temporary directory, which `stop` removes.

        `heap` is the JVM's -Xmx; `settings` (of zoo.cfg) and `jvm_options` override its own. With a `membership` it is
        part of an ensemble, which assigns and reserves its ports. `host`: a name or address of this machine, where it
        listens.
        """
        super().__init__(data_dir)
        self._heap = heap
        self._settings = dict(settings or {})
        self._jvm_options = tuple(jvm_options)
        self._membership = membership
        self._host = host
        self._port: ReservedPort | None = None

    @property
    def connect_string(self) -> str:
        """The address list for clients, as with an ensemble: here one address."""
        return self.address

    def mode(self, timeout_s: float = 1.0) -> str | None:
        """Returns `standalone`, `leader` or `follower`; None if it does not serve: no quorum, paused, or gone."""
        return _mode(self.address, timeout_s) if self._record is not None else None

    def start(self, *, detached: bool = False, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Starts the server and returns when it serves; `detached`, it outlives this process.

        Raises ZooKeeperUnavailable with the last lines of its log if it does not start, or if a server already runs
        over this directory; JarsUnavailable, MissingPrerequisite.
        """
        self.launch(detached=detached)
        return self.wait_until_serving(timeout_s)

    def launch(self, *, detached: bool = False) -> None:
        """Starts the process without waiting for it: a member of an ensemble serves only when a quorum runs.

        Raises like `start`.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        java, classpath = find_java(), os.pathsep.join(map(str, _classpath()))
        with self._locked() as lock:
            self._port = port = self._client_port()
            config = self._write_config(port.number)
            command = [java, f"-Xmx{self._heap}", "-Xms16m", *SMALL_JVM, *_LOGGING, *self._jvm_options]
            command += ["-cp", classpath, _MAIN, str(config)]
            self._launch(command, f"{self._host}:{port.number}", detached=detached, pass_fds=(lock,))

    def wait_until_serving(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Waits until it answers clients; on timeout ends it and raises ZooKeeperUnavailable."""
        deadline = time.monotonic() + timeout_s
        try:
            while self.mode() is None:
                self._require_running(deadline)
                time.sleep(0.02)
        except BaseException:
            self.kill()
            raise
        self._release_port()
        return self

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        lock = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._already_running() from None
            yield lock
        finally:
            os.close(lock)

    def _client_port(self) -> ReservedPort:
        if self._membership is not None:
            try:
                return ReservedPort(self._membership.client_port)
            except OSError:
                raise ZooKeeperUnavailable(
                    f"port {self._membership.client_port} of the ZooKeeper over {self.data_dir} is in use by another"
                    " process, but the ensemble needs it: stop that process"
                ) from None
        return ReservedPort.preferring(self._earlier_port())

    def _release_port(self) -> None:
        if self._port is not None:
            self._port.release()

    def _write_config(self, port: int) -> Path:
        data = self.data_dir / "data"
        data.mkdir(exist_ok=True)
        settings = {
            **_SETTINGS,
            "dataDir": str(data),
            "clientPort": str(port),
            "clientPortAddress": self._host,
        }
        if self._membership is not None:
            (data / "myid").write_text(f"{self._membership.number}\n")
            peers = self._membership.peers.items()
            settings |= {
                f"server.{number}": f"{HOST}:{quorum}:{election}" for number, (quorum, election) in peers
            }
        settings |= self._settings
        path = self.data_dir / "zoo.cfg"
        path.write_text(java_properties(settings))
        return path

    def _end(self, timeout_s: float | None) -> None:
        self._release_port()
        super()._end(timeout_s)


def _classpath() -> list[Path]:
    """Returns ZooKeeper's jars from Spark. It logs through Kafka's logger, which starts a second faster."""
    folder = pyspark_jars_dir()
    found = sorted(path for pattern in _JARS for path in folder.glob(f"{pattern}.jar"))
    if not any(path.name.startswith("zookeeper-") for path in found):
        raise JarsUnavailable(f"no zookeeper-*.jar in {folder}: reinstall pyspark")
    return found + [path for path in kafka_classpath() if path.name.startswith("slf4j-")]


def _mode(address: str, timeout_s: float) -> str | None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(b"srvr")
            with connection.makefile("r", encoding="utf-8", errors="replace") as answer:
                modes = [line.partition(": ")[2].strip() for line in answer if line.startswith("Mode: ")]
    except OSError:
        return None
    return modes[0] if modes else None
