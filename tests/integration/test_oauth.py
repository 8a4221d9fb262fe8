"""OAUTHBEARER with a token server: both Kafka clients log in and renew tokens; a wrong secret is named at once."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from polling import TIMEOUT_S, wait_until
from runtime_jobs import Job
from secured_kafka import SecuredKafka

from tailrace import StreamExecutionEnvironment
from tailrace.infra.kafka_check import KafkaRefusal, KafkaUnreachable, check_connection
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.api import Formats, KafkaSink, KafkaSource
from tailrace.schemas.types import JobGraph
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.log.topics import create_topics

from .test_cluster import Cluster

pytestmark = pytest.mark.timeout(300)
SHORT_S = 20


def new_client(secured: SecuredKafka, lifetime_s: int = 3600) -> tuple[str, KafkaConnection]:
    """Returns a client's name, and how it connects; it is allowed everything."""
    name = f"c{uuid.uuid4().hex[:8]}"
    connection = secured.add_oauth_client(name, lifetime_s)
    secured.allow_all(name)
    return name, connection


def new_topic(secured: SecuredKafka) -> str:
    topic = f"t{uuid.uuid4().hex[:8]}"
    create_topics(secured.admin, [NewTopic(topic, 1)])
    return topic


def home_of(connection: KafkaConnection, directory: Path) -> Path:
    """Writes the tailrace.yaml of a cluster that nobody has started."""
    lines = [f"cluster.id: {directory.name}", f"bootstrap.servers: {connection.bootstrap_servers}"]
    lines += [f"kafka.{name}: {value}" for name, value in connection.properties.items()]
    (directory / "home").mkdir()
    (directory / "home" / "tailrace.yaml").write_text("\n".join(lines) + "\n")
    return directory / "home"


def written_with_wrong_secret(connection: KafkaConnection, directory: Path) -> KafkaConnection:
    path = directory / "wrong"
    path.write_text("hidden-wrong\n")
    properties = {**connection.properties, "sasl.oauthbearer.client.secret-file": str(path)}
    return KafkaConnection(connection.bootstrap_servers, properties)


def values(connection: KafkaConnection, topic: str, count: int) -> list[bytes]:
    """Returns the first committed values of a topic."""
    own = {"group.id": f"g{uuid.uuid4().hex[:8]}", "isolation.level": "read_committed"}
    consumer = Consumer({**connection.to_librdkafka(), **own})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    consumer.close()
    return found


def test_clients_of_control_plane_renew_their_tokens(secured: SecuredKafka) -> None:
    name, connection = new_client(secured, SHORT_S)
    topic = new_topic(secured)
    check_connection(connection, TIMEOUT_S)
    issued = secured.tokens.expiries[name]
    producer = Producer(connection.to_librdkafka())
    admin = AdminClient(connection.to_librdkafka())
    producer.produce(topic, b"before")
    assert producer.flush(TIMEOUT_S) == 0
    assert topic in admin.list_topics(timeout=TIMEOUT_S).topics
    first = max(issued)
    wait_until(lambda: time.time() > first + 1, "the end of the first tokens")
    producer.produce(topic, b"after")
    assert producer.flush(TIMEOUT_S) == 0
    assert topic in admin.list_topics(timeout=TIMEOUT_S).topics
    assert max(issued) > first
    assert values(connection, topic, 2) == [b"before", b"after"]


@pytest.mark.soak
def test_tasks_read_and_write_with_tokens_that_expire(
    secured: SecuredKafka, start: Callable[[JobGraph], Job]
) -> None:
    """Spark's Java client reads, a StreamTask's librdkafka writes. `make test` renews tokens of the control plane."""
    reader, reads = new_client(secured, SHORT_S)
    writer, writes = new_client(secured, SHORT_S)
    source, sink = new_topic(secured), new_topic(secured)
    producer = Producer(secured.kafka.connection.to_librdkafka())
    env = StreamExecutionEnvironment()
    lines = env.from_source(
        KafkaSource(
            source, Formats.text(), bootstrap_servers=reads.bootstrap_servers, properties=reads.properties
        )
    )
    lines.map(str.upper, output_type=str).sink_to(
        KafkaSink(
            sink, Formats.text(), bootstrap_servers=writes.bootstrap_servers, properties=writes.properties
        )
    )
    producer.produce(source, b"before")
    assert producer.flush(TIMEOUT_S) == 0
    start(env.get_job_graph("oauth")).deploy_all()
    assert values(secured.kafka.connection, sink, 1) == [b"BEFORE"]
    issued = [secured.tokens.expiries[name] for name in (reader, writer)]
    first = max(expiry for expiries in issued for expiry in expiries)
    wait_until(lambda: time.time() > first + 1, "the end of the first tokens")
    producer.produce(source, b"after")
    assert producer.flush(TIMEOUT_S) == 0
    assert values(secured.kafka.connection, sink, 2) == [b"BEFORE", b"AFTER"]
    assert all(max(expiries) > first for expiries in issued)


def test_tools_of_kafka_log_in_with_token(secured: SecuredKafka, tmp_path: Path) -> None:
    name, connection = new_client(secured)
    topic = new_topic(secured)
    cluster = Cluster(home_of(connection, tmp_path))
    assert topic in cluster.ok("kafka-tools", "topics", "--list").stdout.splitlines()
    assert secured.tokens.expiries[name]


def test_wrong_client_secret_is_one_line_without_secret(secured: SecuredKafka, tmp_path: Path) -> None:
    name, connection = new_client(secured)
    wrong = written_with_wrong_secret(connection, tmp_path)
    with pytest.raises(KafkaRefusal) as caught:
        check_connection(wrong, TIMEOUT_S)
    line = f"does not give User:{name} a token: is the secret in {tmp_path}/wrong"
    assert line in str(caught.value)
    assert '"error": "invalid_client"' in str(caught.value)
    failed = Cluster(home_of(wrong, tmp_path)).run("list")
    assert failed.returncode == ExitCode.UNREACHABLE
    assert failed.stderr.count("\n") == 1
    assert line in failed.stderr
    assert "hidden-" not in failed.stderr + str(caught.value)


def test_token_server_that_is_down_may_come_back(secured: SecuredKafka) -> None:
    _, connection = new_client(secured)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else will
        url = f"https://127.0.0.1:{bound.getsockname()[1]}/token"
        properties = {**connection.properties, "sasl.oauthbearer.token.endpoint.url": url}
        with pytest.raises(KafkaUnreachable, match=f"the token server {url} gives .* no token for Kafka"):
            check_connection(KafkaConnection(connection.bootstrap_servers, properties), TIMEOUT_S)


def test_client_secret_is_in_no_output(secured: SecuredKafka, tmp_path: Path) -> None:
    _, connection = new_client(secured)
    cluster = Cluster(home_of(connection, tmp_path))
    shown = cluster.ok("config", "-o", "json").stdout
    assert "hidden-" not in shown
    assert connection.properties["sasl.oauthbearer.client.secret-file"] in shown
    refused = cluster.run("jobmanager", "-D", "kafka.sasl.oauthbearer.client.secret=hidden-value")
    assert refused.returncode == ExitCode.USAGE
    assert "set kafka.sasl.oauthbearer.client.secret-file to the path of the file" in refused.stderr
    assert "hidden-value" not in refused.stderr + refused.stdout
