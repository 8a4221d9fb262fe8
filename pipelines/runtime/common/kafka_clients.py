"""The Kafka clients of a StreamTask, with the settings that keep librdkafka from waiting.

Measured against one broker: init_transactions 505 ms -> 3 ms, reading a changelog 1,050 ms -> 8 ms, a commit
with offsets 100 ms -> 10 ms. Nothing of it is work: librdkafka retries on timers of 100, 500 and 1,000 ms.
A commit meets CONCURRENT_TRANSACTIONS while the broker still ends the one before, which is a matter of
milliseconds; and `connected` makes a client know its broker before it asks for a coordinator, or else it asks
again half a second later.

librdkafka's own log goes through logging (infra/librdkafka_log.py), but for an AdminClient's. That is the only client
with a background queue, and says when it is closed that answers were still in it: nobody waits for those. What goes
wrong its futures say.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ....infra.librdkafka_log import LOGGER
from .failures import TaskError

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""How long a dead task's open transaction may hold up readers, if no successor ends it before.

Longer than Kafka may stand still: it aborts then what is older, before the commit arrives that waits for it.
"""

_QUEUED_MESSAGES: Final = 1_000_000
_TIMEOUT_S: Final = 30.0

_CRITICAL: Final = 2
"""Of syslog's levels."""
_COMMON: Final[dict[str, Any]] = {
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 10,
    # A client that is kept learns within this time what a restart of Kafka has changed, also where no answer says so.
    "topic.metadata.refresh.interval.ms": 30_000,
    "metadata.max.age.ms": 60_000,
}


def transactional_producer(
    bootstrap_servers: str, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
) -> Producer:
    """A producer for one ExecutionVertex's transactions; the broker aborts one that is older than the timeout."""
    return Producer(
        {
            **_COMMON,
            "logger": LOGGER,
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 1,
            # As Java's clients do it.
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": _QUEUED_MESSAGES,
            "compression.type": "lz4",
        }
    )


def plain_producer(bootstrap_servers: str) -> Producer:
    """A producer for what may get lost, and is stale when it would have to be sent again."""
    return Producer(
        {
            **_COMMON,
            "logger": LOGGER,
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 0,
            "acks": 1,
            "message.timeout.ms": 2_000,
            "max.in.flight": 1,
        }
    )


def group_consumer(bootstrap_servers: str, group: str) -> Consumer:
    """A consumer for a subtask's group, to read its committed offsets and changelog; it subscribes to nothing."""
    return Consumer(
        {
            **_COMMON,
            "logger": LOGGER,
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
            # The end of a partition is told when a fetch has waited so long for more.
            "fetch.wait.max.ms": 5,
        }
    )


def admin_client(bootstrap_servers: str) -> AdminClient:
    """A client for topics, their ends, and what is to be deleted of them."""
    return AdminClient(admin_settings(bootstrap_servers))


def admin_settings(bootstrap_servers: str) -> dict[str, Any]:
    """What `admin_client` is made of; for one that is kept, infra/admin_client_cache.py."""
    return {**_COMMON, "bootstrap.servers": bootstrap_servers, "log_level": _CRITICAL}


def connected(client: Consumer | Producer | AdminClient, topic: str) -> None:
    """Returns when the client is connected to a broker that it knows by id, and knows the topic. Raises TaskError."""
    try:
        # The first answer names the brokers, and the connection to one of them may only begin then.
        for _ in range(2):
            client.list_topics(topic, _TIMEOUT_S)
    except KafkaException as error:
        raise TaskError(f"Kafka does not answer: {error.args[0].str()}; are the brokers up?") from error
