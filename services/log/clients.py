"""Configuration and error handling that all Kafka clients of the services share.

librdkafka logs a line to stderr for every lost connection. Here it is silenced: users see one message when no broker
answers, and an exception where it matters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ...infra import retry
from ...infra.logging_setup import logger
from .event_log import LARGEST_EVENT

LARGEST_MESSAGE = LARGEST_EVENT + (1 << 20)
"""Bytes of a Kafka message: an event, or a dead letter with one, and what goes with it."""

_log = logger("kafka")
_CRITICAL = 2
_APPEARANCE_S = 2.0
"""A topic that was created a moment ago is not known to every client yet; one that never was is not waited for."""
T = TypeVar("T")


def client_configuration(bootstrap_servers: str, **more: Any) -> dict[str, Any]:
    """Configuration for any client; further keys with `_` for `.`."""
    own = {name.replace("_", "."): value for name, value in more.items()}
    return {
        "bootstrap.servers": bootstrap_servers,
        "log_level": _CRITICAL,
        "error_cb": _on_error,
        "reconnect.backoff.max.ms": 1_000,
        **own,
    }


def consumer_configuration(bootstrap_servers: str, **more: Any) -> dict[str, Any]:
    """Configuration for a consumer that assigns itself its partitions and keeps its own position."""
    own = {name.replace("_", "."): value for name, value in more.items()}
    return client_configuration(bootstrap_servers) | {
        # A consumer must name a group; nothing is ever committed to it.
        "group.id": "tailrace-reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        # The default of a second would be the price of every pause.
        "fetch.queue.backoff.ms": 1,
        **own,
    }


def producer_configuration(bootstrap_servers: str, **more: Any) -> dict[str, Any]:
    """Configuration for a producer of single events: idempotent, acknowledged by all replicas, without delay."""
    return client_configuration(bootstrap_servers, **more) | {
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 0,
        "message.max.bytes": LARGEST_MESSAGE,
    }


ENDS_READING: Final = retry.ABSENT | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
}
"""Errors of a consumer behind which nothing is read any more, however long it is waited."""
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        # No leader is known yet, of a topic that was made a moment ago.
        KafkaError._NOENT,
    }
)


def retry_until(ask: Callable[[], T], timeout: float) -> T:
    """What `ask` returns, asked again while Kafka, or the partition's leader, is only just being found.

    Raises the last KafkaException when `timeout` seconds are over, any other at once.
    """
    return retry.retry_until(ask, timeout, _APPEARANCE_S, _PASSING)


def watermarks(consumer: Consumer, topic: str, timeout: float) -> tuple[int, int]:
    """The first offset that partition 0 of the topic holds, and the one behind its last. Raises KafkaException."""
    partition = TopicPartition(topic, 0)
    return retry_until(lambda: consumer.get_watermark_offsets(partition, timeout=timeout), timeout)


_TOLD_EVERY_S = 30.0
_told_at: list[float] = []


def _on_error(error: KafkaError) -> None:
    if error.code() != KafkaError._ALL_BROKERS_DOWN:
        return
    # Every client says it every second.
    now = time.monotonic()
    if not _told_at or now - _told_at[-1] >= _TOLD_EVERY_S:
        _told_at[:] = [now]
        _log.warning("no broker answers; keeps trying", error=error.str())
