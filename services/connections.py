"""How a process gets at the cluster's log and topics, as its configuration says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from .configuration import Configuration
from .log import Codec
from .log.clients import client
from .log.kafka import KafkaEventLog
from .log.topics import log_topic

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient


def registry(configuration: Configuration) -> SchemaRegistryClient | None:
    """The schema registry, if one is configured; `mock://` is one in memory, for tests."""
    url = configuration.schema_registry_url
    if not url:
        return None
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient.new_client({"url": url})


def event_log(configuration: Configuration, *, timeout: float = 30.0) -> KafkaEventLog:
    """The cluster's log. Raises LogUnavailable when it is first used, not here."""
    topic = log_topic(configuration.cluster_id)
    return KafkaEventLog(
        configuration.bootstrap_servers, topic, Codec(topic, registry(configuration)), timeout=timeout
    )


def admin(configuration: Configuration) -> AdminClient:
    """For creating and deleting topics."""
    return AdminClient(client(configuration.bootstrap_servers))
