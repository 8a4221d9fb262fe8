"""The commands that read, on a real Kafka with a log of the simulation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.event import Event
from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.configuration import load_configuration
from tailrace.services.history.time_travel import cluster_moment
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import ensure_cluster_topics

from ..services import scenarios_checkpoints
from ..services.simulated_cluster.cluster import Cluster, replay_to_replica, start_cluster


@pytest.fixture
def simulated() -> Cluster:
    cluster = start_cluster("te-1", slots=2)
    cluster.submit("first")
    cluster.submit("second")
    cluster.settle()
    cluster.submit("first", client="client/late")
    cluster.settle()
    return cluster


@pytest.fixture
def log(
    kafka: EmbeddedKafka,
    cluster_id: str,
    simulated: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> KafkaEventLog:
    """Writes the simulated log to the Kafka that the commands of this process use."""
    monkeypatch.setenv("TAILRACE_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("TAILRACE_CLUSTER_ID", cluster_id)
    monkeypatch.chdir(tmp_path)
    configuration = load_configuration()
    ensure_cluster_topics(create_admin_client(configuration), cluster_id)
    log = open_event_log(configuration)
    log.append([Event(record.header, record.body) for record in simulated.log])
    return log


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tailrace.services.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_log_prints_every_event_once(
    log: KafkaEventLog, simulated: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "-o", "json"]) == ExitCode.OK
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report["offset"] for report in reports] == [record.offset for record in simulated.log]
    assert main(["log", "--from", "7", "--job", "fir", "--type", "JobAccepted", "--type", "JobRejected"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[5] for line in lines] == ["JobAccepted", "JobRejected"]


def test_state_at_offset(log: KafkaEventLog, simulated: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    for offset in (0, 7, len(simulated.log) - 1):
        assert main(["state", "--at", str(offset), "-o", "json"]) == ExitCode.OK
        result = json.loads(capsys.readouterr().out)
        expected = cluster_moment(replay_to_replica(simulated.log[: offset + 1]))
        assert (result["offset"], result["state_hash"]) == (offset, expected.state_hash)
    assert main(["state"]) == ExitCode.OK
    assert f"state hash {cluster_moment(simulated.replica).state_hash}" in capsys.readouterr().out


def test_list_and_status(log: KafkaEventLog, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "-o", "json"]) == ExitCode.OK
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(job["job_id"], job["status"]) for job in listed] == [("first", "RUNNING"), ("second", "RUNNING")]
    assert main(["cluster", "status", "-o", "json"]) == ExitCode.OK
    status = json.loads(capsys.readouterr().out)
    assert (status["slots"], status["processes"]) == ({"total": 2, "free": 0}, [])


def test_checkpoints_and_show(
    kafka: EmbeddedKafka, cluster_id: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILRACE_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("TAILRACE_CLUSTER_ID", cluster_id)
    configuration = load_configuration()
    ensure_cluster_topics(create_admin_client(configuration), cluster_id)
    story = scenarios_checkpoints.a_task_goes_on_from_a_checkpoint()
    open_event_log(configuration).append([Event(record.header, record.body) for record in story.log])
    assert main(["checkpoints", "j1", "-o", "json"]) == ExitCode.OK
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(report["checkpoint_id"], report["status"], report["discarded"]) for report in reports] == [
        (1, "COMPLETED", True),
        (2, "FAILED", True),
        (3, "COMPLETED", False),
    ]
    assert main(["checkpoints", "j1", "--last", "1"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err == "2 completed, 1 failed, 0 in progress\n"
    assert main(["show", "j"]) == ExitCode.OK
    assert capsys.readouterr().out.rstrip().endswith("failed on te-1: it broke")
    assert main(["show", "j1", "-o", "json"]) == ExitCode.OK
    shown = json.loads(capsys.readouterr().out)
    assert shown["failures"][0]["text"] == "it broke"
    assert shown["checkpoints"]["last"]["uri"] == reports[-1]["uri"]


def test_unknown_job_is_rejected(log: KafkaEventLog, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["cancel", "third"], ["output", "third"], ["log", "--job", "third"]):
        assert main(command) == ExitCode.NOT_FOUND
        assert "`tailrace list` shows all jobs" in capsys.readouterr().err
    assert main(["output", "first"]) == ExitCode.OK
    assert capsys.readouterr().out == ""


def test_kafka_tools_create_topic_of_cluster(log: KafkaEventLog, cluster_id: str) -> None:
    topic = f"{cluster_id}-orders"
    for arguments in (("--create", "--topic", topic, "--partitions", "3"), ("--describe", "--topic", topic)):
        with started("kafka-tools", "kafka-topics", *arguments) as tool:
            out, err = tool.communicate()
        assert tool.returncode == 0, err
    assert b"PartitionCount: 3" in out


def test_closed_output_pipe_is_no_error(log: KafkaEventLog) -> None:
    with started("log", "--follow") as telling:
        assert telling.stdout is not None
        assert telling.stderr is not None
        assert telling.stdout.readline()
        telling.stdout.close()
        # The next line finds nobody.
        while telling.poll() is None:
            log.append(_one(log))
        assert telling.stderr.read() == b""
    assert telling.returncode == ExitCode.BROKEN_PIPE


def test_follow_runs_until_interrupted(log: KafkaEventLog, simulated: Cluster) -> None:
    with started("log", "--follow", "--from", str(len(simulated.log)), "-o", "json") as telling:
        assert telling.stdout is not None
        assert telling.stderr is not None
        (offset,) = log.append(_one(log))
        assert json.loads(telling.stdout.readline())["offset"] == offset
        telling.send_signal(signal.SIGINT)
        assert telling.stderr.read() == b""
    assert telling.returncode == ExitCode.INTERRUPTED


def test_process_that_dies_during_start_is_reported_with_its_log(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path
) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tailrace.services.cli", "cluster", "start", "--taskexecutors", "1"],
        env={
            **os.environ,
            "TAILRACE_HOME": str(tmp_path),
            "TAILRACE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "TAILRACE_CLUSTER_ID": cluster_id,
            "JAVA_HOME": "/nowhere",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == ExitCode.PROCESS_FAILED, result.stderr
    reports = result.stderr.splitlines()
    (head,) = [i for i, line in enumerate(reports) if line.startswith("tailrace: ")]
    assert reports[head].startswith("tailrace: taskexecutor-1 ended with exit code")
    assert str(tmp_path / "log" / "taskexecutor-1.log") in reports[head]
    assert "JAVA_HOME" in "\n".join(reports[head + 1 :])
    assert not (tmp_path / "cluster.json").exists()


def _one(log: KafkaEventLog) -> list[Event]:
    tail = log.tail(0)
    try:
        while not (batch := tail.poll(1.0)):
            pass
        return [Event(batch[0].header, batch[0].body)]
    finally:
        tail.close()
