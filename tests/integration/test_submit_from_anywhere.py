"""A client in another language submits a job as docs/submit-from-anywhere.md describes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from java_programs import run_java

from tailrace.infra.jars import kafka_classpath, pyspark_jars_dir
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas.body import Body
from tailrace.schemas.client import JobAccepted
from tailrace.schemas.dispatcher import SubmitJob
from tailrace.schemas.event import Event
from tailrace.schemas.types import EntryPoint
from tailrace.services.log.cluster_topics import create_cluster_topics
from tailrace.services.log.codec import Codec
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import log_topic, submissions_topic

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "submit-from-anywhere.md"
PROGRAM = ROOT / "examples" / "submit-from-java" / "SubmitWordCount.java"


@pytest.fixture
def submissions(kafka: EmbeddedKafka, cluster_id: str) -> str:
    """Returns the submissions topic of a cluster that does not run."""
    servers = kafka.bootstrap_servers
    create_cluster_topics(AdminClient({"bootstrap.servers": servers}), KafkaConnection(servers), cluster_id)
    return submissions_topic(cluster_id)


@contextmanager
def jobmanager(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[None]:
    command = [sys.executable, "-m", "tailrace.services.cli", "jobmanager"]
    where = ["--bootstrap-servers", kafka.bootstrap_servers, "--cluster-id", cluster_id]
    with subprocess.Popen([*command, *where]) as process:
        try:
            yield
        finally:
            process.kill()


def first_answer(kafka: EmbeddedKafka, cluster_id: str) -> Body:
    """Returns the first answer to a client in the log."""
    topic = log_topic(cluster_id)
    log = KafkaEventLog(kafka.connection, topic, Codec(topic))
    tail = log.tail(0)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for record in tail.poll(1):
                if record.header.recipient.startswith("client/"):
                    return record.body
    finally:
        tail.close()
        log.close()
    raise AssertionError("the jobmanager said nothing to the client")


def only_event(kafka: EmbeddedKafka, topic: str) -> Event:
    """Returns the only event of a topic, decoded as the services decode it."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        (message,) = consumer.consume(1, timeout=90)
        assert message.error() is None
        assert consumer.consume(1, timeout=0.5) == []
        return Codec(topic).decode(message.value())
    finally:
        consumer.close()


def test_java_program_submits_job_and_reads_answer(
    kafka: EmbeddedKafka, cluster_id: str, submissions: str
) -> None:
    classpath = [*kafka_classpath(), *pyspark_jars_dir().glob("avro-1*.jar")]
    before = time.time_ns() // 1000
    where = (kafka.bootstrap_servers, cluster_id, "127.0.0.1", "9999", str(ROOT / "schemas"))
    with jobmanager(kafka, cluster_id):
        printed = run_java(PROGRAM, classpath, *where)
    event = only_event(kafka, submissions)
    assert isinstance(event.body, SubmitJob)
    assert event.body == SubmitJob(
        job_id=printed.strip(),
        entry_point=EntryPoint(
            target="tailrace.pipelines.examples.window_word_count:main",
            arguments=("--hostname", "127.0.0.1", "--port", "9999"),
        ),
    )
    assert event.header.sender.startswith("client/java-example-")
    assert before <= event.header.time <= time.time_ns() // 1000
    assert event.body.entry_point is not None
    assert first_answer(kafka, cluster_id) == JobAccepted(job_id=event.body.job_id, name="WindowWordCount")


def test_python_program_of_document_submits_same_job(
    kafka: EmbeddedKafka, cluster_id: str, submissions: str, tmp_path: Path
) -> None:
    """The document's prepared file, sent unchanged."""
    (script,) = [block for block in code_blocks("python") if "submit.avro" in block]
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    prepared = tmp_path / "submit.avro"
    if kcat := shutil.which("kcat"):
        subprocess.run(
            [kcat, "-P", "-b", kafka.bootstrap_servers, "-t", submissions, str(prepared)],
            check=True,
            timeout=60,
        )
    else:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce(submissions, prepared.read_bytes())
        assert producer.flush(30) == 0
    event = only_event(kafka, submissions)
    assert isinstance(event.body, SubmitJob)
    assert event.body.entry_point is not None
    assert event.body.entry_point.target == "tailrace.pipelines.examples.window_word_count:main"


def code_blocks(language: str) -> list[str]:
    """Returns the document's code in a language."""
    parts = DOCUMENT.read_text("utf-8").split(f"```{language}\n")[1:]
    return [part.split("```", 1)[0] for part in parts]
