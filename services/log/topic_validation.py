"""Validates the settings of the cluster's topics, which may have been created elsewhere with Kafka's defaults.

A log topic with retention, compaction or several partitions would lose events or their order. It is refused at
start-up,
before events are lost. Settings that only reduce safety cause a warning.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    ConfigResource,
)

from ...infra.logging_setup import logger
from .clients import retry_until
from .event_log import LogUnavailable
from .topics import KEEP_FOR_EVER, log_topic, submissions_topic

_log = logger(__name__)
_TIMEOUT_S = 10.0
_SAFE_REPLICAS = 3
_SAFE_IN_SYNC = 2


class UnfitTopic(Exception):
    """The log's topic loses events or their order."""


def check_topics(admin: AdminClient, cluster: str) -> None:
    """Raises UnfitTopic, in one line that says what to do; warns of settings that reduce safety. Raises
    LogUnavailable."""
    log, submissions = log_topic(cluster), submissions_topic(cluster)

    def ask() -> ClusterMetadata:
        found: ClusterMetadata = admin.list_topics(log, timeout=_TIMEOUT_S)
        if found.topics[log].error is not None or not found.topics[log].partitions:
            # The topic was created a moment ago.
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return found

    try:
        metadata = retry_until(ask, _TIMEOUT_S)
    except KafkaException as error:
        raise LogUnavailable(f"Kafka does not describe {log}: {error.args[0].str()}") from error
    partitions = metadata.topics[log].partitions
    faults = []
    if len(partitions) != 1:
        faults.append(f"it has {len(partitions)} partitions instead of 1")
    configuration = _configuration(admin, log)
    faults += _faults(configuration)
    if faults:
        raise UnfitTopic(
            f"{log} is not fit to be a log: {'; '.join(faults)}. Set cleanup.policy=delete, retention.ms=-1 and "
            "retention.bytes=-1 (kafka-configs --alter); a topic with other partitions has to be created again"
        )
    if lost := _faults(_configuration(admin, submissions)):
        _log.warning(
            "submissions may be deleted before they are admitted", topic=submissions, why="; ".join(lost)
        )
    replicas = min((len(partition.replicas) for partition in partitions.values()), default=1)
    in_sync = int(configuration.get("min.insync.replicas", _SAFE_IN_SYNC))
    if len(metadata.brokers) > 1 and (replicas < _SAFE_REPLICAS or in_sync < _SAFE_IN_SYNC):
        _log.warning(
            "the log may be lost with one broker: give it 3 replicas and min.insync.replicas=2",
            topic=log,
            replicas=replicas,
            min_insync_replicas=in_sync,
            brokers=len(metadata.brokers),
        )


def _faults(configuration: dict[str, str]) -> list[str]:
    wanted = {"cleanup.policy": "delete", **KEEP_FOR_EVER}
    return [
        f"{name} is {configuration[name]} instead of {value}"
        for name, value in wanted.items()
        if configuration.get(name, value) != value
    ]


def _configuration(admin: AdminClient, topic: str) -> dict[str, str]:
    """Returns an empty dict, with a warning, if this process may not read the settings."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def ask() -> dict[str, str]:
        (answer,) = admin.describe_configs([resource], request_timeout=_TIMEOUT_S).values()
        return {name: entry.value for name, entry in answer.result(_TIMEOUT_S).items()}

    try:
        return retry_until(ask, _TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        _log.warning("the settings of a topic can't be checked", topic=topic, error=str(error))
        return {}
