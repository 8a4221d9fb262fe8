"""Topics of results, and what a reader finds in them who sees only what is committed."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from polling import TIMEOUT_S


def make(bootstrap_servers: str, name: str, partitions: int) -> str:
    """A new topic whose name begins so."""
    return make_exactly(bootstrap_servers, {f"{name}-{uuid.uuid4().hex[:8]}": partitions})[0]


def make_exactly(bootstrap_servers: str, wanted: dict[str, int]) -> list[str]:
    """New topics, with their numbers of partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    made = admin.create_topics([NewTopic(name, count, 1) for name, count in wanted.items()])
    for each in made.values():
        each.result(30)
    return list(wanted)


def read(bootstrap_servers: str, topic: str) -> Counter[str]:
    """The values of all committed messages, to the ends that the partitions have now, however often each is there."""
    found: Counter[str] = Counter()
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
    partitions = set(consumer.list_topics(topic, 30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
    deadline = time.monotonic() + TIMEOUT_S
    while partitions:
        assert time.monotonic() < deadline, f"{topic} was not read to its end within {TIMEOUT_S:g} s"
        for message in consumer.consume(10_000, 0.05):
            error = message.error()
            if error is None:
                found[(message.value() or b"").decode()] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                partitions.discard(message.partition() or 0)
            else:
                raise KafkaException(error)
    consumer.close()
    return found


def write(bootstrap_servers: str, topic: str, values: Iterable[str], partitions: int) -> None:
    """Value i goes to partition i mod `partitions`, in order."""
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
    """What is wrong with a multiset, for a person; empty where nothing is."""
    missing, spare = expected - found, found - expected
    if not missing and not spare:
        return ""
    return (
        f"{missing.total()} of {expected.total()} results are missing, such as {sorted(missing)[:most]};"
        f" {spare.total()} are too many, such as {sorted(spare)[:most]}"
    )
