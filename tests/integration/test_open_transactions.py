"""An open transaction on the topic of submissions is detected, and the command in the error message ends it."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from polling import wait_until
from structlog.testing import capture_logs

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.services.cli import main
from tailrace.services.cli.doctor import transactions as transaction_check
from tailrace.services.dispatcher.open_transactions import OpenTransactions, abort_command
from tailrace.services.log.topics import ensure_cluster_topics, submissions_topic


def diagnose(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Returns what `cluster doctor` finds about transactions."""
    capsys.readouterr()
    main(["cluster", "doctor", "--role", "auditor", "-o", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    (found,) = [each for each in findings if each["check"] == "transactions"]
    return dict(found)


def test_hanging_transaction_is_detected_and_can_be_ended(
    kafka: EmbeddedKafka,
    cluster_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers, topic, now = kafka.bootstrap_servers, submissions_topic(cluster_id), [0.0]
    admin = AdminClient({"bootstrap.servers": servers})
    ensure_cluster_topics(admin, cluster_id)
    plain = Producer({"bootstrap.servers": servers})
    plain.produce(topic, b"before")
    plain.flush()
    hanging = Producer({"bootstrap.servers": servers, "transactional.id": f"{cluster_id}-hangs"})
    hanging.init_transactions()
    hanging.begin_transaction()
    hanging.produce(topic, b"open")
    hanging.flush()
    plain.produce(topic, b"behind it")
    plain.flush()

    transactions = OpenTransactions(kafka.connection, admin, topic, lambda: now[0])
    assert transactions.check(1) == []
    now[0] = 9.9
    assert transactions.check(1) == []
    now[0] = 10.0
    with capture_logs() as logged:
        assert transactions.check(1) == [(0, 1)]
    (warning,) = logged
    began = datetime.fromisoformat(warning["since"])
    assert datetime.now(UTC) - timedelta(minutes=10) < began <= datetime.now(UTC)
    assert warning["waiting"] == 2

    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    monkeypatch.setenv("TAILRACE_BOOTSTRAP_SERVERS", servers)
    monkeypatch.setenv("TAILRACE_CLUSTER_ID", cluster_id)
    monkeypatch.setattr(transaction_check, "OPEN_S", 0.0)
    before = diagnose(capsys)
    assert before["health"] == "warning"
    assert (
        f"{topic}, partition 0, offset 1: a transaction is open since {warning['since']}" in before["message"]
    )
    assert abort_command(topic, 0, 1) in before["remedy"]
    assert main(shlex.split(abort_command(topic, 0, 1))[1:]) == 0
    wait_until(lambda: transactions.check(1) == [], "the transaction is aborted")
    assert diagnose(capsys)["health"] == "ok"


def test_producer_with_repeated_commits_is_no_hanging_transaction(
    kafka: EmbeddedKafka, cluster_id: str
) -> None:
    servers, topic, now = kafka.bootstrap_servers, submissions_topic(cluster_id), [0.0]
    admin = AdminClient({"bootstrap.servers": servers})
    ensure_cluster_topics(admin, cluster_id)
    busy = Producer({"bootstrap.servers": servers, "transactional.id": f"{cluster_id}-busy"})
    busy.init_transactions()
    transactions = OpenTransactions(kafka.connection, admin, topic, lambda: now[0])
    for _ in range(3):
        busy.begin_transaction()
        busy.produce(topic, b"any")
        busy.flush()
        now[0] += 9
        assert transactions.check(1) == []
        busy.commit_transaction()
