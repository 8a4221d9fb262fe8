"""Assembles the relay of a jobmanager, and the log of a TaskExecutor that reads by it."""

from __future__ import annotations

import resource

from ...infra.logging_setup import logger
from ..blobs.shared_secret_auth import SharedSecret
from ..blobs.tls import client_tls, server_tls
from ..configuration import Configuration, ConfigurationError
from ..configuration.options.blob import BLOB_SECRET_FILE, BLOB_TLS
from ..configuration.options.relay import RELAY_ENABLED, RELAY_HOST, RELAY_MEMORY, RELAY_PORT
from ..core.replica import Replica
from ..log import EventLog, LogUnavailable
from ..log.factory import create_admin_client
from ..log.kafka import KafkaEventLog
from ..log.topics import describe_topics, log_topic
from ..relay.connection import RelayConnection, RelayLost
from ..relay.protocol import ENDPOINT, LogName
from ..relay.relayed_log import RelayedEventLog
from ..relay.server import RelayLimits, RelayServer
from ..relay.tail import RelayTimeouts
from .leader_endpoints import LeaderEndpoint

_log = logger(__name__)
_MOST_FILES = 1 << 16


def create_relay(configuration: Configuration, log: KafkaEventLog) -> RelayServer | None:
    """Returns the relay of a jobmanager, already listening; None without one (`_has_relay`), or if Kafka gives topics
    no ids.

    Raises ConfigurationError if its address is not available, LogUnavailable.
    """
    name = find_log_name(configuration) if _has_relay(configuration) else None
    if name is None:
        return None
    host, ports = configuration.get(RELAY_HOST), configuration.get(RELAY_PORT)
    limits = RelayLimits(allow_files() // 2, configuration.get(RELAY_MEMORY))
    secret = SharedSecret.from_configuration(configuration)
    try:
        return RelayServer(
            log, name, host=host, ports=ports, limits=limits, secret=secret, tls=server_tls(configuration)
        )
    except OSError as error:
        where = f"no relay can be started on {host}:{ports}: {error}"
        raise ConfigurationError(
            [f"{RELAY_PORT.key}: {where}; set {RELAY_HOST.key} too, or {RELAY_ENABLED.key}=false"]
        ) from error


def with_relay(configuration: Configuration, log: KafkaEventLog, replica: Replica) -> EventLog:
    """Returns the log of a TaskExecutor. It reads by the relay of the leader that the replica knows."""
    if not _has_relay(configuration):
        return log
    secret, tls = SharedSecret.from_configuration(configuration), client_tls(configuration)
    timeouts = RelayTimeouts()
    find_relay = LeaderEndpoint(lambda: replica.leadership, ENDPOINT, RELAY_HOST.key)
    known: list[LogName] = []
    """The log that this process reads. If it is created again, the process ends (TopicWatch)."""

    def connect(address: str, start: int, addresses: frozenset[str]) -> RelayConnection:
        try:
            name = known[0] if known else find_log_name(configuration)
        except LogUnavailable as error:
            raise RelayLost(str(error)) from error
        if name is None:
            raise RelayLost(f"{log.topic} has no id in this Kafka")
        known[:] = [name]
        return RelayConnection(
            address, name, start, addresses, secret=secret, tls=tls, timeout_s=timeouts.connect_s
        )

    return RelayedEventLog(log, find_relay, connect, timeouts)


def _has_relay(configuration: Configuration) -> bool:
    """Returns whether the process serves or uses a relay. If Kafka is secured, a relay without a secret would be a way
    around Kafka's ACLs; if connections to Kafka use TLS, a relay without TLS would show the log to the network."""
    if not configuration.get(RELAY_ENABLED):
        return False
    if configuration.kafka.is_secured and configuration.get(BLOB_SECRET_FILE) is None:
        _log.warning(
            "no relay of the log: Kafka is secured, so a relay needs a secret", option=BLOB_SECRET_FILE.key
        )
        return False
    if configuration.kafka.is_encrypted and not configuration.get(BLOB_TLS):
        _log.warning(
            "no relay of the log: connections to Kafka use TLS, so a relay needs TLS", option=BLOB_TLS.key
        )
        return False
    return True


def find_log_name(configuration: Configuration) -> LogName | None:
    """Returns the name of the cluster's log; None if there is none, or Kafka gives topics no ids. Raises
    LogUnavailable."""
    topic = log_topic(configuration.cluster_id)
    described = describe_topics(create_admin_client(configuration), [topic])[topic]
    return None if described is None or described.topic_id is None else LogName(topic, described.topic_id)


def allow_files() -> int:
    """Allows this process as many open files as it may have; returns their number. A relay has one for each reader."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return min(soft, _MOST_FILES) if soft != resource.RLIM_INFINITY else _MOST_FILES
