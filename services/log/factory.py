"""Creates the log, its codec and Kafka clients from a process's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from ...pipelines.graph.registry_credentials import read_credentials
from ..configuration import Configuration
from ..configuration.errors import ConfigurationError
from ..configuration.options.cluster import SCHEMA_REGISTRY_CREDENTIALS_FILE, SKIPPED_OFFSETS
from . import Codec
from .clients import client_configuration
from .kafka import KafkaEventLog
from .schema_ids import SchemaIds
from .topics import log_topic

_REGISTRY_TIMEOUT_S = 5.0

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient


def schema_registry_client(configuration: Configuration) -> SchemaRegistryClient | None:
    """The schema registry, if one is configured; `mock://` is one in memory, for tests.

    Raises ConfigurationError where the file with its credentials cannot be read.
    """
    url = configuration.schema_registry_url
    if not url:
        return None
    try:
        credentials = read_credentials(configuration.get(SCHEMA_REGISTRY_CREDENTIALS_FILE), url)
    except ValueError as error:
        raise ConfigurationError([f"{SCHEMA_REGISTRY_CREDENTIALS_FILE.key}: {error}"]) from None
    from confluent_kafka.schema_registry import SchemaRegistryClient

    with_credentials = {} if credentials is None else {"basic.auth.user.info": credentials}
    # One that accepts connections and does not answer is not waited for without end.
    patience = {"timeout": _REGISTRY_TIMEOUT_S, "max.retries": 1}
    return SchemaRegistryClient.new_client({"url": url, **patience, **with_credentials})


def create_codec(configuration: Configuration, topic: str) -> Codec:
    """What events of a topic are written and read by. Raises ConfigurationError as `registry`."""
    url = configuration.schema_registry_url
    # Each process has a registry in memory of its own.
    ids = SchemaIds(url, None if not url or url.startswith("mock:") else configuration.home.absolute())
    return Codec(topic, schema_registry_client(configuration), ids=ids)


def open_event_log(configuration: Configuration, *, timeout: float = 30.0) -> KafkaEventLog:
    """The cluster's log. Raises LogUnavailable when it is first used, not here."""
    topic = log_topic(configuration.cluster_id)
    return KafkaEventLog(
        configuration.bootstrap_servers,
        topic,
        create_codec(configuration, topic),
        timeout=timeout,
        skipped=[int(each) for each in configuration.get(SKIPPED_OFFSETS).split(",") if each],
    )


def create_admin_client(configuration: Configuration) -> AdminClient:
    """For creating and deleting topics."""
    return AdminClient(client_configuration(configuration.bootstrap_servers))
