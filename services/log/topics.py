"""The names, partitions and retention of the cluster's topics, and functions to create and delete them."""

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


class KafkaUnreachable(LogUnavailable):
    """The request may or may not have been executed; repeating it is safe."""


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
_NO_ID = "A" * 22
"""The id of a topic on a broker older than Kafka 2.8: 16 zero bytes."""
KEEP_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
HEARTBEAT_RETENTION = {"retention.ms": "600000", "segment.ms": "600000"}
HEARTBEAT_PARTITIONS = 2
"""One partition for each direction; see services/heartbeats/topic.py."""
LARGEST_SUBMISSION = LARGEST_EVENT // 2
"""In bytes; see LARGEST_EVENT."""
_LOOK_S = 0.05


def log_topic(cluster: str) -> str:
    """Returns the topic of the event log, one partition."""
    return f"{cluster}.log"


def submissions_topic(cluster: str) -> str:
    """Returns the topic of client requests."""
    return f"{cluster}.submissions"


def heartbeats_topic(cluster: str) -> str:
    """Returns the topic of heartbeats (soft state)."""
    return f"{cluster}.heartbeats"


def dead_letters_topic(cluster: str) -> str:
    """Returns the topic of records that could not be read or were not allowed."""
    return f"{cluster}.dead-letters"


def ensure_cluster_topics(admin: AdminClient, cluster: str, timeout_s: float = 30.0) -> frozenset[str]:
    """Creates the missing topics of a cluster; returns their names once clients can see all topics.

    Raises LogUnavailable.
    """
    topics = [
        NewTopic(log_topic(cluster), 1, -1, config=KEEP_FOR_EVER | _at_most(LARGEST_MESSAGE)),
        NewTopic(submissions_topic(cluster), 1, -1, config=KEEP_FOR_EVER | _at_most(LARGEST_SUBMISSION)),
        NewTopic(
            heartbeats_topic(cluster),
            HEARTBEAT_PARTITIONS,
            -1,
            config=HEARTBEAT_RETENTION | _at_most(LARGEST_MESSAGE),
        ),
        NewTopic(dead_letters_topic(cluster), 1, -1, config=KEEP_FOR_EVER | _at_most(LARGEST_MESSAGE)),
    ]
    created = create_topics(admin, topics, timeout_s)
    _wait_until_known(admin, {topic.topic for topic in topics}, timeout_s)
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
    """Creates topics with the broker's default replication; existing topics are skipped. Returns the created names.

    Raises LogUnavailable; its subclass KafkaUnreachable is worth a retry.
    """
    if not topics:
        return frozenset()
    futures: Mapping[str, object] = admin.create_topics(
        topics, operation_timeout=timeout_s, request_timeout=timeout_s
    )
    return _wait(futures, KafkaError.TOPIC_ALREADY_EXISTS, "create", timeout_s)


def add_partitions(admin: AdminClient, wanted: Mapping[str, int], timeout_s: float = 30.0) -> None:
    """Increases the partitions of existing topics to the wanted number; a topic with more is skipped. Raises like
    `create_topics`."""
    if not wanted:
        return
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
            if code != harmless:
                unavailable = KafkaUnreachable if code in _PASSING else LogUnavailable
                raise unavailable(f"Kafka does not {verb} the topic {name}: {error.args[0].str()}") from error
        except TimeoutError as error:
            raise KafkaUnreachable(
                f"Kafka did not {verb} the topic {name} within {timeout_s:.0f} s"
            ) from error
    return frozenset(done)
