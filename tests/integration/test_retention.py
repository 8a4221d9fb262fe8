"""The retention of the log on real Kafka: all commands read across the cut, and processes start after it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas import client
from tailrace.schemas.everyone import LeaderElected, SnapshotTaken
from tailrace.schemas.task_executor import TaskExecutorRegistrationSuccess
from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.configuration import Configuration
from tailrace.services.history import state_at
from tailrace.services.history.log_position import first_offset
from tailrace.services.history.retention.archived_log import ArchivedLog, add_archive
from tailrace.services.log.cluster_topics import create_cluster_topics
from tailrace.services.log.dead_letters import read_dead_letters
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.factory import open_event_log
from tailrace.services.log.topic_options import TopicOptions
from tailrace.services.log.topics import (
    answers_topic,
    dead_letters_topic,
    delete_topics,
    describe_topics,
    ensure_cluster_topics,
    submissions_topic,
)
from tailrace.services.processes.retention import delete_old_records, retention_policy
from tailrace.services.processes.snapshot_subprocess import SubprocessSnapshotBuilder
from tailrace.services.snapshots.store import SnapshotStore

from ..services.snapshots.simulated_logs import LONG, history
from .test_snapshots import Cluster

TASK_EXECUTOR = """
from tailrace.services.configuration import load_configuration
from tailrace.infra.logging_setup import log_to_stderr
from tailrace.services.processes import process_lifecycle, simulated_taskexecutor
from tailrace.services.simulation.fork import ForkMember
log_to_stderr()
members = [ForkMember("late", 2)]
simulated_taskexecutor.run(load_configuration(), members, process_lifecycle.stop_on_signals())
"""

Run = Callable[..., tuple[int, str, str]]


TENANT = "pay"


class RetainingCluster(Cluster):
    """A cluster with a retention and a tenant."""

    def __init__(
        self, servers: str, cluster: str, home: Path, *, is_empty: bool = False, **options: str
    ) -> None:
        """`is_empty`: the log has no first event, so that simulated events get their own offsets."""
        home.mkdir(exist_ok=True)
        self.settings = {
            "cluster.id": cluster,
            "bootstrap.servers": servers,
            "home": str(home),
            "snapshot.max-bytes": "6 kb",
            "dispatcher.tenants": TENANT,
            **{key.replace("_", "."): value for key, value in options.items()},
        }
        self.configuration = Configuration(self.settings)
        self.home = home
        self.admin = AdminClient({"bootstrap.servers": servers})
        options = TopicOptions(tenants=(TENANT,))
        if is_empty:
            ensure_cluster_topics(self.admin, cluster, options=options)
        else:
            create_cluster_topics(self.admin, KafkaConnection(servers), cluster, options=options)
        self.log = open_event_log(self.configuration)
        self.store = SnapshotStore.from_configuration(self.configuration)
        self.processes = []

    @property
    def archived(self) -> ArchivedLog:
        return add_archive(self.configuration, self.log)

    def create_snapshots(self, *ends: int) -> None:
        """Takes snapshots as a leader does: in child processes, which run the retention too."""
        take = SubprocessSnapshotBuilder(self.configuration, threading.Event())
        for end in ends:
            assert take(end) is not None

    def run_retention_later(self) -> None:
        """Runs the retention as if all events were old."""
        policy, tomorrow = retention_policy(self.configuration), time.time_ns() // 1000 + 86_400_000_000
        assert delete_old_records(self.configuration, self.log, policy, tomorrow) is not None

    def start_task_executor(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self.configuration.environment()}
        with (self.home / "taskexecutor.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, "-c", TASK_EXECUTOR], env=environment, stderr=log)
        self.processes.append(process)
        return process

    def first_offset_of(self, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.configuration.bootstrap_servers, "group.id": "t"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=90)[0])
        finally:
            consumer.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Returns (exit code, stdout, stderr) of a command; the history index is empty at first."""
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(tmp_path / "cache"))

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err, err[-3000:]
        return code, out, err

    return run


@pytest.fixture
def recorded(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RetainingCluster]:
    """A cluster without a log, for a simulated history that is older than the retention."""
    cluster = RetainingCluster(
        kafka.bootstrap_servers, cluster_id, tmp_path / "home", is_empty=True, log_retention_time="1 min"
    )
    for name, value in cluster.configuration.environment().items():
        monkeypatch.setenv(name, value)
    yield cluster
    cluster.close()


def write_log(cluster: RetainingCluster) -> int:
    """Appends a simulated history and some garbage; returns the end of the log."""
    cluster.talk()
    cluster.log.append_all([b"no event", None])
    return cluster.log.end()


def test_commands_give_same_output_across_the_cut(
    recorded: RetainingCluster, tmp_path: Path, run: Run
) -> None:
    end = write_log(recorded)
    whole = tmp_path / "whole.avro"
    assert run("log", "export", whole)[0] == 0
    job = next(record.body.job_id for record in history(LONG) if isinstance(record.body, client.JobAccepted))
    without_file = [
        ("list", "-o", "json"),
        ("show", job, "-o", "json"),
        ("checkpoints", job, "-o", "json"),
        ("replay", "--check", "-o", "json"),
    ]
    before = [run(*command)[:2] for command in without_file]
    assert [code for code, _ in before] == [0, 0, 0, 0]
    recorded.create_snapshots(end // 3, end // 2, 2 * end // 3, end)
    first = first_offset(recorded.log)
    assert first == 2 * end // 3 - 1
    cut = tmp_path / "cut.avro"
    assert run("log", "export", cut)[0] == 0
    assert cut.read_bytes() == whole.read_bytes()
    for command in (
        ("log",),
        ("log", "--from", 3, "--to", first + 3, "-o", "json"),
        ("log", "--job", job),
        ("state", "--at", 0, "-o", "json"),
        ("state", "--at", first - 1, "-o", "json"),
        ("state", "--at", first, "-o", "json"),
        ("state", "-o", "json"),
        ("diff", "--from", first // 2, "--to", end - 3, "-o", "json"),
        ("story", job, "-o", "json"),
        ("story", "--effects", 5),
    ):
        file = run(*command, "--file", whole)
        live = run(*command)
        assert live[:2] == file[:2], command
        assert live[0] == 0, (command, live[2])
    assert [run(*command)[:2] for command in without_file] == before


def test_log_is_archived_and_cut_by_hand(recorded: RetainingCluster, run: Run) -> None:
    end = write_log(recorded)
    code, out, _ = run("log", "archive", "--to", 99, "-o", "json")
    assert code == 0
    assert '"archived":100' in out.replace(" ", "")
    assert first_offset(recorded.log) == 0
    assert run("log", "archive", "--until", end - 1)[0] == 0
    code, _, err = run("log", "archive", "--truncate")
    assert (code, first_offset(recorded.log)) == (0, 0)
    assert "tailrace cluster snapshot" in err
    assert run("cluster", "snapshot")[0] == 0
    code, out, _ = run("log", "archive", "--truncate")
    assert (code, first_offset(recorded.log)) == (0, 99)
    before = len([record for batch in read_to_end(recorded.archived) for record in batch])
    assert before == len(history(LONG))
    (file,) = (recorded.home / "ha").rglob(f"{0:020d}-{99:020d}-*.avro")
    file.unlink()
    code, _, err = run("log")
    assert code == ExitCode.ARCHIVE
    assert str(file) in err
    assert "offsets 0 to 99 of the log is missing" in err


@pytest.fixture
def cluster(kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path) -> Iterator[RetainingCluster]:
    """A new cluster."""
    cluster = RetainingCluster(
        kafka.bootstrap_servers, cluster_id, tmp_path, log_retention_bytes="256 kb", log_retention_time="1 h"
    )
    yield cluster
    cluster.close()


def test_old_submissions_and_dead_letters_are_deleted(
    cluster: RetainingCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobmanager = cluster.start_jobmanager()
    cluster.wait(lambda: len(cluster.events_of(LeaderElected)) >= 3, "nobody leads")
    cluster.ask(60)
    cluster.ask(60, TENANT)
    cluster.log.append_all([b"garbage"])
    cluster.ask(60)
    cluster.wait(lambda: len(cluster.events_of(client.CancelJobRejected)) == 180, "not all were answered")
    letters = (cluster.configuration.kafka, cluster.configuration.cluster_id)
    cluster.wait(lambda: len(list(read_dead_letters(*letters))) == 1, "no dead letter")
    jobmanager.kill()
    jobmanager.wait()
    # The oldest snapshot that stays has admitted most requests, also if the jobmanager had no time for its own.
    end = cluster.log.end()
    cluster.create_snapshots(end - 20, end)
    offsets = cluster.store.offsets()
    cluster.run_retention_later()
    assert 0 < first_offset(cluster.log) <= min(offsets)
    for tenant, asked in (("", 120), (TENANT, 60)):
        submissions = submissions_topic(cluster.configuration.cluster_id, tenant)
        assert 0 < cluster.first_offset_of(submissions) <= asked
    for name, value in cluster.configuration.environment().items():
        monkeypatch.setenv(name, value)
    for command in (("replay", "--check"), ("cluster", "verify")):
        code, out, err = run(*command)
        assert code == ExitCode.OK, (out, err)
    assert cluster.first_offset_of(dead_letters_topic(cluster.configuration.cluster_id)) == 1
    behind = cluster.log.end()
    cluster.start_jobmanager()
    cluster.ask(2)
    cluster.ask(1, TENANT)
    cluster.wait(
        lambda: len(cluster.events_of(client.CancelJobRejected, behind)) == 3, "the successor answers nobody"
    )


def test_masters_and_task_executors_start_after_the_cut(cluster: RetainingCluster) -> None:
    first = cluster.start_jobmanager()
    cluster.wait(lambda: len(cluster.events_of(LeaderElected)) >= 3, "nobody leads")
    requests = 0
    while first_offset(cluster.log) == 0:
        requests += 400
        assert requests < 10_000
        taken = len([event for event in events(cluster) if isinstance(event.body, SnapshotTaken)])
        cluster.ask(400)
        cluster.wait(
            lambda taken=taken: (  # type: ignore[misc]
                len([event for event in events(cluster) if isinstance(event.body, SnapshotTaken)]) > taken
            ),
            "no snapshot was taken",
        )
    cluster.start_task_executor()
    cluster.wait(
        lambda: any(isinstance(event.body, TaskExecutorRegistrationSuccess) for event in events(cluster)),
        "the TaskExecutor is not registered",
    )
    first.kill()
    first.wait()
    for offset in cluster.store.offsets():
        cluster.store.delete(offset)
    behind = cluster.log.end()
    cluster.start_jobmanager()
    cluster.ask(3)
    cluster.wait(
        lambda: (
            len(
                [
                    event
                    for event in events(cluster, behind)
                    if isinstance(event.body, client.CancelJobRejected)
                ]
            )
            == 3
        ),
        "the successor answers nobody",
    )
    assert "rebuilt from the archive" in (cluster.home / "jobmanager.log").read_text()
    end = cluster.log.end() - 1
    assert "late" in state_at(cluster.archived, end).roles["resource_manager"]["workers"]


def events(cluster: RetainingCluster, start: int = 0) -> list:  # type: ignore[type-arg]
    return [record for batch in read_to_end(cluster.archived, start) for record in batch]


def test_verification_names_what_is_missing_and_what_is_lost(recorded: RetainingCluster, run: Run) -> None:
    end = write_log(recorded)
    recorded.create_snapshots(end // 3, end // 2, 2 * end // 3)
    first = first_offset(recorded.log)
    assert first > 0

    def verify(*options: str) -> tuple[int, dict[str, Any]]:
        code, out, _ = run("cluster", "verify", "-o", "json", *options)
        return code, json.loads(out)

    def faults(result: dict[str, Any]) -> dict[str, tuple[str, str]]:
        return {fault["name"]: (fault["problem"], fault["lost"]) for fault in result["faults"]}

    code, result = verify()
    # The simulated jobs have no files.
    assert {fault["kind"] for fault in result["faults"]} <= {"checkpoint", "blob"}, result
    before = faults(result)
    assert result["checked"] | {"topic": 7, "log": 1, "snapshot": 2} == result["checked"]
    assert result["checked"]["archive"] >= 2
    assert code == (ExitCode.UNSOUND if before else ExitCode.OK)

    segments = sorted((recorded.home / "ha").rglob("*.avro"))
    segments[0].unlink()
    data = bytearray(segments[1].read_bytes())
    data[-50] ^= 1
    segments[1].write_bytes(data)
    newest = Path(recorded.store.uri_of(recorded.store.offsets()[0]))
    newest.write_bytes(newest.read_bytes()[:-1])
    letters = dead_letters_topic(recorded.configuration.cluster_id)
    of_tenant = {
        name(recorded.configuration.cluster_id, TENANT) for name in (submissions_topic, answers_topic)
    }
    gone = [letters, *of_tenant]
    delete_topics(recorded.admin, gone)
    wait_until(lambda: set(describe_topics(recorded.admin, gone).values()) == {None}, "the topics are gone")
    code, result = verify()
    assert code == ExitCode.UNSOUND
    found = {name: fault for name, fault in faults(result).items() if name not in before}
    assert set(found) == {str(segments[0]), str(segments[1]), str(newest), *gone}
    assert "is missing" in found[str(segments[0])][0]
    assert "is damaged" in found[str(segments[1])][0]
    assert "SHA-256 does not match" in found[str(newest)][0]
    assert found[letters] == (
        "it does not exist",
        "the rejected records; `tailrace cluster start` creates the topic",
    )
    assert {found[topic][0] for topic in of_tenant} == {"it does not exist"}
    code, result = verify("--quick")
    assert str(segments[1]) not in faults(result)
    assert str(segments[0]) in faults(result)
    code, out, err = run("cluster", "verify")
    assert code == ExitCode.UNSOUND
    assert f"topic {letters}: it does not exist; lost: the rejected records" in out
    assert "faults" in err


def test_verification_of_lost_log_says_that_all_jobs_are_lost(recorded: RetainingCluster, run: Run) -> None:
    write_log(recorded)
    log = recorded.log.topic
    delete_topics(recorded.admin, [log])
    wait_until(lambda: describe_topics(recorded.admin, [log])[log] is None, "the log is gone")
    code, out, _ = run("cluster", "verify", "-o", "json")
    assert code == ExitCode.UNSOUND
    assert [(fault["name"], fault["lost"].startswith("all jobs")) for fault in json.loads(out)["faults"]] == [
        (log, True)
    ]
