"""Creates the topics of a cluster and the first event of its log.

The creator of the log records the offsets of the submissions topics from which this log admits submissions. Earlier
submissions belong to a log that no longer exists, and are not run again.

The topic exists a moment before its first event. A leader that claims in this moment would make all readers ignore the
event, so each process calls `wait_for_first_event` before it claims a role.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from ...infra.kafka_connection import KafkaConnection
from ...infra.logging_setup import logger
from ...schemas.dispatcher import SubmissionsTopicChanged
from ...schemas.event import Event
from ...schemas.types import Header
from ..core.role import DISPATCHER
from .clients import consumer_configuration, watermarks
from .codec import Codec
from .event_log import LogUnavailable
from .kafka import KafkaEventLog
from .kafka_time import ask_time
from .topic_options import DEFAULT_OPTIONS, TopicOptions
from .topics import describe_topics, ensure_cluster_topics, heartbeats_topic, log_topic, submissions_topics

_log = logger(__name__)
FIRST_EVENT_TIMEOUT_S: Final = 3.0
_FIRST_EVENT_PAUSE_S: Final = 0.02
_KAFKA_TIMEOUT_S: Final = 30.0


def create_cluster_topics(
    admin: AdminClient,
    kafka: KafkaConnection,
    cluster: str,
    timeout_s: float = 30.0,
    options: TopicOptions = DEFAULT_OPTIONS,
) -> frozenset[str]:
    """Creates the missing topics of a cluster, and the first event of a new log; returns the names of created topics.

    Raises like `ensure_cluster_topics`.
    """
    log, submissions = log_topic(cluster), submissions_topics(cluster, options.tenants)
    present = describe_topics(admin, [log, *submissions.values()], timeout_s)
    ends: dict[str, list[int]] = {}
    if present[log] is None:
        ends = {
            topic: _ends(kafka, topic, earlier.partitions, timeout_s)
            for topic in submissions.values()
            if (earlier := present[topic]) is not None
        }
    created = ensure_cluster_topics(admin, cluster, timeout_s, options)
    if log not in created:
        return created
    described = describe_topics(admin, submissions.values(), timeout_s)
    first = []
    for tenant, topic in submissions.items():
        found, positions = described[topic], ends.get(topic, [])
        if found is None or found.topic_id is None:
            continue
        reason = f"{log} was created"
        if any(positions):
            reason += f", and {topic} existed before: its submissions are not run"
            _log.warning("the cluster starts with a new log", reason=reason, positions=positions)
        first.append(
            SubmissionsTopicChanged(
                topic_id=found.topic_id, positions=tuple(positions), reason=reason, tenant=tenant
            )
        )
    if first:
        # In one append: the log never knows a part of the topics.
        _append(kafka, log, first, _read_time(kafka, cluster), timeout_s)
    return created


def wait_for_first_event(
    kafka: KafkaConnection, cluster: str, stop: threading.Event, timeout_s: float = FIRST_EVENT_TIMEOUT_S
) -> None:
    """Waits until the log has an event, `timeout_s` have passed, or `stop` is set.

    Nobody appends a first event if an operator prepared the topics, or if the creator of the log was killed: the first
    leader then records where submissions begin. Raises LogUnavailable.
    """
    topic, until = log_topic(cluster), time.monotonic() + timeout_s
    with _open_consumer(kafka, topic) as consumer:
        while watermarks(consumer, topic, _KAFKA_TIMEOUT_S, 0)[1] == 0 and time.monotonic() < until:
            if stop.wait(_FIRST_EVENT_PAUSE_S):
                return


def _read_time(kafka: KafkaConnection, cluster: str) -> int:
    """Returns the time of Kafka, or of the wall clock if Kafka does not say it."""
    try:
        found = ask_time(
            kafka, heartbeats_topic(cluster), 0, lambda: time.monotonic_ns() // 1000, FIRST_EVENT_TIMEOUT_S
        )
    except LogUnavailable as error:
        _log.debug("Kafka does not say the time", error=str(error))
        found = None
    return time.time_ns() // 1000 if found is None else found.reference


def _append(
    kafka: KafkaConnection,
    topic: str,
    bodies: Sequence[SubmissionsTopicChanged],
    now: int,
    timeout_s: float,
) -> None:
    # They must precede the first leader: readers ignore them after any later epoch.
    headers = [
        Header(
            event_id=f"{topic}-{now}-{number}",
            time=now,
            sender=DISPATCHER,
            sender_epoch=0,
            recipient=DISPATCHER,
        )
        for number in range(len(bodies))
    ]
    log = KafkaEventLog(kafka, topic, Codec(topic), timeout_s=timeout_s)
    try:
        log.append([Event(header, body) for header, body in zip(headers, bodies, strict=True)])
    finally:
        log.close()


def _ends(kafka: KafkaConnection, topic: str, partitions: int, timeout_s: float) -> list[int]:
    with _open_consumer(kafka, topic) as consumer:
        return [watermarks(consumer, topic, timeout_s, number)[1] for number in range(partitions)]


@contextlib.contextmanager
def _open_consumer(kafka: KafkaConnection, topic: str) -> Iterator[Consumer]:
    """A context with a consumer. Kafka's errors in it are raised as LogUnavailable."""
    consumer = Consumer(consumer_configuration(kafka))
    try:
        yield consumer
    except KafkaException as error:
        raise LogUnavailable(f"{topic} can't be read: {error.args[0].str()}") from error
    finally:
        consumer.close()
