"""Kafka Connect's FileStreamSink reads the output of jobs: the JSON of committed records and nothing else, and Avro by
a registry."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from polling import TIMEOUT_S, wait_until
from registry_server import RegistryServer

from tailrace.infra.jars import resolve
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.prerequisites import find_java
from tailrace.infra.processes import OwnedProcess
from tailrace.infra.versions import APICURIO_CONVERTER_JARS, KAFKA_CONNECT_JARS
from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.pipelines.runtime.formats import ValueFormat, create_writer
from tailrace.pipelines.runtime.formats.format import FormatKind
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.types import RecordType
from tailrace.services.log.topics import create_topics

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


def write_properties(path: Path, values: dict[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


def run_file_sink(
    kafka: EmbeddedKafka,
    topic: str,
    count: int,
    converter: Mapping[str, str],
    directory: Path,
    jars: Sequence[Path] = (),
) -> list[str]:
    """Returns the lines that the sink has written when there are `count`. `jars`: those of the converter."""
    file = directory / "sink.txt"
    worker = write_properties(
        directory / "worker.properties",
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            **converter,
            "consumer.isolation.level": "read_committed",
            "offset.storage.file.filename": str(directory / "offsets"),
            "offset.flush.interval.ms": "500",
            "listeners": "http://127.0.0.1:0",
            "plugin.discovery": "only_scan",
        },
    )
    sink = write_properties(
        directory / "sink.properties",
        {
            "name": "sink",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "topics": topic,
            "file": str(file),
        },
    )
    classpath = os.pathsep.join(map(str, [*resolve(KAFKA_CONNECT_JARS), *jars]))
    command = [find_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classpath]
    command += ["org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(sink)]
    log = directory / "connect.log"
    connect = OwnedProcess(command, log=log, cwd=directory)
    try:
        wait_until(lambda: file.exists() and len(file.read_text().splitlines()) == count)
    except AssertionError:
        raise AssertionError(log.read_text()[-3000:]) from None
    finally:
        connect.kill()
    return file.read_text().splitlines()


def test_file_sink_of_connect_reads_committed_output(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path
) -> None:
    topic = output_topic(cluster_id, "j")
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
    converter = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    lines = run_file_sink(kafka, topic, 2, converter, tmp_path)
    # The sink writes a structure as Java prints a map.
    assert lines == ["{record=one, text=one}", "{record=two, text=two}"]


class Count(NamedTuple):
    word: str
    count: int


def test_file_sink_of_connect_reads_avro_by_registry(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path
) -> None:
    """What a KafkaSink with a registry writes, read by the converter of another vendor."""
    topic = f"{cluster_id}-counts"
    create_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), [NewTopic(topic, 1)])
    with RegistryServer() as registry:
        writer = create_writer(
            ValueFormat(FormatKind.AVRO, registry=registry.url), RecordType.of(Count), topic
        )
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for value in writer.write(Batch([0, 0], [Count("be", 2), Count("not", 1)])):
            producer.produce(topic, value, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        converter = {
            "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
            "value.converter.apicurio.registry.url": f"{registry.url}/apis/registry/v2",
            "value.converter.apicurio.registry.as-confluent": "true",
            "value.converter.apicurio.registry.use-id": "contentId",
        }
        lines = run_file_sink(kafka, topic, 2, converter, tmp_path, resolve(APICURIO_CONVERTER_JARS))
    assert lines == ["Struct{word=be,count=2}", "Struct{word=not,count=1}"]
