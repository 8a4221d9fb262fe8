"""A secured broker takes its users, by each mechanism, and refuses all others."""

from __future__ import annotations

import socket
import ssl
import uuid

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from secured_kafka import PLAIN_USER, SCRAM, SecuredKafka

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.infra.kafka_release import read_supported_level
from tailrace.services.log.topics import create_topics


def topics(connection: KafkaConnection) -> set[str]:
    return set(AdminClient({**connection.to_librdkafka(), "log_level": 0}).list_topics(timeout=90).topics)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_user_of_scram_sees_what_it_is_allowed(secured: SecuredKafka, mechanism: str) -> None:
    topic = f"t{uuid.uuid4().hex[:8]}"
    create_topics(secured.admin, [NewTopic(topic, 1)])
    connection = secured.add_user(f"u{uuid.uuid4().hex[:8]}", mechanism)
    assert topic not in topics(connection)
    secured.allow_all(connection.properties["sasl.username"])
    assert topic in topics(connection)


def test_user_of_plain_may_do_nothing_without_acl(secured: SecuredKafka) -> None:
    admin = AdminClient({**secured.connection(PLAIN_USER, "PLAIN").to_librdkafka(), "log_level": 0})
    (created,) = admin.create_topics([NewTopic("forbidden", 1)]).values()
    with pytest.raises(KafkaException) as refused:
        created.result(10)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_release_is_told_to_anybody(secured: SecuredKafka) -> None:
    """The request precedes authentication: TLS is enough."""
    assert read_supported_level(secured.connection("nobody"), secured.bootstrap_servers) == 29


def test_controller_takes_no_client(secured: SecuredKafka) -> None:
    properties = (secured.kafka.data_dir / "server.properties").read_text()
    controller = next(part for part in properties.split() if "CONTROLLER://" in part).rpartition(":")[2]
    context = ssl.create_default_context(cafile=str(secured.authority.ca))
    with socket.create_connection(("127.0.0.1", int(controller)), 10) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            with pytest.raises(ssl.SSLError, match="alert"):
                connection.recv(1)
