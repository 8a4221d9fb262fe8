"""Validates the settings of the cluster's topics, which may have been created elsewhere with Kafka's defaults.

A topic that would lose events, requests or their order is refused at start-up, before anything is lost, unless its
fault is accepted by name (`topics.accepted-settings`). Settings that only reduce safety cause a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    ConfigResource,
)

from ...infra.logging_setup import logger
from .clients import LARGEST_MESSAGE, retry_until
from .event_log import LogUnavailable
from .topics import (
    DELETE,
    HEARTBEAT_PARTITIONS,
    KEEP_FOR_EVER,
    LARGEST_SUBMISSION,
    UNCOMPRESSED,
    answers_topics,
    heartbeats_topic,
    log_topic,
    submissions_topics,
)

_log = logger(__name__)
_TIMEOUT_S = 10.0
_SAFE_REPLICAS = 3
_SAFE_IN_SYNC = 2
PARTITIONS = "partitions"
REPLICAS = "replication.factor"
IN_SYNC = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
_LARGEST = "max.message.bytes"


class UnfitTopic(Exception):
    """A topic of the cluster loses events, requests or their order."""


class TopicSettings(msgspec.Struct, frozen=True):
    """The settings of a topic in Kafka. `configuration`: empty if this process may not read it."""

    partitions: int
    replicas: int
    """The lowest number of replicas of a partition."""
    brokers: int
    configuration: Mapping[str, str] = {}


class TopicFault(msgspec.Struct, frozen=True):
    """A setting that is not as required."""

    topic: str
    setting: str
    found: str
    wanted: str

    def __str__(self) -> str:
        match self.setting:
            case "partitions":
                return f"it has {self.found} partitions instead of {self.wanted}"
            case "replication.factor":
                return f"it has {self.found} replica instead of {self.wanted}"
            case "min.insync.replicas":
                return f"{self.setting} is {self.found}, more than its {self.wanted} replicas: Kafka refuses to append"
            case _:
                return f"{self.setting} is {self.found} instead of {self.wanted}"


def find_log_faults(topic: str, found: TopicSettings) -> Iterator[TopicFault]:
    """Yields the faults by which a log is lost, or its order."""
    if found.partitions != 1:
        yield TopicFault(topic, PARTITIONS, str(found.partitions), "1")
    yield from _find_other_settings(topic, found, {**DELETE, **KEEP_FOR_EVER, UNCLEAN_ELECTION: "false"})
    if int(found.configuration.get(IN_SYNC, 1)) > found.replicas:
        yield TopicFault(topic, IN_SYNC, found.configuration[IN_SYNC], str(found.replicas))
    if found.replicas == 1 and found.brokers > 1:
        yield TopicFault(topic, REPLICAS, "1", str(min(_SAFE_REPLICAS, found.brokers)))


def find_submissions_faults(topic: str, found: TopicSettings) -> Iterator[TopicFault]:
    """Yields the faults by which requests are lost that are not admitted yet."""
    yield from _find_other_settings(topic, found, DELETE)


def find_answers_faults(topic: str, found: TopicSettings) -> Iterator[TopicFault]:
    """Yields the faults by which clients miss answers: a compacted topic keeps only the last one of each client."""
    if found.partitions != 1:
        yield TopicFault(topic, PARTITIONS, str(found.partitions), "1")
    yield from _find_other_settings(topic, found, DELETE)


def find_heartbeats_faults(topic: str, found: TopicSettings) -> Iterator[TopicFault]:
    """Yields the faults by which processes do not see each other's heartbeats."""
    if found.partitions < HEARTBEAT_PARTITIONS:
        yield TopicFault(topic, PARTITIONS, str(found.partitions), str(HEARTBEAT_PARTITIONS))


def _find_other_settings(topic: str, found: TopicSettings, wanted: Mapping[str, str]) -> Iterator[TopicFault]:
    for name, value in wanted.items():
        if found.configuration.get(name, value) != value:
            yield TopicFault(topic, name, found.configuration[name], value)


def find_faults(admin: AdminClient, cluster: str, tenants: Collection[str] = ()) -> list[TopicFault]:
    """Returns the faults of all topics of a cluster, and warns of settings that reduce safety. Raises
    LogUnavailable."""
    log, heartbeats = log_topic(cluster), heartbeats_topic(cluster)
    submissions = submissions_topics(cluster, tenants).values()
    answers = answers_topics(cluster, tenants).values()
    found = _describe(admin, (log, *submissions, *answers, heartbeats))
    _warn_of_log(log, found[log])
    for topic, largest in (
        (log, LARGEST_MESSAGE),
        *((topic, LARGEST_SUBMISSION) for topic in submissions),
        (heartbeats, LARGEST_MESSAGE),
    ):
        if topic in found:
            _warn_of_size(topic, found[topic], largest)
    faults = list(find_log_faults(log, found[log]))
    for topic in submissions:
        if topic in found:
            _warn_of_submissions(topic, found[topic])
            faults += find_submissions_faults(topic, found[topic])
    for topic in answers:
        if topic in found:
            faults += find_answers_faults(topic, found[topic])
    if heartbeats in found:
        faults += find_heartbeats_faults(heartbeats, found[heartbeats])
    return faults


def check_topics(
    admin: AdminClient, cluster: str, accepted: Collection[str] = (), tenants: Collection[str] = ()
) -> None:
    """Raises UnfitTopic for the first topic with a fault whose setting is not accepted, in one line that says what to
    do; warns of accepted faults. Raises LogUnavailable."""
    faults = find_faults(admin, cluster, tenants)
    for fault in faults:
        if fault.setting in accepted:
            _log.warning("accepted a setting of a topic", topic=fault.topic, why=str(fault))
    refused = [fault for fault in faults if fault.setting not in accepted]
    if not refused:
        return
    topic = refused[0].topic
    reasons = [fault for fault in refused if fault.topic == topic]
    names = ",".join(dict.fromkeys(fault.setting for fault in refused))
    raise UnfitTopic(
        f"{topic} loses data: {'; '.join(map(str, reasons))}. Change its settings (kafka-configs --alter, "
        "kafka-reassign-partitions); a log with several partitions must be created again. Or accept the risk: "
        f"-D topics.accepted-settings={names}"
    )


def _warn_of_submissions(topic: str, found: TopicSettings) -> None:
    if lost := list(_find_other_settings(topic, found, KEEP_FOR_EVER)):
        _log.warning(
            "submissions may be deleted before they are admitted", topic=topic, why="; ".join(map(str, lost))
        )
    if compressed := list(_find_other_settings(topic, found, UNCOMPRESSED)):
        _log.warning(
            "a small batch of submissions may expand to gigabytes in a jobmanager: alter the topic's compression.type",
            topic=topic,
            why=str(compressed[0]),
        )


def _warn_of_size(topic: str, found: TopicSettings, largest: int) -> None:
    limit = int(found.configuration.get(_LARGEST, largest))
    if limit < largest:
        _log.warning(
            "Kafka refuses large records of a topic: alter its max.message.bytes",
            topic=topic,
            max_message_bytes=limit,
            wanted=largest,
        )


def _warn_of_log(topic: str, found: TopicSettings) -> None:
    in_sync = int(found.configuration.get(IN_SYNC, _SAFE_IN_SYNC))
    if found.brokers > 1 and (found.replicas < _SAFE_REPLICAS or in_sync < _SAFE_IN_SYNC):
        _log.warning(
            "the log may be lost with one broker: give it 3 replicas and min.insync.replicas=2 "
            "(new topics: topics.replication-factor, topics.min-insync-replicas)",
            topic=topic,
            replicas=found.replicas,
            min_insync_replicas=in_sync,
            brokers=found.brokers,
        )


def _describe(admin: AdminClient, topics: Sequence[str]) -> dict[str, TopicSettings]:
    """Returns the settings of the topics; the first must exist, the others may be missing."""

    def ask() -> ClusterMetadata:
        found: ClusterMetadata = admin.list_topics(timeout=_TIMEOUT_S)
        log = found.topics.get(topics[0])
        if log is None or log.error is not None or not log.partitions:
            # The topic was created a moment ago.
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return found

    try:
        metadata = retry_until(ask, _TIMEOUT_S)
    except KafkaException as error:
        raise LogUnavailable(f"Kafka does not describe {topics[0]}: {error.args[0].str()}") from error
    described = {}
    for topic in topics:
        partitions = metadata.topics[topic].partitions if topic in metadata.topics else {}
        if partitions:
            replicas = min(len(partition.replicas) for partition in partitions.values())
            described[topic] = TopicSettings(
                len(partitions), replicas, len(metadata.brokers), _configuration(admin, topic)
            )
    return described


def _configuration(admin: AdminClient, topic: str) -> dict[str, str]:
    """Returns an empty dict, with a warning, if this process may not read the settings."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def ask() -> dict[str, str]:
        (answer,) = admin.describe_configs([resource], request_timeout=_TIMEOUT_S).values()
        return {name: entry.value for name, entry in answer.result(_TIMEOUT_S).items()}

    try:
        return retry_until(ask, _TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        _log.warning("cannot check the settings of a topic", topic=topic, error=str(error))
        return {}
