"""Opens the heartbeats topic that the configuration names."""

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
    """Opens the cluster's heartbeats topic for one process; topic.py describes the parameters. Raises
    LogUnavailable."""
    topic = heartbeats_topic(configuration.cluster_id)
    return KafkaHeartbeats(
        configuration.kafka,
        topic,
        create_codec(configuration, topic),
        reads=reads,
        wanted=wanted,
        patience_s=max(1.0, configuration.get(HEARTBEAT_INTERVAL) / 1e6),
    )
