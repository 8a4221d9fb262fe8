"""Topics of results, and their content for a consumer that reads committed messages only."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable

from committed_messages import read_to_end
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from polling import TIMEOUT_S


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
    return Counter((message.value() or b"").decode() for message in read_to_end(bootstrap_servers, topic))


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
