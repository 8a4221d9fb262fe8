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
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import psutil

from .cds_archives import kafka_archive, read_archive_options
from .disk_space import describe_shortage
from .jars import jar_folder, kafka_classpath
from .kafka_connection import KafkaConnection
from .kafka_security import BrokerSecurity
from .prerequisites import find_java
from .processes import OwnedProcess, ProcessIdentity, end_process
from .versions import KAFKA_JARS

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0

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

_LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)


class KafkaUnavailable(Exception):
    """The embedded Kafka did not start or is not running; the message gives the reason and the location of its log."""


class KafkaRecord(msgspec.Struct, frozen=True):
    """`kafka.json`: the process that serves a data directory, and its address.

    `created` is the start time of the process (seconds since the epoch, from psutil). It distinguishes the broker from
    a later process with the same pid.
    """

    pid: int
    bootstrap_servers: str
    created: float

    def process(self) -> psutil.Process | None:
        """Returns the broker's process if it still runs."""
        return ProcessIdentity(self.pid, self.created).process()


class Membership(msgspec.Struct, frozen=True):
    """The place of a node in a cluster of several nodes (kafka_cluster.py)."""

    node_id: int
    cluster_id: str
    port: int
    controllers: Mapping[int, int]
    """Node id -> port of its controller, for every node."""


class EmbeddedKafka:
    """One Kafka node. As a context manager it starts on entry and stops on exit."""

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
        self._temporary = data_dir is None
        self.data_dir = (data_dir or Path(tempfile.mkdtemp(prefix="tailrace-kafka-"))).absolute()
        self._heap = heap
        self._settings = dict(settings or {})
        self._jvm_options = tuple(jvm_options)
        self._security = security
        self._more_ports: dict[str, int] = {}
        self._membership = membership
        self._host = host
        self._owned: OwnedProcess | None = None
        self._record: KafkaRecord | None = None

    @classmethod
    def attach(cls, data_dir: Path) -> Self:
        """Returns the broker that another process started over `data_dir`.

        Raises KafkaUnavailable if none is running there.
        """
        kafka = cls(data_dir)
        record = _read_record(kafka._record_path)
        if record is None or record.process() is None:
            raise KafkaUnavailable(f"no Kafka is running over {data_dir}: start the cluster first")
        kafka._record = record
        return kafka

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients. Raises KafkaUnavailable before the first start."""
        return self._started_record().bootstrap_servers

    @property
    def connection(self) -> KafkaConnection:
        """How its administrator connects. Raises KafkaUnavailable before the first start."""
        if self._security is None:
            return KafkaConnection(self.bootstrap_servers)
        return self._security.connection(self.bootstrap_servers)

    def address_of(self, listener: str) -> str:
        """`host:port` of a further listener of `security`. Raises KeyError before the first start."""
        return f"{self._host}:{self._more_ports[listener]}"

    @property
    def pid(self) -> int:
        """The broker's process id. Raises KafkaUnavailable before the first start."""
        return self._started_record().pid

    @property
    def log_path(self) -> Path:
        """The broker's log file (not its data)."""
        return self.data_dir / "kafka.log"

    def is_running(self) -> bool:
        """Whether the broker's process is alive."""
        if self._owned is not None:
            return self._owned.poll() is None
        return self._record is not None and self._record.process() is not None

    def start(self, *, detached: bool = False, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Starts the broker and returns when it answers; `detached`, it outlives this process.

        Raises KafkaUnavailable with the last lines of its log if it does not start, or if a broker already runs over
        this directory; JarsUnavailable, MissingPrerequisite.
        """
        earlier = _read_record(self._record_path)
        if earlier is not None and earlier.process() is not None:
            raise KafkaUnavailable(
                f"a Kafka is already running over {self.data_dir} (pid {earlier.pid},"
                f" {earlier.bootstrap_servers}): attach to it, or stop it first"
            )
        deadline = time.monotonic() + timeout_s
        self.data_dir.mkdir(parents=True, exist_ok=True)
        java, classpath = find_java(), os.pathsep.join(map(str, kafka_classpath()))
        wanted = 0 if earlier is None else int(earlier.bootstrap_servers.rpartition(":")[2])
        for attempt in range(_ATTEMPTS):
            port, controller_port = self._draw_ports(wanted)
            self._write_properties(port, controller_port)
            self._format(java, classpath)
            log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
            self._launch(java, classpath, port, detached=detached)
            try:
                self._wait_until_ready(deadline)
                return self
            except KafkaUnavailable as error:
                self.kill()
                text = self._log_since(log_start)
                if "BindException" in text and attempt + 1 < _ATTEMPTS and self._membership is None:
                    wanted = 0
                    continue
                raise KafkaUnavailable(
                    f"{error}{describe_shortage(self.data_dir)}; its log, {self.log_path}, ends with:\n{_tail(text)}"
                ) from None
            except BaseException:
                self.kill()
                raise
        raise AssertionError("unreachable: every attempt returns or raises")

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops the broker cleanly (SIGKILL after `timeout_s` seconds) and returns when it is gone; the data remains.

        A broker with a temporary directory is killed, and the directory removed: a clean shutdown of many partitions
        takes half a minute and helps only a later restart. Stopping a stopped broker does nothing.
        """
        if self._temporary:
            self.kill()
            shutil.rmtree(self.data_dir, ignore_errors=True)
        else:
            self._end(timeout_s)

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash; returns when the process is gone. The data remains."""
        self._end(None)

    def pause(self) -> None:
        """Sends SIGSTOP: the process exists but does not answer clients until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Sends SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self if self.is_running() else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _record_path(self) -> Path:
        return self.data_dir / "kafka.json"

    @property
    def _properties_path(self) -> Path:
        return self.data_dir / "server.properties"

    def _end(self, timeout_s: float | None) -> None:
        """Ends the process. `timeout_s` None: kills it at once."""
        if self._owned is not None:
            self._owned.kill() if timeout_s is None else self._owned.stop(timeout_s)
            self._owned = None
        elif self._record is not None and (process := self._record.process()) is not None:
            end_process(process, timeout_s)

    def _started_record(self) -> KafkaRecord:
        if self._record is None:
            raise KafkaUnavailable(f"the Kafka over {self.data_dir} has not been started")
        return self._record

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
        escaped = (f"{key}={value}".replace("\\", "\\\\") for key, value in properties.items())
        # It has the passwords of a secured broker.
        self._properties_path.touch(mode=0o600)
        self._properties_path.write_text("\n".join(escaped) + "\n")

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
            output = _tail(done.stdout + done.stderr)
            raise KafkaUnavailable(f"Kafka could not format {self.data_dir / 'data'}; its output:\n{output}")

    def _launch(self, java: str, classpath: str, port: int, *, detached: bool) -> None:
        command = [*self._java(java, classpath, self._heap), *self._jvm_options]
        command += ["kafka.Kafka", str(self._properties_path)]
        self._owned = OwnedProcess(command, log=self.log_path, cwd=self.data_dir, detached=detached)
        self._record = KafkaRecord(
            pid=self._owned.pid,
            bootstrap_servers=f"{self._host}:{port}",
            created=psutil.Process(self._owned.pid).create_time(),
        )
        fresh = self._record_path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(self._record))
        fresh.replace(self._record_path)

    def _java(self, java: str, classpath: str, heap: str) -> list[str]:
        # The C1 compiler and the serial collector: a small node that starts fast.
        sizes = [f"-Xmx{heap}", "-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        sizes += read_archive_options(kafka_archive(java))
        return [java, *sizes, "-Djava.awt.headless=true", *_LOGGING, "-cp", classpath]

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

    def _require_running(self, deadline: float) -> None:
        if self._owned is not None and (code := self._owned.poll()) is not None:
            raise KafkaUnavailable(f"Kafka ended with exit code {code} before it answered")
        if time.monotonic() > deadline:
            raise KafkaUnavailable("Kafka did not answer in time")

    def _log_since(self, start: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")


def _read_record(path: Path) -> KafkaRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=KafkaRecord)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


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


def _tail(text: str, lines: int = 8) -> str:
    """Returns the last lines of a log, without stack frames."""
    telling = [line for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", "\t..."))]
    return "\n".join(f"  {line[:300]}" for line in telling[-lines:])
