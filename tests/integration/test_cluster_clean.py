"""`tailrace cluster clean` on a real Kafka and ZooKeeper: lists orphaned resources, and removes them on request."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from polling import wait_until
from typer.testing import CliRunner

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.schemas.event import Event
from tailrace.services.cli import main
from tailrace.services.cli.app import app
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.cli.local.topic_recovery import describe_remaining_topics, has_log
from tailrace.services.configuration import load_configuration
from tailrace.services.history import fold_to
from tailrace.services.history.cluster_view import statuses
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.log.topics import delete_topics, ensure_cluster_topics, log_topic

from ..services.snapshots.simulated_logs import LONG, history

LONG_AGO = time.time() - 2 * 3600


@pytest.fixture
def home(kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the home of a cluster with an empty log."""
    settings = {"home": tmp_path, "bootstrap_servers": kafka.bootstrap_servers, "cluster_id": cluster_id}
    for name, value in settings.items():
        monkeypatch.setenv(f"TAILRACE_{name.upper()}", str(value))
    ensure_cluster_topics(create_admin_client(load_configuration()), cluster_id)
    return tmp_path


def test_stopped_cluster_says_whether_its_log_exists(home: Path, cluster_id: str) -> None:
    assert has_log(load_configuration()) is True
    assert describe_remaining_topics(cluster_id, "on its Kafka", True) == [
        f"cluster {cluster_id} has stopped; its log stays on its Kafka",
        "`tailrace cluster start` goes on from there",
    ]
    delete_topics(create_admin_client(load_configuration()), [log_topic(cluster_id)])
    wait_until(lambda: has_log(load_configuration()) is False, "the log is deleted")
    assert describe_remaining_topics(cluster_id, "on its Kafka", False) == [
        f"cluster {cluster_id} has stopped; its log {cluster_id}.log was deleted, and its jobs are lost with it",
        "`tailrace cluster start` begins with an empty log",
    ]


def test_orphans_are_listed_and_then_removed(
    home: Path, cluster_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedZooKeeper() as zookeeper:
        monkeypatch.setenv("TAILRACE_HIGH_AVAILABILITY_TYPE", "zookeeper")
        monkeypatch.setenv("TAILRACE_HIGH_AVAILABILITY_ZOOKEEPER_QUORUM", zookeeper.connect_string)
        log = open_event_log(load_configuration())
        log.append([Event(record.header, record.body) for record in history(LONG)])
        known = next(iter(statuses(fold_to(log))))
        blob = home / "ha" / cluster_id / "blob" / "job_gone" / f"blob_p-{'0' * 64}"
        snapshot = home / "ha" / cluster_id / "snapshots" / f"{10**6:020}.snapshot"
        for path in (blob, snapshot):
            path.parent.mkdir(parents=True)
            path.write_bytes(b"any")
            os.utime(path, (LONG_AGO, LONG_AGO))
        run = CliRunner()
        for arguments in ([], ["-o", "json"], ["-o", "json", "--yes"]):
            result = run.invoke(app, ["cluster", "clean", *arguments])
            assert result.exit_code == 0, result.output
            assert ("gone" in result.stdout, known in result.stdout) == (True, False)
            if arguments:
                report = json.loads(result.stdout)
                assert report["removed"] is ("--yes" in arguments)
                assert [item["kind"] for item in report["orphans"]] == ["blobs", "snapshot"]
            else:
                assert "2 orphans; nothing was removed" in result.stderr
            there = (blob.exists(), snapshot.exists())
            assert there == ("--yes" not in arguments,) * 2
        last = run.invoke(app, ["cluster", "clean"])
        assert (last.exit_code, last.stdout) == (0, "")
        assert "has no orphans" in last.stderr


def test_empty_log_is_treated_as_wrong_one(
    home: Path, cluster_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = home / "ha" / cluster_id / "snapshots" / f"{5:020}.snapshot"
    snapshot.parent.mkdir(parents=True)
    snapshot.write_bytes(b"any")
    assert main(["cluster", "clean", "--yes"]) == ExitCode.NOT_FOUND
    err = capsys.readouterr().err
    assert "holds no event, but 1 resources of the cluster exist elsewhere" in err
    assert snapshot.exists()
