"""`tailrace story` on real Kafka: the topic and its file give the same output, with undecodable values, and as the
log grows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.event import Event
from tailrace.services.cli import main
from tailrace.services.configuration import load_configuration
from tailrace.services.configuration.configuration import Setting
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import ensure_cluster_topics

from ..services.snapshots.simulated_logs import history

FAILING = "a_task_fails"
FAILED = 37
"""The offset at which the task fails."""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def options(kafka: EmbeddedKafka, cluster_id: str) -> tuple[str, ...]:
    return ("--bootstrap-servers", kafka.bootstrap_servers, "--cluster-id", cluster_id)


@pytest.fixture
def log(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[KafkaEventLog]:
    settings = [
        Setting("bootstrap.servers", kafka.bootstrap_servers, "test"),
        Setting("cluster.id", cluster_id, "test"),
    ]
    configuration = load_configuration(settings, ())
    ensure_cluster_topics(create_admin_client(configuration), cluster_id)
    result = open_event_log(configuration)
    yield result
    result.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns (exit code, stdout, stderr) of a command."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


def events(name: str) -> list[Event]:
    return [Event(record.header, record.body) for record in history(name)]


def test_topic_and_its_file_give_same_histories(
    log: KafkaEventLog, options: tuple[str, ...], tmp_path: Path, run: Run
) -> None:
    log.append(events(FAILING))
    log.append_all([b"no event", None])
    path = tmp_path / "log.avro"
    assert run("log", "export", path, *options)[0] == 0
    questions = (
        ["j1"],
        ["te-1/0", "--all"],
        ["Source: Socket Stream (1/1)", "-o", "json"],
        ["j1", "--from", 20, "--to", 50],
        ["--why", 53],
        ["--effects", FAILED],
        [],
    )
    for question in questions:
        code, live, _ = run("story", *question, *options)
        assert code == 0
        assert run("story", *question, "--file", path)[:2] == (0, live)
    code, report, _ = run("story", "j1", "-o", "json", *options)
    assert json.loads(report)["root_cause"]["offset"] == FAILED


def count_errors(text: str) -> int:
    """Returns the number of errors in a stderr; warnings of Kafka clients on a busy machine are none."""
    return sum(line.startswith("tailrace: ") for line in text.splitlines())


def test_undecodable_record_has_no_causes(log: KafkaEventLog, options: tuple[str, ...], run: Run) -> None:
    some = events(FAILING)
    log.append(some[:6])
    log.append_all([b"no event"])
    code, out, err = run("story", "--why", 6, *options)
    assert (code, out, count_errors(err)) == (4, "", 1)
    assert "there is no event at offset 6" in err
    code, _, err = run("story", "--effects", 6, *options)
    assert (code, count_errors(err)) == (4, 1)
    code, _, err = run("story", "--why", 7, *options)
    assert (code, count_errors(err)) == (4, 1)
    assert "its last 6" in err


def test_empty_log_has_no_histories(log: KafkaEventLog, options: tuple[str, ...], run: Run) -> None:
    assert log.end() == 0
    code, out, _ = run("story", *options)
    assert (code, len(out.splitlines())) == (0, 1)
    code, _, err = run("story", "j1", *options)
    assert (code, count_errors(err)) == (4, 1)
    assert "the log has no 'j1'; it has nothing" in err


def test_follow_prints_new_events(log: KafkaEventLog, options: tuple[str, ...]) -> None:
    some = events(FAILING)
    log.append(some[:30])
    command = [sys.executable, "-m", "tailrace.services.cli", "story", "j1", "--follow", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            assert next(lines) == 'job j1 "WindowWordCount"\n'
            log.append(some[30:])
            printed_lines = []
            for line in lines:
                printed_lines.append(line)
                if "Dispatcher -> client test" in line and "FAILED" in line:
                    break
            assert any(line.startswith("!!") and f" {FAILED} " in line for line in printed_lines)
        finally:
            process.terminate()
