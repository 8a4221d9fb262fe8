"""The names, partitions and settings of the cluster's topics, and functions to create and delete them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
)

from .clients import LARGEST_MESSAGE
from .event_log import LARGEST_EVENT, LogUnavailable
from .topic_options import DEFAULT_OPTIONS, TopicOptions


class KafkaUnreachable(LogUnavailable):
    """The request may or may not have been executed; repeating it is safe."""


class TopicRefused(LogUnavailable):
    """This process may not create, extend or delete a topic. The message has the command that allows it."""


_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)
_REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
    }
)
_NO_ID = "A" * 22
"""The id of a topic on a broker older than Kafka 2.8: 16 zero bytes."""
KEEP_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
DELETE = {"cleanup.policy": "delete"}
"""Written out for every topic: a broker's default may be compaction."""
UNCOMPRESSED = {"compression.type": "uncompressed"}
"""The broker expands each batch, and refuses one that is larger than `max.message.bytes` then. Otherwise a batch of
that size could expand to gigabytes in its reader."""
KAFKAS_TIME = {"message.timestamp.type": "LogAppendTime"}
"""The time of a record is that of the broker: Kafka refuses a producer whose clock is an hour ahead otherwise."""
HEARTBEAT_RETENTION = {"retention.ms": "600000"}
_HEARTBEAT_SEGMENTS = {"segment.ms": "600000"}
HEARTBEAT_PARTITIONS = 2
"""One partition for each direction; see services/heartbeats/topic.py."""
LARGEST_SUBMISSION = LARGEST_EVENT // 2
"""In bytes; see LARGEST_EVENT."""
ANSWERS_RETENTION = {"retention.ms": "604800000", "retention.bytes": "-1"}
"""A week."""
_LOOK_S = 0.05


def log_topic(cluster: str) -> str:
    """Returns the topic of the event log, one partition."""
    return f"{cluster}.log"


def submissions_topic(cluster: str, tenant: str = "") -> str:
    """Returns the topic of client requests; with a tenant, of those of its clients."""
    return f"{cluster}.submissions.{tenant}" if tenant else f"{cluster}.submissions"


def submissions_topics(cluster: str, tenants: Iterable[str]) -> dict[str, str]:
    """Returns tenant -> topic of requests; the key of the topic without a tenant is empty."""
    return {tenant: submissions_topic(cluster, tenant) for tenant in ("", *tenants)}


def answers_topic(cluster: str, tenant: str = "") -> str:
    """Returns the topic of what the log says to clients without a tenant, or to those of a tenant."""
    return f"{cluster}.answers.{tenant}" if tenant else f"{cluster}.answers"


def answers_topics(cluster: str, tenants: Iterable[str]) -> dict[str, str]:
    """Returns tenant -> topic of answers; the key of the topic without a tenant is empty."""
    return {tenant: answers_topic(cluster, tenant) for tenant in ("", *tenants)}


def heartbeats_topic(cluster: str) -> str:
    """Returns the topic of heartbeats (soft state)."""
    return f"{cluster}.heartbeats"


def dead_letters_topic(cluster: str) -> str:
    """Returns the topic of records that could not be read or were not allowed."""
    return f"{cluster}.dead-letters"


def new_cluster_topics(cluster: str, options: TopicOptions) -> list[NewTopic]:
    """Returns the topics of a cluster with their settings."""
    forever = DELETE | KEEP_FOR_EVER | KAFKAS_TIME
    return [
        options.new_topic(log_topic(cluster), 1, forever | _at_most(LARGEST_MESSAGE)),
        *(
            options.new_topic(topic, 1, forever | UNCOMPRESSED | _at_most(LARGEST_SUBMISSION))
            for topic in submissions_topics(cluster, options.tenants).values()
        ),
        *(
            options.new_topic(topic, 1, DELETE | ANSWERS_RETENTION | KAFKAS_TIME | _at_most(LARGEST_MESSAGE))
            for topic in answers_topics(cluster, options.tenants).values()
        ),
        options.new_topic(
            heartbeats_topic(cluster),
            HEARTBEAT_PARTITIONS,
            DELETE | HEARTBEAT_RETENTION | KAFKAS_TIME | _at_most(LARGEST_MESSAGE),
            _HEARTBEAT_SEGMENTS,
        ),
        options.new_topic(dead_letters_topic(cluster), 1, forever | _at_most(LARGEST_MESSAGE)),
    ]


def ensure_cluster_topics(
    admin: AdminClient, cluster: str, timeout_s: float = 30.0, options: TopicOptions = DEFAULT_OPTIONS
) -> frozenset[str]:
    """Creates the missing topics of a cluster; returns their names once clients can see all topics.

    Topics that exist need no right to create them. Raises LogUnavailable; its subclass TopicRefused if a topic is
    missing and may not be created.
    """
    topics = new_cluster_topics(cluster, options)
    present = describe_topics(admin, [topic.topic for topic in topics], timeout_s)
    created = create_topics(admin, [topic for topic in topics if present[topic.topic] is None], timeout_s)
    _wait_until_known(admin, set(present), timeout_s)
    return created


def _wait_until_known(admin: AdminClient, names: set[str], timeout_s: float) -> None:
    """Waits until the topics are known: a broker that has just started learns from its controller which topics
    exist."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            known = admin.list_topics(timeout=timeout_s).topics
        except KafkaException as error:
            raise LogUnavailable(f"Kafka does not list its topics: {error.args[0].str()}") from error
        missing = {name for name in names if name not in known or known[name].error is not None}
        if not missing:
            return
        if time.monotonic() > deadline:
            raise LogUnavailable(f"Kafka has, but does not list, {', '.join(sorted(missing))}")
        time.sleep(_LOOK_S)


class TopicDescription(msgspec.Struct, frozen=True):
    """Kafka's description of a topic."""

    topic_id: str | None
    """The random id from the topic's creation (KIP-516): a topic that is created again gets a new one. None: the broker
    has no topic ids."""
    partitions: int


def describe_topics(
    admin: AdminClient, names: Iterable[str], timeout_s: float = 10.0
) -> dict[str, TopicDescription | None]:
    """Returns descriptions by name; None for a topic that does not exist. Raises LogUnavailable if Kafka does not
    answer."""
    futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
    described: dict[str, TopicDescription | None] = {}
    for name, answer in futures.items():
        try:
            topic = answer.result(timeout_s)
        except KafkaException as error:
            if error.args[0].code() in _REFUSED:
                raise TopicRefused(_describe_refusal("describe", name, error.args[0])) from error
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise LogUnavailable(f"Kafka does not describe {name}: {error.args[0].str()}") from error
            described[name] = None
            continue
        except TimeoutError as error:
            raise KafkaUnreachable(f"Kafka did not describe {name} within {timeout_s:.0f} s") from error
        topic_id = str(topic.topic_id)
        described[name] = TopicDescription(None if topic_id == _NO_ID else topic_id, len(topic.partitions))
    return described


def _at_most(size: int) -> dict[str, str]:
    return {"max.message.bytes": str(size)}


def create_topics(admin: AdminClient, topics: list[NewTopic], timeout_s: float = 30.0) -> frozenset[str]:
    """Creates topics; existing topics are skipped. Returns the created names.

    Raises LogUnavailable; its subclass KafkaUnreachable is worth a retry, its subclass TopicRefused is not.
    """
    if not topics:
        return frozenset()
    futures: Mapping[str, object] = admin.create_topics(
        topics, operation_timeout=timeout_s, request_timeout=timeout_s
    )
    try:
        return _wait(futures, KafkaError.TOPIC_ALREADY_EXISTS, "create", timeout_s)
    except TopicRefused as refused:
        # Kafka refuses before it looks whether the topic exists.
        present = describe_topics(admin, [topic.topic for topic in topics], timeout_s)
        missing = [topic for topic in topics if present[topic.topic] is None]
        if not missing:
            return frozenset()
        raise TopicRefused(f"{refused}. Or create it: {creation_command(missing[0])}") from refused


def creation_command(topic: NewTopic, tool: str = "kafka-topics") -> str:
    """Returns the shell command that creates a topic. `tool`: how it calls Kafka's kafka-topics."""
    replicas = f" --replication-factor {topic.replication_factor}" if topic.replication_factor > 0 else ""
    settings = "".join(f" --config {name}={value}" for name, value in (topic.config or {}).items())
    return f"{tool} --create --topic {topic.topic} --partitions {topic.num_partitions}{replicas}{settings}"


def _describe_refusal(verb: str, topic: str, error: KafkaError) -> str:
    """Returns one line: what is refused, and the command that grants the right."""
    refusal = f"Kafka does not {verb} the topic {topic}: {error.str()}"
    if error.code() == KafkaError.POLICY_VIOLATION:
        return refusal
    cluster, is_of_job, _ = topic.partition(".job.")
    pattern = f"{cluster}.job. --resource-pattern-type prefixed" if is_of_job else topic
    operation = {"add partitions to": "Alter"}.get(verb, verb.capitalize())
    return (
        f"{refusal}. Grant the right to the principal of this process: "
        f"kafka-acls --add --allow-principal User:NAME --operation {operation} --topic {pattern}"
    )


def add_partitions(admin: AdminClient, wanted: Mapping[str, int], timeout_s: float = 30.0) -> None:
    """Increases the partitions of existing topics to the wanted number; a topic with more is skipped. Returns once
    clients can see them. Raises like `create_topics`."""
    if not wanted:
        return
    # A topic that was created a moment ago may not be known to the broker that is asked.
    _wait_until_known(admin, set(wanted), timeout_s)
    described = describe_topics(admin, wanted, timeout_s)
    few = [
        NewPartitions(name, wanted[name])
        for name, topic in described.items()
        if topic is not None and topic.partitions < wanted[name]
    ]
    if few:
        futures: Mapping[str, object] = admin.create_partitions(
            few, operation_timeout=timeout_s, request_timeout=timeout_s
        )
        _wait(futures, KafkaError.INVALID_PARTITIONS, "add partitions to", timeout_s)
        _wait_for_partitions(admin, {name: wanted[name] for name in (each.topic for each in few)}, timeout_s)


def _wait_for_partitions(admin: AdminClient, wanted: Mapping[str, int], timeout_s: float) -> None:
    """Waits until the topics have at least so many partitions: the controller answers before its brokers know it."""
    deadline = time.monotonic() + timeout_s
    while True:
        described = describe_topics(admin, wanted, timeout_s)
        few = [name for name, topic in described.items() if topic is None or topic.partitions < wanted[name]]
        if not few:
            return
        if time.monotonic() > deadline:
            raise KafkaUnreachable(f"Kafka has added partitions to {few[0]}, but does not describe them")
        time.sleep(_LOOK_S)


def delete_topics(admin: AdminClient, names: list[str], timeout_s: float = 30.0) -> None:
    """Deletes topics; missing ones are skipped. Raises like `create_topics`."""
    if not names:
        return
    futures: Mapping[str, object] = admin.delete_topics(
        names, operation_timeout=timeout_s, request_timeout=timeout_s
    )
    _wait(futures, KafkaError.UNKNOWN_TOPIC_OR_PART, "delete", timeout_s)


def _wait(futures: Mapping[str, object], harmless: int, verb: str, timeout_s: float) -> frozenset[str]:
    """Returns the names for which the request changed something."""
    done = set()
    for name, future in futures.items():
        try:
            future.result(timeout_s)  # type: ignore[attr-defined]
            done.add(name)
        except KafkaException as error:
            code = error.args[0].code()
            if code in _REFUSED:
                raise TopicRefused(_describe_refusal(verb, name, error.args[0])) from error
            if code != harmless:
                unavailable = KafkaUnreachable if code in _PASSING else LogUnavailable
                raise unavailable(f"Kafka does not {verb} the topic {name}: {error.args[0].str()}") from error
        except TimeoutError as error:
            raise KafkaUnreachable(
                f"Kafka did not {verb} the topic {name} within {timeout_s:.0f} s"
            ) from error
    return frozenset(done)
