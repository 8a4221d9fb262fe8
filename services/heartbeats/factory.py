"""The heartbeats topic, as the configuration describes it."""

from __future__ import annotations

from collections.abc import Callable

from ..configuration import Configuration
from ..configuration.options.heartbeat import HEARTBEAT_INTERVAL
from ..log.factory import create_codec
from ..log.topics import heartbeats_topic
from .kafka import KafkaHeartbeats


def kafka_heartbeats(
    configuration: Configuration, *, reads: int, wanted: Callable[[str], bool]
) -> KafkaHeartbeats:
    """One end of the cluster's heartbeats topic; see topic.py for the parameters. Raises LogUnavailable."""
    topic = heartbeats_topic(configuration.cluster_id)
    return KafkaHeartbeats(
        configuration.bootstrap_servers,
        topic,
        create_codec(configuration, topic),
        reads=reads,
        wanted=wanted,
        patience=max(1.0, configuration.get(HEARTBEAT_INTERVAL) / 1e6),
    )
