"""The history of a cluster on real Kafka: out of one log, into another, and every command on both and on the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka_topics import Topics
from polling import TIMEOUT_S, wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.dispatcher import SubmitJob
from tailrace.schemas.event import Event
from tailrace.schemas.types import Origin
from tailrace.services.cli import main
from tailrace.services.configuration import load_configuration
from tailrace.services.configuration.configuration import Setting
from tailrace.services.history.archive.exporter import entries
from tailrace.services.history.archive.importer import state_hash
from tailrace.services.history.state_diff import StateDifference, apply_difference
from tailrace.services.history.state_index.index import StateIndex
from tailrace.services.history.time_travel import ClusterMoment, state_at
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import delete_topics, ensure_cluster_topics, log_topic, submissions_topic

from ..services.snapshots.simulated_logs import LONG, history

FORMATS = ("avro", "jsonl", "parquet")
Run = Callable[..., tuple[int, str, str]]


class Recorded:
    """A cluster's log: a conversation of some hundred events, and values that are none."""

    def __init__(self, servers: str, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.options = ("--bootstrap-servers", servers, "--cluster-id", cluster_id)
        self.servers = servers
        self.log = log_of(servers, cluster_id)
        records = history(LONG)
        middle = len(records) // 2
        self.log.append([Event(each.header, each.body) for each in records[:middle]])
        self.log.append_all([b"no event", None, b""])
        self.log.append([Event(each.header, each.body) for each in records[middle:]])
        self.size = len(records) + 3
        self.state_hash = state_hash(self.log)


def log_of(servers: str, cluster_id: str) -> KafkaEventLog:
    """A cluster's log, with its topics."""
    settings = [Setting("bootstrap.servers", servers, "test"), Setting("cluster.id", cluster_id, "test")]
    configuration = load_configuration(settings, ())
    ensure_cluster_topics(create_admin_client(configuration), cluster_id)
    return open_event_log(configuration)


@pytest.fixture(scope="module")
def recorded(kafka: EmbeddedKafka) -> Iterator[Recorded]:
    found = Recorded(kafka.bootstrap_servers, "recorded")
    yield found
    found.log.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """(exit code, stdout, stderr) of a command."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(each) for each in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


def held(log: KafkaEventLog) -> list[tuple[int, Any]]:
    """Everything that lies in a log."""
    return [
        (each.offset, getattr(each, "value", each)) for batch in entries(log, 0, log.end()) for each in batch
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_log_goes_into_a_file_and_into_another_cluster_as_it_was(
    kind: str, recorded: Recorded, cluster_id: str, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / f"history.{kind}"
    code, out, _ = run("log", "export", "--to", path, "-o", "json", *recorded.options)
    assert code == 0
    told = json.loads(out)
    assert (told["entries"], told["whole"], told["cluster"]) == (recorded.size, True, "recorded")

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


def test_what_a_log_tells_its_file_tells(recorded: Recorded, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "history.avro"
    assert run("log", "export", path, *recorded.options)[0] == 0
    _, live, _ = run("log", *recorded.options)
    _, told, _ = run("log", "--file", path)
    assert told == live
    assert len(live.splitlines()) == recorded.size - 3
    _, live, _ = run("log", "--from", 20, "--to", 40, "-o", "json", *recorded.options)
    _, told, _ = run("log", "--from", 20, "--to", 40, "-o", "json", "--file", path)
    assert told == live
    assert [json.loads(line)["offset"] for line in told.splitlines()] == list(range(20, 41))


def test_an_import_that_was_interrupted_goes_on(
    recorded: Recorded, cluster_id: str, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "history.avro"
    assert run("log", "export", path, *recorded.options)[0] == 0
    log = log_of(recorded.servers, cluster_id)
    log.append([Event(each.header, each.body) for each in history(LONG)[:30]])
    code, out, _ = run(
        "log", "import", path, "--bootstrap-servers", recorded.servers, "--cluster-id", cluster_id
    )
    assert code == 0
    assert f"{recorded.size} entries, {recorded.size - 30} of them written now" in out
    assert state_hash(log) == recorded.state_hash
    log.close()


def test_submissions_come_behind_those_that_an_imported_log_has_admitted(
    recorded: Recorded, cluster_id: str, tmp_path: Path, run: Run
) -> None:
    source, topic = log_of(recorded.servers, f"{cluster_id}-source"), submissions_topic(cluster_id)
    requests = [Event(each.header, each.body) for each in history(LONG) if isinstance(each.body, SubmitJob)]
    source.append([with_origin(requests[0], 1, 6), with_origin(requests[1], 0, 2)])
    source.close()
    path = tmp_path / "history.avro"
    options = ("--bootstrap-servers", recorded.servers, "--cluster-id", f"{cluster_id}-source")
    assert run("log", "export", path, *options)[0] == 0

    into = ("--bootstrap-servers", recorded.servers, "--cluster-id", cluster_id)
    code, out, _ = run("log", "import", path, *into)
    assert code == 0
    assert out.splitlines()[2] == (
        f"{topic}: filled with 10 records, up to the last admitted submission of the log"
    )
    assert ends(recorded.servers, topic) == {0: 3, 1: 7}
    code, out, _ = run("log", "import", path, "-o", "json", *into)
    assert json.loads(out)["submissions_filled"] == 0
    assert ends(recorded.servers, topic) == {0: 3, 1: 7}


def with_origin(event: Event, partition: int, offset: int) -> Event:
    return Event(
        msgspec.structs.replace(
            event.header, origin=Origin(topic="from", partition=partition, offset=offset)
        ),
        event.body,
    )


def ends(servers: str, topic: str) -> dict[int, int]:
    """Partition -> the offset that comes next."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "looks"})
    try:
        partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        return {
            each: consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=TIMEOUT_S)[1]
            for each in partitions
        }
    finally:
        consumer.close()


def test_a_log_that_holds_anything_else_is_left_alone(
    recorded: Recorded, cluster_id: str, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "history.avro"
    assert run("log", "export", path, *recorded.options)[0] == 0
    log = log_of(recorded.servers, cluster_id)
    log.append([Event(each.header, each.body) for each in history(LONG)[1:9]])
    code, _, err = run(
        "log", "import", path, "--bootstrap-servers", recorded.servers, "--cluster-id", cluster_id
    )
    assert (code, err.count("\n")) == (10, 1)
    assert "holds another event at offset 0; import into a cluster id that has no log" in err
    assert log.end() == 8
    log.close()


def test_a_transactions_marker_is_a_gap_that_can_not_be_imported(
    recorded: Recorded, cluster_id: str, tmp_path: Path, run: Run
) -> None:
    log = log_of(recorded.servers, cluster_id)
    records = history(LONG)
    log.append([Event(each.header, each.body) for each in records[:3]])
    values = [log.codec.encode(Event(each.header, each.body)) for each in records[3:5]]
    Topics(recorded.servers).write_transaction(log.topic, values, commit=True)
    # Kafka writes the marker when it has told that the transaction is committed.
    wait_until(lambda: log.end() >= 6)
    log.append([Event(each.header, each.body) for each in records[5:9]])
    path = tmp_path / "gap.avro"
    options = ("--bootstrap-servers", recorded.servers, "--cluster-id", cluster_id)
    code, out, _ = run("log", "export", path, "-o", "json", *options)
    assert (code, json.loads(out)["gaps"]) == (0, 1)
    into = ("--bootstrap-servers", recorded.servers, "--cluster-id", f"{cluster_id}x")
    code, _, err = run("log", "import", path, *into)
    assert code == 10
    assert "no entry for offset 5, and the next is 6" in err
    log.close()


def test_places_outside_the_log_are_told(recorded: Recorded, run: Run) -> None:
    for place in (recorded.size, -5):
        code, _, err = run("log", "--from", place, *recorded.options)
        assert (code, err.count("\n")) == (4, 1)
        assert f"offset {place} is outside recorded.log: its first offset is 0 (" in err
    code, _, err = run("log", "--from", "1969-12-31T00:00", *recorded.options)
    assert (code, err.count("\n")) == (4, 1)
    assert "is before recorded.log: its first offset is 0 (" in err
    code, _, err = run("log", "--from", "yesterday", *recorded.options)
    assert (code, err.count("\n")) == (2, 1)


def test_the_state_at_any_offset_is_the_same_from_marks_of_an_index(
    recorded: Recorded, tmp_path: Path
) -> None:
    for offset in (recorded.size - 1, 7, recorded.size // 2 + 1, 100, recorded.size - 1):
        index = StateIndex(recorded.log, recorded.cluster_id, directory=tmp_path, interval=40)
        assert state_at(recorded.log, offset, index=index) == state_at(recorded.log, offset)
        index.close()


def test_moments_are_printed_compared_and_looked_around_in(recorded: Recorded, run: Run) -> None:
    first, last = 60, recorded.size - 5
    moments = []
    for offset in (first, last):
        code, told, why = run("state", "--at", offset, "-o", "json", *recorded.options)
        assert code == 0, why
        moments.append(msgspec.json.decode(told, type=ClusterMoment))
        assert moments[-1] == state_at(recorded.log, offset)
    _, told, _ = run("diff", "--from", first, "--to", last, "-o", "json", *recorded.options)
    assert apply_difference(msgspec.json.decode(told, type=StateDifference), moments[0]) == moments[1]
    code, told, _ = run(
        "shell", "--at", first, "-c", f"cat offset; at {last}; cat state_hash", *recorded.options
    )
    assert (code, told.split()[0], told.split()[-1]) == (0, str(first), moments[1].state_hash)


def test_the_index_of_a_topic_that_was_deleted_and_made_anew_is_not_taken_for_the_new_ones(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Ids of events are derived: both logs begin with the same event."""
    some = [Event(each.header, each.body) for each in history(LONG)]
    for told in (some, [*some[:30], *some[31:]]):
        log = log_of(kafka.bootstrap_servers, "again")
        log.append(told)
        index = StateIndex(log, "again", directory=tmp_path, interval=20)
        assert state_at(log, index=index) == state_at(log)
        index.close()
        log.close()
        settings = [Setting("bootstrap.servers", kafka.bootstrap_servers, "test")]
        delete_topics(create_admin_client(load_configuration(settings, ())), [log_topic("again")])
