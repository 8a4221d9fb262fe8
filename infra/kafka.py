"""An embedded Kafka of one node (KRaft), on free loopback ports over a data directory.

It is for tests, the demo and clusters on one machine; larger clusters connect to an existing Kafka. Its data survives
`stop`, `kill` and a restart on the same directory. `kafka.json` in that directory records the process and its address,
so that another process can attach. A restart uses the previous port if it is free, so that clients find the broker
again.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from .cds_archives import kafka_archive, read_archive_options
from .embedded_server import (
    SIMPLE_LOGGER,
    SMALL_JVM,
    EmbeddedServer,
    ServerUnavailable,
    java_properties,
    tail,
)
from .jars import jar_folder, kafka_classpath
from .kafka_connection import KafkaConnection
from .kafka_security import BrokerSecurity
from .ports import HOST
from .prerequisites import find_java
from .versions import KAFKA_JARS

START_TIMEOUT_S: Final = 60.0

# A port can be taken between our check and the broker's bind; so many further attempts use another one.
_ATTEMPTS: Final = 3

_SETTINGS: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    # One node holds the only replica of everything. Few partitions: the coordinator loads each of them.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    # The log is the database, and committed offsets are a job's progress: nothing may expire.
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "offsets.retention.minutes": "2147483647",
    # Segments that tasks have deleted records from are freed at the next look.
    "log.retention.check.interval.ms": "30000",
    # Prefer latency to batching: a single node has no replication to amortise.
    "group.initial.rebalance.delay.ms": "0",
    "controller.quorum.append.linger.ms": "0",
    # A small process: the cleaner's default buffer alone is 128 MiB.
    "log.cleaner.dedupe.buffer.size": "8388608",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    # Open transactions of a dead writer block readers until they are aborted: check for them often.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "broker.heartbeat.interval.ms": "250",
}

# Broker and controller are one process: an expired session indicates a busy machine, never a dead broker, and would
# cost every partition its leader and every open transaction.
_SESSION_MS: Final = 300_000
# A killed broker can register again only after its last session has expired.
_SESSION_AFTER_A_CRASH_MS: Final = 3_000
# The file that Kafka leaves in its data after a clean shutdown.
_ENDED_IN_ORDER: Final = ".kafka_cleanshutdown"
# The feature levels that a new node begins with: they follow from the version of Kafka alone.
_FEATURE_LEVELS: Final = "bootstrap.checkpoint"


class KafkaUnavailable(ServerUnavailable):
    """The embedded Kafka did not start or is not running; the message gives the reason and the location of its log."""


class Membership(msgspec.Struct, frozen=True):
    """The place of a node in a cluster of several nodes (kafka_cluster.py)."""

    node_id: int
    cluster_id: str
    port: int
    controllers: Mapping[int, int]
    """Node id -> port of its controller, for every node."""


class EmbeddedKafka(EmbeddedServer):
    """One Kafka node. As a context manager it starts on entry and stops on exit."""

    name = "Kafka"
    unavailable = KafkaUnavailable

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        heap: str = "512m",
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
        security: BrokerSecurity | None = None,
        membership: Membership | None = None,
        host: str = HOST,
    ) -> None:
        """`data_dir` holds all data; the default is a temporary directory, which `stop` removes.

        `heap` is the JVM's -Xmx; `settings` and `jvm_options` override the broker's own. `security`: with TLS, SASL
        and ACLs; None: whoever reaches its port may do everything. With a `membership` it is a node of that cluster,
        on the ports given there, without `security`. `host`: a name or address of this machine, where it listens and
        where clients find it.
        """
        super().__init__(data_dir)
        self._heap = heap
        self._settings = dict(settings or {})
        self._jvm_options = tuple(jvm_options)
        self._security = security
        self._more_ports: dict[str, int] = {}
        self._membership = membership
        self._host = host

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients. Raises KafkaUnavailable before the first start."""
        return self.address

    @property
    def connection(self) -> KafkaConnection:
        """How its administrator connects. Raises KafkaUnavailable before the first start."""
        if self._security is None:
            return KafkaConnection(self.bootstrap_servers)
        return self._security.connection(self.bootstrap_servers)

    def address_of(self, listener: str) -> str:
        """`host:port` of a further listener of `security`. Raises KeyError before the first start."""
        return f"{self._host}:{self._more_ports[listener]}"

    def start(self, *, detached: bool = False, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Starts the broker and returns when it answers; `detached`, it outlives this process.

        Raises KafkaUnavailable with the last lines of its log if it does not start, or if a broker already runs over
        this directory; JarsUnavailable, MissingPrerequisite.
        """
        earlier = self._read_record()
        if earlier is not None and earlier.process() is not None:
            raise self._already_running()
        deadline = time.monotonic() + timeout_s
        self.data_dir.mkdir(parents=True, exist_ok=True)
        java, classpath = find_java(), os.pathsep.join(map(str, kafka_classpath()))
        wanted = self._earlier_port()
        for attempt in range(_ATTEMPTS):
            port, controller_port = self._draw_ports(wanted)
            self._write_properties(port, controller_port)
            self._format(java, classpath)
            command = [*self._java(java, classpath, self._heap), *self._jvm_options]
            command += ["kafka.Kafka", str(self._properties_path)]
            self._launch(command, f"{self._host}:{port}", detached=detached)
            try:
                self._wait_until_ready(deadline)
                return self
            except KafkaUnavailable:
                self.kill()
                if (
                    "BindException" not in self._read_log()
                    or attempt + 1 == _ATTEMPTS
                    or self._membership is not None
                ):
                    raise
                wanted = 0
            except BaseException:
                self.kill()
                raise
        raise AssertionError("unreachable: every attempt returns or raises")

    @property
    def _properties_path(self) -> Path:
        return self.data_dir / "server.properties"

    def _draw_ports(self, wanted: int) -> tuple[int, int]:
        """Returns the ports of the broker and of its controller."""
        if self._membership is not None:
            return self._membership.port, self._membership.controllers[self._membership.node_id]
        listeners = () if self._security is None else tuple(self._security.listeners)
        port, controller_port, *more = _free_ports(wanted, 2 + len(listeners))
        self._more_ports = dict(zip(listeners, more, strict=True))
        return port, controller_port

    def _write_properties(self, port: int, controller_port: int) -> None:
        data = self.data_dir / "data"
        crashed = (data / "meta.properties").exists() and not (data / _ENDED_IN_ORDER).exists()
        properties = {
            **_SETTINGS,
            "broker.session.timeout.ms": str(_SESSION_AFTER_A_CRASH_MS if crashed else _SESSION_MS),
            "listeners": f"PLAINTEXT://{self._host}:{port},CONTROLLER://{self._host}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self._host}:{port}",
            "controller.quorum.voters": f"1@{self._host}:{controller_port}",
            "log.dirs": str(data),
            **self._placement(),
        }
        if self._security is not None:
            properties |= self._security.settings(self._host, port, controller_port, self._more_ports)
        properties |= self._settings
        # It has the passwords of a secured broker.
        self._properties_path.touch(mode=0o600)
        self._properties_path.write_text(java_properties(properties))

    def _placement(self) -> dict[str, str]:
        if self._membership is None:
            return {}
        voters = (f"{node}@{self._host}:{port}" for node, port in self._membership.controllers.items())
        return {"node.id": str(self._membership.node_id), "controller.quorum.voters": ",".join(voters)}

    def _format(self, java: str, classpath: str) -> None:
        """Does what Kafka's StorageTool does, with its own file of feature levels: a JVM of half a second less."""
        data = self.data_dir / "data"
        if (data / "meta.properties").exists():
            return
        levels = _feature_levels()
        if not levels.exists():
            self._run_storage_tool(java, classpath)
            _keep(data / _FEATURE_LEVELS, levels)
            return
        data.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(levels, data / _FEATURE_LEVELS)
        node_id = {**_SETTINGS, **self._placement(), **self._settings}["node.id"]
        fresh = data / "meta.properties.new"
        fresh.write_text(
            f"version=1\ncluster.id={self._cluster_id()}\nnode.id={node_id}\ndirectory.id={draw_id()}\n",
            "utf-8",
        )
        fresh.replace(data / "meta.properties")

    def _cluster_id(self) -> str:
        return draw_id() if self._membership is None else self._membership.cluster_id

    def _run_storage_tool(self, java: str, classpath: str) -> None:
        command = self._java(java, classpath, "64m")
        command += ["kafka.tools.StorageTool", "format"]
        command += ["-t", self._cluster_id(), "-c", str(self._properties_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            output = tail(done.stdout + done.stderr)
            raise KafkaUnavailable(f"Kafka could not format {self.data_dir / 'data'}; its output:\n{output}")

    def _java(self, java: str, classpath: str, heap: str) -> list[str]:
        sizes = [f"-Xmx{heap}", "-Xms32m", *SMALL_JVM, *read_archive_options(kafka_archive(java))]
        return [java, *sizes, *SIMPLE_LOGGER, "-cp", classpath]

    def _wait_until_ready(self, deadline: float) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient

        from .internal_topics import ensure_internal_topics

        host, _, port = self.bootstrap_servers.partition(":")
        while not _accepts(host, int(port)):
            self._require_running(deadline)
            time.sleep(0.02)
        # Client errors while the broker starts are expected.
        client = {**self.connection.to_librdkafka(), "log_level": 0}
        # A broker has no producer ids until the first producer asks, which has to retry a second later.
        producer, admin = Producer({**client, "enable.idempotence": True}), AdminClient(client)
        settings = {**_SETTINGS, **self._settings}
        ensure_internal_topics(producer, admin, settings, lambda: self._require_running(deadline))


def _feature_levels() -> Path:
    """Returns the path of the feature levels that this Kafka's StorageTool gave a new node: next to its jars."""
    folder = jar_folder(KAFKA_JARS)
    return folder.with_name(f"{folder.name}.{_FEATURE_LEVELS}")


def _keep(file: Path, target: Path) -> None:
    """Copies a file atomically; an unwritable cache only costs time."""
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        shutil.copyfile(file, fresh)
        fresh.replace(target)


def draw_id() -> str:
    """Returns a new random id of a cluster or a directory."""
    # Like Kafka's own ids: URL-safe base64, but without a leading "-", which a tool would parse as an option.
    drawn = uuid.uuid4().bytes
    return base64.urlsafe_b64encode(bytes([drawn[0] & 0x7F]) + drawn[1:]).decode().rstrip("=")


def _free_ports(wanted: int, count: int) -> list[int]:
    """Returns free ports, the first of them `wanted` if that is free."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        first, *others = sockets
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            first.bind((HOST, wanted))
        except OSError:
            first.bind((HOST, 0))
        for other in others:
            other.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False
