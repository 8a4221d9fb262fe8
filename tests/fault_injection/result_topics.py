"""Topics of results, and their content for a consumer that reads committed messages only."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from polling import TIMEOUT_S, wait_until


def make(bootstrap_servers: str, name: str, partitions: int) -> str:
    """Creates a topic whose name has the prefix."""
    return make_exactly(bootstrap_servers, {f"{name}-{uuid.uuid4().hex[:8]}": partitions})[0]


def make_exactly(bootstrap_servers: str, wanted: dict[str, int]) -> list[str]:
    """Creates topics with these numbers of partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    made = admin.create_topics([NewTopic(name, count, 1) for name, count in wanted.items()])
    for future in made.values():
        future.result(30)
    return list(wanted)


def read(bootstrap_servers: str, topic: str) -> Counter[str]:
    """Returns the values of all committed messages up to the current ends of the partitions, with their
    multiplicity."""
    counts: Counter[str] = Counter()
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
    partitions = wait_until(lambda: _find_partitions(consumer, topic), f"partitions of {topic}")
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    deadline = time.monotonic() + TIMEOUT_S
    while partitions:
        assert time.monotonic() < deadline, f"{topic} was not read to its end within {TIMEOUT_S:g} s"
        for message in consumer.consume(10_000, 0.05):
            error = message.error()
            if error is None:
                counts[(message.value() or b"").decode()] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                partitions.discard(message.partition() or 0)
            else:
                raise KafkaException(error)
    consumer.close()
    return counts


def _find_partitions(consumer: Consumer, topic: str) -> set[int]:
    """Returns none if no broker answers: a fault may have ended one a moment ago."""
    try:
        found = consumer.list_topics(topic, 5).topics[topic]
    except KafkaException:
        return set()
    return set(found.partitions)


def write(bootstrap_servers: str, topic: str, values: Iterable[str], partitions: int) -> None:
    """Writes value i to partition i mod `partitions`, in order."""
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    for index, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value.encode(), partition=index % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(TIMEOUT_S) == 0


def difference(found: Counter[str], expected: Counter[str], most: int = 8) -> str:
    """Describes the difference between two multisets; returns an empty string if they are equal."""
    missing, spare = expected - found, found - expected
    if not missing and not spare:
        return ""
    return (
        f"{missing.total()} of {expected.total()} results are missing, such as {sorted(missing)[:most]};"
        f" {spare.total()} are too many, such as {sorted(spare)[:most]}"
    )
