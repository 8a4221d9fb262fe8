"""Snapshots on real Kafka: recovery from snapshot and tail, with the log's head deleted, with the newest one
damaged; taken by the child process of a real jobmanager, which is then killed, and by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from polling import TIMEOUT_S
from structlog.testing import capture_logs
from typer.testing import CliRunner

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas import client, dispatcher
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event, Record
from tailrace.schemas.everyone import LeaderElected, SnapshotTaken, StateHash
from tailrace.schemas.types import Header
from tailrace.services.cli.app import app
from tailrace.services.client import Client
from tailrace.services.configuration import Configuration
from tailrace.services.history import state_at
from tailrace.services.log import Codec, LogTruncated
from tailrace.services.log.cluster_topics import create_cluster_topics
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.factory import open_event_log
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import submissions_topic
from tailrace.services.processes.snapshot_subprocess import SubprocessSnapshotBuilder
from tailrace.services.snapshots.builder import SnapshotInfo, all_roles, create_snapshot
from tailrace.services.snapshots.recovery import restore_newest
from tailrace.services.snapshots.state_hash import StateHasher, hash_all
from tailrace.services.snapshots.store import SnapshotStore

from ..services.snapshots.simulated_logs import LONG, history

JOBMANAGER = """
from tailrace.services.configuration import load_configuration
from tailrace.infra.logging_setup import log_to_stderr
from tailrace.services.processes import jobmanager, process_lifecycle
log_to_stderr()
jobmanager.run(load_configuration(), process_lifecycle.stop_on_signals())
"""


class Cluster:
    """A log on Kafka, and the directory of its snapshots."""

    def __init__(self, servers: str, cluster: str, home: Path) -> None:
        self.configuration = Configuration(
            {
                "cluster.id": cluster,
                "bootstrap.servers": servers,
                "home": str(home),
                "snapshot.max-bytes": "6 kb",
                "state-hash.interval": "10",
            }
        )
        self.home = home
        self.admin = AdminClient({"bootstrap.servers": servers})
        create_cluster_topics(self.admin, KafkaConnection(servers), cluster)
        self.log: KafkaEventLog = open_event_log(self.configuration)
        self.store = SnapshotStore.from_configuration(self.configuration)
        self.processes: list[subprocess.Popen[bytes]] = []

    def talk(self) -> None:
        """Appends the events of a simulated cluster."""
        self.log.append([Event(record.header, record.body) for record in history(LONG)])

    def started(self) -> tuple[str, int, list[str]]:
        """Returns the state hash of a recovered process, the offset at which it started, and its warnings."""
        replica = all_roles()
        with capture_logs() as events:
            header = restore_newest(replica, self.log, self.store)
        for batch in read_to_end(self.log, replica.offset + 1):
            for record in batch:
                replica.apply(record)
        start = -1 if header is None else header.offset
        return hash_all(StateHasher(replica).hashes()), start, [str(event.get("reason")) for event in events]

    def truncate(self, first: int) -> None:
        partition = TopicPartition(self.log.topic, 0, first)
        for future in self.admin.delete_records([partition]).values():
            future.result()

    def tear(self, offset: int) -> None:
        path = Path(self.store.uri_of(offset))
        path.write_bytes(path.read_bytes()[:-50])

    def start_jobmanager(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self.configuration.environment()}
        with (self.home / "jobmanager.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, "-c", JOBMANAGER], env=environment, stderr=log)
        self.processes.append(process)
        return process

    def ask(self, count: int, tenant: str = "") -> None:
        """Appends requests that are rejected: each is an event, and its answer another."""
        topic = submissions_topic(self.configuration.cluster_id, tenant)
        producer = Producer({"bootstrap.servers": self.configuration.bootstrap_servers})
        for number in range(count):
            header = Header(event_id="e", time=1, sender="client/t", sender_epoch=0, recipient="dispatcher")
            body = dispatcher.CancelJob(job_id=f"none-{number}")
            producer.produce(topic, Codec(topic).encode(Event(header, body)))
        assert producer.flush(30) == 0

    def events_of(self, kind: type[Body], start: int = 0) -> list[Record]:
        return [
            record
            for batch in read_to_end(self.log, start)
            for record in batch
            if isinstance(record.body, kind)
        ]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a condition. Raises AssertionError with the jobmanager's log."""
        deadline = time.monotonic() + TIMEOUT_S
        pause = threading.Event()
        while not condition():
            log = self.home / "jobmanager.log"
            assert time.monotonic() < deadline, (what, log.read_text() if log.exists() else "")
            pause.wait(0.1)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.log.close()


@pytest.fixture
def cluster(kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(kafka.bootstrap_servers, cluster_id, tmp_path)
    yield cluster
    cluster.close()


def test_recovery_from_snapshot_equals_recovery_from_start(cluster: Cluster) -> None:
    cluster.talk()
    end = cluster.log.end()
    from_start, start, _ = cluster.started()
    assert start == -1
    for until in (end // 3, end - 7):
        create_snapshot(cluster.log, cluster.store, until)
    assert cluster.started() == (from_start, end - 8, [])
    cluster.tear(end - 8)
    result, start, reports = cluster.started()
    assert (result, start) == (from_start, end // 3 - 1)
    assert reports == ["it is truncated or damaged: its SHA-256 does not match its bytes"]


def test_head_of_log_may_be_deleted_up_to_snapshot_only(cluster: Cluster) -> None:
    cluster.talk()
    end = cluster.log.end()
    from_start, _, _ = cluster.started()
    create_snapshot(cluster.log, cluster.store, end - 20)
    cluster.truncate(end - 20)
    assert cluster.started() == (from_start, end - 21, [])
    snapshot = create_snapshot(cluster.log, cluster.store)
    assert snapshot is not None
    assert (snapshot.offset, snapshot.state_hash) == (end - 1, from_start)
    cluster.tear(end - 1)
    assert cluster.started()[:2] == (from_start, end - 21)
    cluster.tear(end - 21)
    with pytest.raises(LogTruncated, match=f"begins at offset {end - 20}, but offset 0 is needed"):
        cluster.started()


def test_child_process_takes_snapshot_up_to_given_end(cluster: Cluster) -> None:
    cluster.talk()
    end = cluster.log.end() - 5
    snapshot = SubprocessSnapshotBuilder(cluster.configuration, threading.Event())(end)
    assert isinstance(snapshot, SnapshotInfo)
    assert snapshot.offset == end - 1
    assert snapshot.state_hash == state_at(cluster.log, end - 1).state_hash
    assert Path(snapshot.uri).stat().st_size == snapshot.size


def test_jobmanager_takes_snapshots_and_successor_uses_them(cluster: Cluster) -> None:
    first = cluster.start_jobmanager()
    cluster.wait(lambda: len(cluster.events_of(LeaderElected)) >= 3, "nobody leads")
    cluster.ask(60)
    cluster.wait(lambda: bool(cluster.events_of(SnapshotTaken)), "no snapshot was taken")
    cluster.wait(lambda: len(cluster.events_of(client.CancelJobRejected)) == 60, "not all were answered")
    first.kill()
    first.wait()
    events = [record.body for record in cluster.events_of(SnapshotTaken)]
    newest = max(event.offset for event in events if isinstance(event, SnapshotTaken))
    assert cluster.store.offsets()[0] >= newest
    hashes = [event.body for event in cluster.events_of(StateHash)]
    assert len(hashes) >= 10
    for body in hashes:
        assert isinstance(body, StateHash)
        expected = state_at(cluster.log, body.offset).hashes
        assert body.hashes == {kind: value for kind, value in expected.items() if kind in body.hashes}
    cluster.truncate(newest + 1)
    behind = cluster.log.end()
    cluster.start_jobmanager()
    cluster.ask(3)
    cluster.wait(
        lambda: len(cluster.events_of(client.CancelJobRejected, behind)) == 3, "the successor answers nobody"
    )


def test_command_line_takes_snapshot_and_reads_from_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.talk()
    end = cluster.log.end()
    for name, value in cluster.configuration.environment().items():
        monkeypatch.setenv(name, value)
    run = CliRunner()
    result = run.invoke(app, ["cluster", "snapshot", "--output", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["offset"] == end - 1
    expected = state_at(cluster.log)
    cluster.truncate(end - 1)
    found = run.invoke(app, ["state", "--output", "json"])
    assert json.loads(found.stdout)["state_hash"] == expected.state_hash
    jobs = run.invoke(app, ["list", "--output", "json"])
    listed = [json.loads(line)["job_id"] for line in jobs.stdout.splitlines()]
    assert sorted(listed) == sorted(expected.roles["dispatcher"]["jobs"])
    story = run.invoke(app, ["log", "--output", "json"])
    assert [json.loads(line)["offset"] for line in story.stdout.splitlines()] == []
    with Client(cluster.configuration) as client, client.subscribe() as conversation:
        assert conversation.poll(0) == []
