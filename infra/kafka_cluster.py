"""A Kafka cluster on this machine: several nodes, of which a majority must run.

It is for tests that need more than one broker: the leader of a partition dies, and another one takes over. Every node
is a separate EmbeddedKafka, broker and controller, that can be stopped, killed, paused and started alone. Topics have
as many replicas as there are nodes, and a majority of them must have a record before it is acknowledged.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from .embedded_server import Server
from .kafka import START_TIMEOUT_S, EmbeddedKafka, KafkaUnavailable, Membership, draw_id
from .ports import HOST, ReservedPort

_LEADER_LOOK_S: Final = 0.02


class KafkaCluster(Server):
    """Nodes of one cluster, numbered from 1. As a context manager it starts and stops all of them."""

    def __init__(
        self,
        size: int = 3,
        *,
        heap: str = "256m",
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
        session_timeout_s: float = 9.0,
    ) -> None:
        """The data is in a temporary directory, which `stop` removes. All ports are reserved until `stop`.

        After `session_timeout_s` without a heartbeat of a broker its partitions get other leaders; the default is
        Kafka's own.
        """
        if size < 1:
            raise ValueError(f"a cluster has at least one node, not {size}")
        self._scratch = tempfile.TemporaryDirectory(prefix="tailrace-kafka-cluster-")
        self._ports = [ReservedPort() for _ in range(2 * size)]
        numbers = [port.number for port in self._ports]
        brokers, controllers = numbers[:size], dict(enumerate(numbers[size:], 1))
        majority = str(size // 2 + 1)
        replicated = {
            "default.replication.factor": str(size),
            "min.insync.replicas": majority,
            "offsets.topic.replication.factor": str(size),
            "transaction.state.log.replication.factor": str(size),
            "transaction.state.log.min.isr": majority,
            "share.coordinator.state.topic.replication.factor": str(size),
            "share.coordinator.state.topic.min.isr": majority,
            "broker.session.timeout.ms": str(round(session_timeout_s * 1000)),
        }
        cluster_id = draw_id()
        self.nodes: Final[tuple[EmbeddedKafka, ...]] = tuple(
            EmbeddedKafka(
                Path(self._scratch.name) / str(number),
                heap=heap,
                settings={**replicated, **(settings or {})},
                jvm_options=jvm_options,
                membership=Membership(number, cluster_id, port, controllers),
            )
            for number, port in enumerate(brokers, 1)
        )
        self.bootstrap_servers: Final = ",".join(f"{HOST}:{port}" for port in brokers)

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Starts the nodes that are not running and returns when all answer. Raises like EmbeddedKafka.start."""
        fresh = [node for node in self.nodes if not node.is_running()]
        if not fresh:
            return self
        try:
            # A node answers when a majority of them runs.
            with ThreadPoolExecutor(len(fresh)) as threads:
                list(threads.map(lambda node: node.start(timeout_s=timeout_s), fresh))
        except BaseException:
            for node in fresh:
                node.kill()
            raise
        return self

    def stop(self) -> None:
        """Kills all nodes, removes their data, and releases their ports."""
        for node in self.nodes:
            node.kill()
        self._scratch.cleanup()
        for port in self._ports:
            port.release()

    def leader(self, topic: str, partition: int = 0, timeout_s: float = START_TIMEOUT_S) -> EmbeddedKafka:
        """Returns the node that leads a partition; waits for an election. Raises KafkaUnavailable if none leads in
        time."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                found = admin.list_topics(topic, timeout=1.0).topics[topic].partitions
            except KafkaException:
                found = {}
            leader = found[partition].leader if partition in found else -1
            if leader > 0 and self.nodes[leader - 1].is_running():
                return self.nodes[leader - 1]
            time.sleep(_LEADER_LOOK_S)
        raise KafkaUnavailable(f"no broker of {self.bootstrap_servers} leads {topic}-{partition}")
