"""The configuration that all Kafka clients of the services share.

librdkafka writes its own log to stderr, one line for every lost connection. This module replaces it: one log line when
no broker answers, and exceptions where they matter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ...infra import retry
from ...infra.kafka_connection import READER_GROUP, KafkaConnection
from ...infra.kafka_statistics import STATISTICS, ClientRole
from ...infra.logging_setup import logger
from .event_log import LARGEST_EVENT

LARGEST_MESSAGE = LARGEST_EVENT + (1 << 20)
"""The maximum bytes of a Kafka message: an event, or a dead letter with one, and its headers."""

_log = logger("kafka")
ATTEMPT_S = 3.0
"""The time for one request of several: a broker that has died does not answer, and its successor is known then."""
_CRITICAL = 2
_APPEARANCE_S = 2.0
"""A new topic is not known to every client at once. These errors are retried; a topic that never existed is not waited
for."""
T = TypeVar("T")


def client_configuration(
    kafka: KafkaConnection, role: ClientRole | None = None, **more: Any
) -> dict[str, Any]:
    """Returns the configuration of any client; further keys with `_` for `.`, over which the user's properties have
    precedence. `role`: that of a client whose statistics are wanted; it must be polled all the time. Raises
    UnusableProperties."""
    own = {name.replace("_", "."): value for name, value in more.items()}
    return {
        "log_level": _CRITICAL,
        "reconnect.backoff.max.ms": 1_000,
        **own,
        **kafka.to_librdkafka(),
        **({} if role is None else STATISTICS.settings(kafka.properties, role)),
        "error_cb": _on_error,
    }


def consumer_configuration(
    kafka: KafkaConnection, role: ClientRole | None = None, **more: Any
) -> dict[str, Any]:
    """Returns the configuration of a consumer that assigns its partitions and keeps its own position. Raises
    UnusableProperties."""
    # The default of one second would delay the first read after every pause.
    return client_configuration(kafka, role, **{"fetch_queue_backoff_ms": 1, **more}) | {
        "group.id": READER_GROUP,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
    }


def producer_configuration(
    kafka: KafkaConnection, role: ClientRole | None = None, **more: Any
) -> dict[str, Any]:
    """Returns the configuration of a producer of single events: idempotent, acks=all, without linger. Raises
    UnusableProperties."""
    return client_configuration(kafka, role, **{"linger_ms": 0, "compression_type": "zstd", **more}) | {
        "enable.idempotence": True,
        "acks": "all",
        "message.max.bytes": LARGEST_MESSAGE,
    }


ENDS_READING: Final = retry.ABSENT | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
}
"""Fatal consumer errors: no retry helps."""
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        # The partition of a new topic may not have a leader yet.
        KafkaError._NOENT,
    }
)


def retry_until(ask: Callable[[], T], timeout_s: float) -> T:
    """Returns the result of `ask`, retried while Kafka or the partition's leader is being discovered.

    Raises the last KafkaException after `timeout_s` seconds; any other exception at once.
    """
    return retry.retry_until(ask, timeout_s, _APPEARANCE_S, _PASSING)


def poll_producer(producer: Producer, timeout_s: float) -> KafkaError | None:
    """Serves delivery reports for up to `timeout_s` seconds; returns the error after which the producer is unusable."""
    try:
        producer.poll(timeout_s)
    except KafkaException as error:
        fatal: KafkaError = error.args[0]
        return fatal
    return None


def watermarks(consumer: Consumer, topic: str, timeout_s: float, partition: int = 0) -> tuple[int, int]:
    """Returns the first offset of a partition of the topic, and its end offset. Raises KafkaException."""
    wanted = TopicPartition(topic, partition)
    attempt_s = min(timeout_s, ATTEMPT_S)
    return retry_until(lambda: consumer.get_watermark_offsets(wanted, timeout=attempt_s), timeout_s)


_REPORT_INTERVAL_S = 30.0
_last_report: list[float] = []


def _on_error(error: KafkaError) -> None:
    if error.code() != KafkaError._ALL_BROKERS_DOWN:
        return
    # Every client reports it every second.
    now = time.monotonic()
    if not _last_report or now - _last_report[-1] >= _REPORT_INTERVAL_S:
        _last_report[:] = [now]
        _log.warning("no broker answers; retries", error=error.str())


def poll_message(consumer: Consumer, timeout_s: float) -> Message | None:
    """Returns the next message; None if there is none within `timeout_s` seconds. Raises KeyboardInterrupt if SIGINT
    ends the wait."""
    try:
        return consumer.poll(timeout_s)
    except SystemError as error:
        # A signal that arrives together with a message or a callback: confluent-kafka returns both a message and the
        # exception, or neither of them (its issue 1708).
        is_lost = (
            "NULL without setting" in str(error) and threading.current_thread() is threading.main_thread()
        )
        if isinstance(error.__cause__, KeyboardInterrupt) or is_lost:
            raise KeyboardInterrupt from None
        raise
