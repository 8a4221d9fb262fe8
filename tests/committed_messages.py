"""The committed messages of a topic, for tests that compare results."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from polling import TIMEOUT_S, wait_until


def read_to_end(bootstrap_servers: str, topic: str) -> Iterator[Message]:
    """Yields all committed messages up to the current ends of the partitions; those of a partition are in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"reader-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
            # The end of a partition is told when a fetch has waited so long for more.
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        partitions = wait_until(lambda: _find_partitions(consumer, topic), f"partitions of {topic}")
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        deadline = time.monotonic() + TIMEOUT_S
        while partitions:
            assert time.monotonic() < deadline, f"{topic} was not read to its end within {TIMEOUT_S:g} s"
            for message in consumer.consume(10_000, 0.05):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    partitions.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def read_by_partition(bootstrap_servers: str, topic: str) -> list[Message]:
    """Returns the same messages, one partition after another."""
    return sorted(read_to_end(bootstrap_servers, topic), key=lambda message: message.partition() or 0)


def _find_partitions(consumer: Consumer, topic: str) -> set[int]:
    """Returns none if no broker answers: a fault may have ended one a moment ago."""
    try:
        found = consumer.list_topics(topic, 5).topics[topic]
    except KafkaException:
        return set()
    return set(found.partitions)
