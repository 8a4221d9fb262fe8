"""Opens the cluster's log, codec and admin client from the configuration."""

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
    """Returns the client of the configured schema registry, if any; `mock://` is a registry in memory, for tests.

    Raises ConfigurationError if its credentials file cannot be read.
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
    # Do not wait for ever for a registry that accepts connections and does not answer.
    patience = {"timeout": _REGISTRY_TIMEOUT_S, "max.retries": 1}
    return SchemaRegistryClient.new_client({"url": url, **patience, **with_credentials})


def create_codec(configuration: Configuration, topic: str, *, resolves_unknown: bool = True) -> Codec:
    """Returns the codec for a topic; `resolves_unknown` as in Codec. Raises like `schema_registry_client`."""
    url = configuration.schema_registry_url
    # Each process has its own registry in memory.
    ids = SchemaIds(url, None if not url or url.startswith("mock:") else configuration.home.absolute())
    return Codec(topic, schema_registry_client(configuration), ids=ids, resolves_unknown=resolves_unknown)


def open_event_log(
    configuration: Configuration, *, timeout_s: float = 30.0, appends: bool = False
) -> KafkaEventLog:
    """Opens the cluster's log. It raises LogUnavailable on first use, not here.

    `appends`: the process will append events: its first one is not to wait for the producer's id.
    """
    topic = log_topic(configuration.cluster_id)
    return KafkaEventLog(
        configuration.kafka,
        topic,
        create_codec(configuration, topic, resolves_unknown=False),
        timeout_s=timeout_s,
        skipped=skipped_offsets(configuration),
        appends=appends,
    )


def skipped_offsets(configuration: Configuration) -> list[int]:
    """Returns the offsets of records that every reader of the log skips."""
    return [int(offset) for offset in configuration.get(SKIPPED_OFFSETS).split(",") if offset]


def create_admin_client(configuration: Configuration) -> AdminClient:
    """Returns a client to create and delete topics."""
    return AdminClient(client_configuration(configuration.kafka))
