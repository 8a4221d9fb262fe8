"""The history of a cluster on real Kafka: exported from one log, imported into another, and every command on both
and on the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from job_statuses import read_statuses
from kafka_topics import Topics
from polling import wait_until
from starlette.testclient import TestClient

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.event import Event
from tailrace.services.cli import main
from tailrace.services.configuration import load_configuration
from tailrace.services.configuration.configuration import Setting
from tailrace.services.history.archive.exporter import entries
from tailrace.services.history.archive.importer import state_hash
from tailrace.services.history.past_logs import LogFinder
from tailrace.services.history.state_diff import StateDifference
from tailrace.services.history.state_index.index import StateIndex
from tailrace.services.history.time_travel import ClusterMoment, state_at
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import delete_topics, ensure_cluster_topics, log_topic
from tailrace.services.rest.application import Settings
from tailrace.services.rest.history_server import HistoryApplication
from tailrace.services.rest.past_clusters import PastClusters

from ..services.history.apply_difference import apply_difference
from ..services.snapshots.simulated_logs import LONG, history

Run = Callable[..., tuple[int, str, str]]
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:")


class Recorded:
    """A cluster's log of some hundred events, with undecodable values."""

    def __init__(self, servers: str, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.options = ("--bootstrap-servers", servers, "--cluster-id", cluster_id)
        self.servers = servers
        self.log = log_of(servers, cluster_id)
        records = history(LONG)
        self.log.append([Event(record.header, record.body) for record in records])
        # Behind the others: events name the offsets of earlier ones.
        self.log.append_all([b"no event", None, b""])
        self.size = len(records) + 3
        self.state_hash = state_hash(self.log)


def log_of(servers: str, cluster_id: str) -> KafkaEventLog:
    """Returns a cluster's log, with its topics."""
    settings = [Setting("bootstrap.servers", servers, "test"), Setting("cluster.id", cluster_id, "test")]
    configuration = load_configuration(settings, ())
    ensure_cluster_topics(create_admin_client(configuration), cluster_id)
    return open_event_log(configuration)


@pytest.fixture(scope="module")
def recorded(kafka: EmbeddedKafka) -> Iterator[Recorded]:
    result = Recorded(kafka.bootstrap_servers, "recorded")
    yield result
    result.log.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns (exit code, stdout, stderr) of a command."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        # Clients of earlier tests in this process still log: the broker of some is gone.
        lines = [line for line in err.splitlines(keepends=True) if not _LOG_LINE.match(line)]
        return code, out, "".join(lines)

    return run


def held(log: KafkaEventLog) -> list[tuple[int, Any]]:
    """Returns all entries of a log."""
    return [
        (entry.offset, getattr(entry, "value", entry))
        for batch in entries(log, 0, log.end())
        for entry in batch
    ]


def test_program_in_java_agrees_with_list(recorded: Recorded, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.avro"
    assert run("log", "export", path, *recorded.options)[0] == 0
    (history,) = read_statuses(path)
    code, out, _ = run("list", "-o", "json", *recorded.options)
    assert code == 0
    listed = {job["job_id"]: job["status"] for job in map(json.loads, out.splitlines())}
    assert {job_id: changes[-1][1] for job_id, changes in history.items()} == listed
    assert len(listed) > 2


def test_log_is_exported_and_imported_into_other_cluster_unchanged(
    recorded: Recorded, cluster_id: str, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "history.avro"
    code, out, _ = run("log", "export", "--to", path, "-o", "json", *recorded.options)
    assert code == 0
    report = json.loads(out)
    assert (report["entries"], report["whole"], report["cluster"]) == (recorded.size, True, "recorded")

    into = ("--bootstrap-servers", recorded.servers, "--cluster-id", cluster_id)
    code, out, _ = run("log", "import", path, "-o", "json", *into)
    assert code == 0
    done = json.loads(out)
    assert (done["entries"], done["written"]) == (recorded.size, recorded.size)
    assert done["state_hash"] == recorded.state_hash
    log = log_of(recorded.servers, cluster_id)
    assert held(log) == held(recorded.log)
    assert state_hash(log) == recorded.state_hash
    log.close()

    code, out, _ = run("log", "import", path, *into)
    assert (code, out.splitlines()[0]) == (
        0,
        f"{log_topic(cluster_id)}: {recorded.size} entries, 0 of them written now",
    )


def test_commands_give_same_output_for_log_and_file(recorded: Recorded, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "history.avro"
    assert run("log", "export", path, *recorded.options)[0] == 0
    _, live, _ = run("log", *recorded.options)
    _, report, _ = run("log", "--file", path)
    assert report == live
    assert len(live.splitlines()) == recorded.size - 3
    _, live, _ = run("log", "--from", 20, "--to", 40, "-o", "json", *recorded.options)
    _, report, _ = run("log", "--from", 20, "--to", 40, "-o", "json", "--file", path)
    assert report == live
    assert [json.loads(line)["offset"] for line in report.splitlines()] == list(range(20, 41))


def test_history_server_answers_alike_from_topic_and_file(
    recorded: Recorded, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "log.avro"
    assert run("log", "export", path, *recorded.options)[0] == 0
    settings = [
        Setting("bootstrap.servers", recorded.servers, "test"),
        Setting("cluster.id", "recorded", "test"),
    ]
    finder = LogFinder([path], clusters=[load_configuration(settings, ())])
    with (
        PastClusters(finder, 1e6) as clusters,
        TestClient(HistoryApplication(clusters, Settings())) as client,
    ):
        for cluster in clusters.all():
            cluster.refresh()
        assert len(clusters.all()) == 2
        for path_of_all in (
            "overview",
            "jobs/overview",
            "taskmanagers",
            f"jobs/overview?at={recorded.size // 2}",
        ):
            answers = [client.get(f"/clusters/{each.name}/v1/{path_of_all}") for each in clusters.all()]
            assert [answer.status_code for answer in answers] == [200, 200]
            assert answers[0].json() == answers[1].json()


def test_interrupted_import_continues(recorded: Recorded, cluster_id: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "history.avro"
    assert run("log", "export", path, *recorded.options)[0] == 0
    log = log_of(recorded.servers, cluster_id)
    log.append([Event(record.header, record.body) for record in history(LONG)[:30]])
    code, out, _ = run(
        "log", "import", path, "--bootstrap-servers", recorded.servers, "--cluster-id", cluster_id
    )
    assert code == 0
    assert f"{recorded.size} entries, {recorded.size - 30} of them written now" in out
    assert state_hash(log) == recorded.state_hash
    log.close()


def test_log_with_other_content_is_left_alone(
    recorded: Recorded, cluster_id: str, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "history.avro"
    assert run("log", "export", path, *recorded.options)[0] == 0
    log = log_of(recorded.servers, cluster_id)
    log.append([Event(record.header, record.body) for record in history(LONG)[1:9]])
    code, _, err = run(
        "log", "import", path, "--bootstrap-servers", recorded.servers, "--cluster-id", cluster_id
    )
    assert (code, err.count("\n")) == (10, 1), err
    assert "has another event at offset 0; import into a cluster id that has no log" in err
    assert log.end() == 8
    log.close()


def test_transaction_marker_is_gap_that_cannot_be_imported(
    recorded: Recorded, cluster_id: str, tmp_path: Path, run: Run
) -> None:
    log = log_of(recorded.servers, cluster_id)
    records = history(LONG)
    log.append([Event(record.header, record.body) for record in records[:3]])
    values = [log.codec.encode(Event(record.header, record.body)) for record in records[3:5]]
    Topics(recorded.servers).write_transaction(log.topic, values, commit=True)
    # Kafka writes the marker when it has told that the transaction is committed.
    wait_until(lambda: log.end() >= 6)
    log.append([Event(record.header, record.body) for record in records[5:9]])
    path = tmp_path / "gap.avro"
    options = ("--bootstrap-servers", recorded.servers, "--cluster-id", cluster_id)
    code, out, _ = run("log", "export", path, "-o", "json", *options)
    assert (code, json.loads(out)["gaps"]) == (0, 1)
    into = ("--bootstrap-servers", recorded.servers, "--cluster-id", f"{cluster_id}x")
    code, _, err = run("log", "import", path, *into)
    assert code == 10
    assert "no entry for offset 5, and the next is 6" in err
    log.close()


def test_position_outside_log_is_rejected(recorded: Recorded, run: Run) -> None:
    for place in (recorded.size, -5):
        code, _, err = run("log", "--from", place, *recorded.options)
        assert (code, err.count("\n")) == (4, 1), err
        assert f"offset {place} is outside recorded.log: its first offset is 0 (" in err
    code, _, err = run("log", "--from", "1969-12-31T00:00", *recorded.options)
    assert (code, err.count("\n")) == (4, 1), err
    assert "is before recorded.log: its first offset is 0 (" in err
    code, _, err = run("log", "--from", "yesterday", *recorded.options)
    assert (code, err.count("\n")) == (2, 1), err


def test_state_at_any_offset_is_the_same_from_marks_of_index(recorded: Recorded, tmp_path: Path) -> None:
    for offset in (recorded.size - 1, 7, recorded.size // 2 + 1, 100, recorded.size - 1):
        index = StateIndex(recorded.log, recorded.cluster_id, directory=tmp_path, interval=40)
        assert state_at(recorded.log, offset, index=index) == state_at(recorded.log, offset)


def test_moments_are_printed_compared_and_explored(recorded: Recorded, run: Run) -> None:
    first, last = 60, recorded.size - 5
    moments = []
    for offset in (first, last):
        code, report, why = run("state", "--at", offset, "-o", "json", *recorded.options)
        assert code == 0, why
        moments.append(msgspec.json.decode(report, type=ClusterMoment))
        assert moments[-1] == state_at(recorded.log, offset)
    _, report, _ = run("diff", "--from", first, "--to", last, "-o", "json", *recorded.options)
    assert apply_difference(msgspec.json.decode(report, type=StateDifference), moments[0]) == moments[1]
    code, report, _ = run(
        "shell", "--at", first, "-c", f"cat offset; at {last}; cat state_hash", *recorded.options
    )
    assert (code, report.split()[0], report.split()[-1]) == (0, str(first), moments[1].state_hash)


def test_index_of_deleted_topic_is_not_used_for_recreated_one(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Ids of events are derived: both logs begin with the same event."""
    some = [Event(record.header, record.body) for record in history(LONG)]
    for events in (some, [*some[:30], *some[31:]]):
        log = log_of(kafka.bootstrap_servers, "again")
        log.append(events)
        index = StateIndex(log, "again", directory=tmp_path, interval=20)
        assert state_at(log, index=index) == state_at(log)
        log.close()
        settings = [Setting("bootstrap.servers", kafka.bootstrap_servers, "test")]
        delete_topics(create_admin_client(load_configuration(settings, ())), [log_topic("again")])
