"""The broker that leads the log is killed while jobs run: nothing is lost, and no second leader has an effect.

Three brokers with three replicas of each topic, of which two must have a record. Two masters stand for election. The
tasks are simulated. Jobs are submitted all the time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.infra.kafka_cluster import KafkaCluster
from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.services.cli.local.local_process import LocalProcess
from tailrace.services.client import Client
from tailrace.services.configuration import Configuration
from tailrace.services.log.cluster_topics import create_cluster_topics
from tailrace.services.log.factory import create_admin_client
from tailrace.services.log.topic_options import TopicOptions
from tailrace.services.log.topic_validation import find_faults
from tailrace.services.log.topics import log_topic

from ..high_availability.cluster import HaCluster
from ..high_availability.leader_history import LeaderHistory
from ..high_availability.simulated_task_executors import SimulatedTaskExecutors
from ..log_checker import check
from ..log_checker.log_reader import read_topic

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

CLUSTER = "payments.prod"
SESSION_S = 4.0
"""After that a killed broker has no partition any more."""
LOAD_S = 8.0


class PlatformCluster(HaCluster):
    """Two masters and two TaskExecutors on three brokers, without networks of their own."""

    def __init__(self, kafka: KafkaCluster, home: Path) -> None:
        self.kafka = kafka
        self._stack = contextlib.ExitStack()
        try:
            zookeeper = self._stack.enter_context(EmbeddedZooKeeper(heap="96m"))
            self.configuration = Configuration(
                {
                    "cluster.id": CLUSTER,
                    "home": str(home),
                    "bootstrap.servers": kafka.bootstrap_servers,
                    "topics.replication-factor": "3",
                    "topics.min-insync-replicas": "2",
                    "high-availability.type": "zookeeper",
                    "high-availability.zookeeper.quorum": zookeeper.address,
                    "heartbeat.interval": "1 s",
                    "heartbeat.timeout": "30 s",
                }
            )
            admin = create_admin_client(self.configuration)
            options = TopicOptions.from_configuration(self.configuration)
            create_cluster_topics(admin, self.configuration.kafka, CLUSTER, options=options)
            assert find_faults(admin, CLUSTER) == []
            for name in ("jobmanager-1", "jobmanager-2"):
                master = LocalProcess.start(
                    name,
                    ["jobmanager"],
                    log=home / "log" / f"{name}.log",
                    environment={**self.configuration.environment(), "PYTHONUNBUFFERED": "1"},
                    detached=False,
                )
                self._stack.callback(master.kill)
            self.workers = self._stack.enter_context(
                SimulatedTaskExecutors(self.configuration, self.TASK_EXECUTORS, self.SLOTS)
            )
            self.story = self._stack.enter_context(contextlib.closing(LeaderHistory(self.configuration)))
            self.client = self._stack.enter_context(contextlib.closing(Client(self.configuration)))
        except BaseException:
            self._stack.close()
            raise


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PlatformCluster]:
    with (
        KafkaCluster(session_timeout_s=SESSION_S) as kafka,
        PlatformCluster(kafka, tmp_path / "home") as running,
    ):
        yield running


def test_killed_leader_of_log_loses_nothing(cluster: PlatformCluster) -> None:
    topic, servers = log_topic(CLUSTER), cluster.kafka.bootstrap_servers
    lasting = cluster.submit(parallelism=2)
    cluster.runs(lasting, 2)
    with cluster.load():
        before = list(read_topic(servers, topic))
        leader = cluster.kafka.leader(topic)
        leader.kill()
        killed = time.time()
        cluster.story.catch_up()
        cluster.run_for(LOAD_S)
        assert cluster.kafka.leader(topic) is not leader
    leader.start()
    cluster.measure_job_seconds()
    cluster.finish(lasting)
    after = list(read_topic(servers, topic))
    assert after[: len(before)] == before, "events that were read are gone"
    assert [str(violation) for violation in check(after, settled=False)] == []
    claims = [reign for reign in cluster.story.reigns if reign.time > killed]
    assert not cluster.story.lost
    print(f"{len(after)} events, {len(claims)} claims after the kill")
