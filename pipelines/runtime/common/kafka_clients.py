"""The Kafka clients of a StreamTask, with settings that keep librdkafka from waiting.

Measured against one broker: init_transactions 505 ms -> 3 ms, reading a changelog 1,050 ms -> 8 ms, a commit with
offsets 100 ms -> 10 ms. None of that time is work: librdkafka retries on timers of 100, 500 and 1,000 ms. A commit
receives CONCURRENT_TRANSACTIONS while the broker still ends the previous transaction, for some milliseconds.
`connected` makes a client know its broker before it asks for a coordinator; otherwise the client asks again half a
second later. The properties of a KafkaConnection take precedence over tuning, but not over what the guarantees need.

librdkafka's own log goes through logging (infra/librdkafka_log.py), except an AdminClient's: it is the only client with
a background queue, and at its close it reports unread answers in that queue. Its futures report errors.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ....infra.kafka_connection import KafkaConnection
from ....infra.librdkafka_log import LOGGER
from .failures import TaskError

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""How long a dead task's open transaction may block readers, if no successor aborts it before. Longer than an outage
of Kafka: the broker aborts an older transaction, even if its commit is about to arrive."""

_QUEUED_MESSAGES: Final = 1_000_000
_TIMEOUT_S: Final = 30.0

_CRITICAL: Final = 2
"""A syslog level."""
_COMMON: Final[dict[str, Any]] = {
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 10,
    # A cached client learns within this time what a restart of Kafka has changed, even if no answer reports it.
    "topic.metadata.refresh.interval.ms": 30_000,
    "metadata.max.age.ms": 60_000,
}


def transactional_producer(
    kafka: KafkaConnection, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
) -> Producer:
    """Returns a producer for one ExecutionVertex's transactions; the broker aborts a transaction that is older than
    the timeout."""
    return Producer(
        {
            **_COMMON,
            "linger.ms": 1,
            "queue.buffering.max.messages": _QUEUED_MESSAGES,
            "compression.type": "lz4",
            **kafka.to_librdkafka(),
            "logger": LOGGER,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            # The same choice as in Java's clients.
            "partitioner": "murmur2_random",
        }
    )


def plain_producer(kafka: KafkaConnection) -> Producer:
    """Returns a producer for messages that may be lost, because they would be outdated when sent again."""
    return Producer(
        {
            **_COMMON,
            **kafka.to_librdkafka(),
            "logger": LOGGER,
            "linger.ms": 0,
            "acks": 1,
            "message.timeout.ms": 2_000,
            "max.in.flight": 1,
        }
    )


def group_consumer(kafka: KafkaConnection, group: str) -> Consumer:
    """Returns a consumer for a subtask's group, to read its committed offsets and changelog; it subscribes to
    nothing."""
    return Consumer(
        {
            **_COMMON,
            "fetch.queue.backoff.ms": 5,
            # librdkafka reports the end of a partition after a fetch has waited this long for more.
            "fetch.wait.max.ms": 5,
            **kafka.to_librdkafka(),
            "logger": LOGGER,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )


def partition_consumer(kafka: KafkaConnection, group: str) -> Consumer:
    """Returns a consumer that reads partitions for a subtask until a query does; it commits nothing."""
    return Consumer(
        {
            **_COMMON,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 500,
            # What is read ahead of the mailbox, which has a bound of its own.
            "queued.min.messages": 10_000,
            "queued.max.messages.kbytes": 4_096,
            **kafka.to_librdkafka(),
            "logger": LOGGER,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )


def admin_client(kafka: KafkaConnection) -> AdminClient:
    """Returns a client for topics, their ends, and the deletion of records."""
    return AdminClient(admin_settings(kafka))


def admin_settings(kafka: KafkaConnection) -> dict[str, Any]:
    """Returns the settings of `admin_client`, for a cached client (infra/admin_client_cache.py)."""
    return {**_COMMON, **kafka.to_librdkafka(), "log_level": _CRITICAL}


def connected(client: Consumer | Producer | AdminClient, topic: str) -> None:
    """Returns when the client is connected to a broker that it knows by id, and knows the topic. Raises TaskError."""
    try:
        # The first answer names the brokers; the connection to one of them may begin only then.
        for _ in range(2):
            client.list_topics(topic or None, _TIMEOUT_S)
    except KafkaException as error:
        raise TaskError(f"Kafka does not answer: {error.args[0].str()}; are the brokers up?") from error
