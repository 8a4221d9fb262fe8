"""The servers of a local cluster: Kafka and, with high availability, ZooKeeper; embedded unless addresses are given.

Epochs come from ZooKeeper's transaction ids, which start at 0 with its data. With new ZooKeeper data and an older log,
they would be below the epochs in the log. A new embedded ZooKeeper beside an older log therefore starts at the current
second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ....infra.kafka import EmbeddedKafka, KafkaUnavailable
from ....infra.zookeeper import EmbeddedZooKeeper, ZooKeeperUnavailable
from ...configuration import Configuration
from ...configuration.options.cluster import BOOTSTRAP_SERVERS
from ...configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from ...configuration.options.zookeeper import (
    ZOOKEEPER_BASE_EPOCH,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_SASL,
    ZOOKEEPER_TLS,
    SaslMechanism,
)
from ..exit_codes import CommandFailure, ExitCode
from .cluster_record import ClusterRecord
from .local_process import Progress

_LOOK_S = 0.01


class LocalZooKeeper:
    """None, an external one, or an embedded one with its data in `<home>/zookeeper`."""

    def __init__(self, home: Path, configuration: Configuration) -> None:
        self._data_dir = home / "zookeeper"
        self._base_epoch = self._data_dir / "base-epoch"
        self._configuration = configuration
        self.is_used = configuration.get(HIGH_AVAILABILITY) is HighAvailability.ZOOKEEPER
        self.embedded = self.is_used and not configuration.get(ZOOKEEPER_QUORUM)
        self.server: EmbeddedZooKeeper | None = None
        """The embedded one, if it was started or found."""
        self._recorded_quorum = ""

    def take_over(self, record: ClusterRecord) -> None:
        """Finds the ZooKeeper of a recorded cluster, whatever is configured now."""
        self.embedded = record.embedded_zookeeper
        self._recorded_quorum = record.high_availability.get(ZOOKEEPER_QUORUM.key, "")
        if self.embedded:
            try:
                self.server = EmbeddedZooKeeper.attach(self._data_dir)
            except ZooKeeperUnavailable:
                self.server = None

    def is_running(self) -> bool:
        """Whether the embedded one runs; True if there is none to run."""
        return not self.embedded or (self.server is not None and self.server.is_running())

    @property
    def has_moved(self) -> bool:
        """Whether the embedded one has another address than the running processes know."""
        return self.server is not None and self._recorded_quorum not in ("", self.server.connect_string)

    def check(self) -> None:
        """Raises CommandFailure for an option that the embedded one does not support."""
        get = self._configuration.get
        wanted = ZOOKEEPER_TLS if get(ZOOKEEPER_TLS) else ZOOKEEPER_SASL
        if self.embedded and (get(ZOOKEEPER_TLS) or get(ZOOKEEPER_SASL) is not SaslMechanism.NONE):
            raise CommandFailure(
                ExitCode.USAGE,
                f"{wanted.key} is set, but the ZooKeeper that would be started here can't do that: name one that can "
                f"with {ZOOKEEPER_QUORUM.key}",
            )

    def launch(self, *, detached: bool, has_older_log: bool) -> None:
        """Starts the embedded one. Its address is known then; it may not serve yet.

        `has_older_log`: the cluster may have a log already. Raises like EmbeddedZooKeeper.launch.
        """
        if not self._base_epoch.exists():
            self._data_dir.mkdir(parents=True, exist_ok=True)
            self._base_epoch.write_text(f"{int(time.time()) if has_older_log else 0}\n")
        self.server = EmbeddedZooKeeper(self._data_dir)
        self.server.launch(detached=detached)

    @contextmanager
    def candidates(self, configuration: Configuration) -> Iterator[Callable[[], Collection[str]]]:
        """Yields a function that returns the addresses of the candidates; none without elections.

        `configuration` has the address of the running ZooKeeper. Raises CommandFailure if it does not answer.
        """
        from ...election.candidates import ElectionUnreachable
        from ...election.factory import open_candidates_reader

        try:
            reader = open_candidates_reader(configuration)
        except ElectionUnreachable as error:
            raise CommandFailure(
                ExitCode.UNREACHABLE, f"{error}: does it run, and is {ZOOKEEPER_QUORUM.key} right?"
            ) from None
        if reader is None:
            yield tuple
            return
        with reader:
            yield reader.candidates

    def settings(self) -> dict[str, str]:
        """The options of high availability for the processes of the cluster, on any machine: key -> text."""
        found = {
            setting.key: setting.text
            for setting in self._configuration.settings()
            if setting.key.startswith("high-availability.")
        }
        if self.server is not None:
            found[ZOOKEEPER_QUORUM.key] = self.server.connect_string
            if self._base_epoch.exists():
                found.setdefault(ZOOKEEPER_BASE_EPOCH.key, self._base_epoch.read_text().strip())
        return found


class Servers:
    """Kafka and ZooKeeper of the cluster in a home. `kafka`: the embedded one, if it was started or found."""

    def __init__(self, home: Path, configuration: Configuration, progress: Progress) -> None:
        self.kafka_dir = home / "kafka"
        self.bootstrap_servers = configuration.bootstrap_servers
        self.embedded = not configuration.bootstrap_servers
        self.kafka: EmbeddedKafka | None = None
        self.zookeeper = LocalZooKeeper(home, configuration)
        self._home = home
        self._configuration = configuration
        self._progress = progress
        self._startup: Future[EmbeddedKafka] | None = None
        self._has_launched_zookeeper = False

    def settings(self) -> dict[str, str]:
        """Their addresses, for the processes of the cluster: option -> text."""
        return {BOOTSTRAP_SERVERS.key: self.bootstrap_servers, **self.zookeeper.settings()}

    def check_same(self, record: ClusterRecord) -> None:
        """Raises CommandFailure if the recorded cluster uses other servers."""
        first = "stop it first (`tailrace cluster stop --suspend` keeps its jobs)"
        if not self.embedded and record.bootstrap_servers != self._configuration.bootstrap_servers:
            raise CommandFailure(
                ExitCode.USAGE,
                f"the cluster of {self._home} uses Kafka at {record.bootstrap_servers}: stop it first, or give "
                "another --home",
            )
        default = HIGH_AVAILABILITY.write(HIGH_AVAILABILITY.default)
        kind = record.high_availability.get(HIGH_AVAILABILITY.key, default)
        if kind != HIGH_AVAILABILITY.write(self._configuration.get(HIGH_AVAILABILITY)):
            raise CommandFailure(
                ExitCode.USAGE,
                f"the cluster of {self._home} runs with {HIGH_AVAILABILITY.key} {kind}: {first}",
            )
        quorum = record.high_availability.get(ZOOKEEPER_QUORUM.key, "")
        if self.zookeeper.is_used and (
            record.embedded_zookeeper != self.zookeeper.embedded
            or (not self.zookeeper.embedded and quorum != self._configuration.get(ZOOKEEPER_QUORUM))
        ):
            raise CommandFailure(
                ExitCode.USAGE, f"the cluster of {self._home} uses ZooKeeper at {quorum}: {first}"
            )

    def take_over(self, record: ClusterRecord) -> None:
        """Finds the servers of a recorded cluster."""
        self.bootstrap_servers = self.bootstrap_servers or record.bootstrap_servers
        self.embedded = record.embedded_kafka
        self.zookeeper.take_over(record)
        if self.embedded and self.kafka is None:
            try:
                self.kafka = EmbeddedKafka.attach(self.kafka_dir)
                self.bootstrap_servers = self.kafka.bootstrap_servers
            except KafkaUnavailable:
                self.kafka = None

    def kafka_runs(self) -> bool:
        """Whether the embedded Kafka runs; True for an external one."""
        return not self.embedded or (self.kafka is not None and self.kafka.is_running())

    def are_running(self) -> bool:
        """Whether the embedded ones run."""
        return self.kafka_runs() and self.zookeeper.is_running()

    def begin(self, *, detached: bool) -> None:
        """Starts the embedded ones that do not run; returns when their addresses are known.

        Raises like the starts of Kafka and ZooKeeper.
        """
        has_older_log = not self.embedded or (self.kafka_dir / "data").exists()
        if not self.kafka_runs():
            # On a thread: its address is known long before it answers.
            self.kafka = EmbeddedKafka(self.kafka_dir)
            executor = ThreadPoolExecutor(1, "kafka start")
            self._startup = executor.submit(self.kafka.start, detached=detached)
            executor.shutdown(wait=False)
        if not self.zookeeper.is_running():
            self._has_launched_zookeeper = True
            self.zookeeper.launch(detached=detached, has_older_log=has_older_log)
        while self.kafka is not None and self._startup is not None:
            try:
                self.bootstrap_servers = self.kafka.bootstrap_servers
                break
            except KafkaUnavailable:
                if futures.wait([self._startup], _LOOK_S).done:
                    self._startup.result()

    def join(self) -> bool:
        """Waits until the started ones answer. Returns False if Kafka has another address than after `begin`. Raises as
        `begin`."""
        if self._has_launched_zookeeper and self.zookeeper.server is not None:
            server = self.zookeeper.server.wait_until_serving()
            self._progress(f"ZooKeeper answers at {server.connect_string}")
        if self.kafka is None or self._startup is None:
            return True
        self._startup.result()
        expected, self.bootstrap_servers = self.bootstrap_servers, self.kafka.bootstrap_servers
        return self.bootstrap_servers == expected

    def undo(self) -> None:
        """Kills what `begin` has started."""
        if self._has_launched_zookeeper and self.zookeeper.server is not None:
            self.zookeeper.server.kill()
        if self.kafka is not None and self._startup is not None:
            futures.wait([self._startup])
            self.kafka.kill()

    def stop(self) -> None:
        """Stops the embedded ones, Kafka last."""
        if self.zookeeper.server is not None and self.zookeeper.server.is_running():
            self.zookeeper.server.stop()
            self._progress("ZooKeeper has stopped")
        if self.embedded and self.kafka is not None and self.kafka.is_running():
            self.kafka.stop()
            self._progress("Kafka has stopped")

    def kill(self) -> None:
        """Kills the embedded ones."""
        for server in (self.zookeeper.server, self.kafka):
            if server is not None:
                server.kill()
