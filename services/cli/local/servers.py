"""The servers of a local cluster: Kafka and, with high availability, ZooKeeper; embedded unless addresses are given."""

from __future__ import annotations

from pathlib import Path

from ....infra.kafka import EmbeddedKafka, KafkaUnavailable
from ...configuration import Configuration
from ...configuration.options.cluster import BOOTSTRAP_SERVERS
from ...configuration.options.high_availability import HIGH_AVAILABILITY
from ...configuration.options.zookeeper import ZOOKEEPER_QUORUM
from ..exit_codes import CommandFailure, ExitCode
from .cluster_record import ClusterRecord
from .kafka_startup import KafkaStartup
from .local_process import Progress
from .zookeeper import LocalZooKeeper


class Servers:
    """Of the cluster of a home. `kafka`: the embedded one, where there is one and it runs, or ran at first."""

    def __init__(self, home: Path, configuration: Configuration, progress: Progress) -> None:
        self.kafka_dir = home / "kafka"
        self.bootstrap_servers = configuration.bootstrap_servers
        self.embedded = not configuration.bootstrap_servers
        self.kafka: EmbeddedKafka | None = None
        self.zookeeper = LocalZooKeeper(home, configuration)
        self._home = home
        self._configuration = configuration
        self._progress = progress
        self._starting: KafkaStartup | None = None
        self._fresh_zookeeper = False

    def settings(self) -> dict[str, str]:
        """Where they are, for the processes of the cluster: option -> text."""
        return {BOOTSTRAP_SERVERS.key: self.bootstrap_servers, **self.zookeeper.settings()}

    def check_same(self, record: ClusterRecord) -> None:
        """Raises CommandFailure where a cluster that was started stands on others."""
        if not self.embedded and record.bootstrap_servers != self._configuration.bootstrap_servers:
            raise CommandFailure(
                ExitCode.USAGE,
                f"the cluster of {self._home} uses Kafka at {record.bootstrap_servers}: stop it first, or give "
                "another --home",
            )
        kind = record.high_availability.get(
            HIGH_AVAILABILITY.key, HIGH_AVAILABILITY.write(HIGH_AVAILABILITY.default)
        )
        if kind != HIGH_AVAILABILITY.write(self._configuration.get(HIGH_AVAILABILITY)):
            raise CommandFailure(
                ExitCode.USAGE,
                f"the cluster of {self._home} runs with {HIGH_AVAILABILITY.key} {kind}: stop it first "
                "(`tailrace cluster stop --suspend` keeps its jobs)",
            )
        quorum = record.high_availability.get(ZOOKEEPER_QUORUM.key, "")
        if self.zookeeper.is_used and (
            record.embedded_zookeeper != self.zookeeper.embedded
            or (not self.zookeeper.embedded and quorum != self._configuration.get(ZOOKEEPER_QUORUM))
        ):
            raise CommandFailure(
                ExitCode.USAGE,
                f"the cluster of {self._home} uses ZooKeeper at {quorum}: stop it first "
                "(`tailrace cluster stop --suspend` keeps its jobs)",
            )

    def take_over(self, record: ClusterRecord) -> None:
        """Finds those of a cluster that was started."""
        self.bootstrap_servers = self.bootstrap_servers or record.bootstrap_servers
        self.embedded = record.embedded_kafka
        self.zookeeper.take_over(record)
        if self.embedded and self.kafka is None:
            try:
                self.kafka = EmbeddedKafka.attach(self.kafka_dir)
                self.bootstrap_servers = self.kafka.bootstrap_servers
            except KafkaUnavailable:
                self.kafka = None

    def are_running(self) -> bool:
        """Whether the embedded ones do."""
        return self.kafka_runs() and self.zookeeper.is_running()

    def begin(self, *, detached: bool) -> None:
        """Starts the embedded ones that do not run; returns when it is known where they will be.

        Raises what the starts of Kafka and ZooKeeper raise.
        """
        older_log = not self.embedded or (self.kafka_dir / "data").exists()
        if not self.kafka_runs():
            self._starting = KafkaStartup(self.kafka_dir, detached=detached)
            self.kafka = self._starting.kafka
        if not self.zookeeper.is_running():
            self._fresh_zookeeper = True
            self.zookeeper.launch(detached=detached, older_log=older_log)
        if self._starting is not None:
            self.bootstrap_servers = self._starting.address()

    def join(self) -> bool:
        """Waits until those that were started answer. False: Kafka is elsewhere than `begin` knew. Raises as that."""
        if self._fresh_zookeeper and self.zookeeper.server is not None:
            server = self.zookeeper.server.wait_until_serving()
            self._progress(f"ZooKeeper answers at {server.connect_string}")
        if self._starting is None:
            return True
        self._starting.join()
        expected, self.bootstrap_servers = self.bootstrap_servers, self._starting.kafka.bootstrap_servers
        return self.bootstrap_servers == expected

    def undo(self) -> None:
        """Ends what `begin` has started, by force."""
        if self._fresh_zookeeper and self.zookeeper.server is not None:
            self.zookeeper.server.kill()
        if self._starting is not None:
            self._starting.wait_settled()
            self._starting.kafka.kill()

    def stop(self) -> None:
        """Ends the embedded ones in order, Kafka last."""
        if self.zookeeper.server is not None and self.zookeeper.server.is_running():
            self.zookeeper.server.stop()
            self._progress("ZooKeeper has stopped")
        if self.embedded and self.kafka is not None and self.kafka.is_running():
            self.kafka.stop()
            self._progress("Kafka has stopped")

    def kill(self) -> None:
        """Ends the embedded ones by force."""
        if self.zookeeper.server is not None:
            self.zookeeper.server.kill()
        if self.kafka is not None:
            self.kafka.kill()

    def kafka_runs(self) -> bool:
        """Whether the embedded Kafka runs; True of another one."""
        return not self.embedded or (self.kafka is not None and self.kafka.is_running())
