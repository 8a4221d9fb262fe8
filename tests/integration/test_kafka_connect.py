"""Kafka Connect's FileStreamSink reads the output of a job: the JSON of committed records, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from polling import TIMEOUT_S, wait_until

from tailrace.infra.jars import resolve
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.prerequisites import find_java
from tailrace.infra.processes import OwnedProcess
from tailrace.infra.versions import KAFKA_CONNECT_JARS
from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.services.log.topics import create_topics

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


def write_properties(path: Path, values: dict[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


def test_file_sink_of_connect_reads_committed_output(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path
) -> None:
    topic, file = output_topic(cluster_id, "j"), tmp_path / "sink.txt"
    create_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), [NewTopic(topic, 1)])
    output = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{cluster_id}.j.v.0"}
    )
    output.init_transactions(TIMEOUT_S)
    for text, end in (
        ("one", output.commit_transaction),
        ("aborted", output.abort_transaction),
        ("two", output.commit_transaction),
    ):
        output.begin_transaction()
        output.produce(topic, json.dumps({"text": text, "record": text}).encode(), partition=0)
        output.flush(TIMEOUT_S)
        end(TIMEOUT_S)
    worker = write_properties(
        tmp_path / "worker.properties",
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "consumer.isolation.level": "read_committed",
            "offset.storage.file.filename": str(tmp_path / "offsets"),
            "offset.flush.interval.ms": "500",
            "listeners": "http://127.0.0.1:0",
            "plugin.discovery": "only_scan",
        },
    )
    sink = write_properties(
        tmp_path / "sink.properties",
        {
            "name": "sink",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "topics": topic,
            "file": str(file),
        },
    )
    classpath = os.pathsep.join(map(str, resolve(KAFKA_CONNECT_JARS)))
    command = [find_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classpath]
    command += ["org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(sink)]
    log = tmp_path / "connect.log"
    connect = OwnedProcess(command, log=log, cwd=tmp_path)
    try:
        wait_until(lambda: file.exists() and len(file.read_text().splitlines()) == 2)
    except AssertionError:
        raise AssertionError(log.read_text()[-3000:]) from None
    finally:
        connect.kill()
    # The sink writes a structure as Java prints a map.
    assert file.read_text().splitlines() == ["{record=one, text=one}", "{record=two, text=two}"]
