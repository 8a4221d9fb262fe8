"""Ten-word lines in a Kafka topic, and the expected counts of their words, for `wordcount_throughput`.

Words are drawn with the frequencies of a text (the n-th most frequent one n times as rarely), the same ones each time.
A block of lines is repeated, so that the expected counts are known without counting millions of lines.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache
from itertools import accumulate

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.runtime.common.kafka_clients import admin_client
from tailrace.services.log.topics import create_topics

WORDS = 10
VOCABULARY = 10_000
PARTITIONS = 2
_BLOCK = 20_000


@cache
def _block() -> list[str]:
    draw = random.Random(5)
    vocabulary = [f"{draw.choice('bcdfglmnprst')}{draw.choice('aeiou')}{n:x}" for n in range(VOCABULARY)]
    weights = list(accumulate(1 / (n + 1) for n in range(VOCABULARY)))
    words = draw.choices(vocabulary, cum_weights=weights, k=_BLOCK * WORDS)
    return [" ".join(words[i : i + WORDS]) for i in range(0, len(words), WORDS)]


def create_topic(bootstrap_servers: str, topic: str, partitions: int = PARTITIONS) -> str:
    """Creates an empty topic; returns its name."""
    create_topics(admin_client(KafkaConnection(bootstrap_servers)), [NewTopic(topic, partitions)])
    return topic


def load(bootstrap_servers: str, topic: str, lines: int, partitions: int = PARTITIONS) -> str:
    """Creates a topic of that many lines, one per message, spread evenly; returns its name."""
    create_topic(bootstrap_servers, topic, partitions)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    block = [{"value": line.encode()} for line in _block()]
    chunk = _BLOCK // 10
    for start in range(0, lines, chunk):
        at = start % _BLOCK
        messages = block[at : at + min(chunk, lines - start)]
        partition = start // chunk % partitions
        while messages:
            producer.produce_batch(topic, messages, partition=partition)
            messages = [message for message in messages if "_error" in message]
            for message in messages:
                del message["_error"]
            producer.poll(0.05 if messages else 0)
    if producer.flush(60):
        raise TimeoutError(f"{topic} was not loaded within a minute")
    return topic


def expected(lines: int) -> Counter[str]:
    """Returns how often each word is in that many lines."""
    whole, rest = divmod(lines, _BLOCK)
    counts = Counter(" ".join(_block()).split())
    total = Counter({word: count * whole for word, count in counts.items()})
    total.update(" ".join(_block()[:rest]).split())
    return +total


def last_counts(bootstrap_servers: str, topic: str) -> dict[str, int]:
    """Returns the last count of each word in a topic of messages `word -> count`, as a reader of committed messages
    sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    counts: dict[str, int] = {}
    try:
        partitions = list(consumer.list_topics(topic).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        open_ones = set(partitions)
        while open_ones:
            for message in consumer.consume(10_000, 1.0):
                if message.error():
                    open_ones.discard(message.partition())
                else:
                    counts[(message.key() or b"").decode()] = _count(message.value() or b"")
    finally:
        consumer.close()
    return counts


def _count(value: bytes) -> int:
    """Parses JSON {"word": ..., "count": n}, `word n`, or `n`."""
    return int(json.loads(value)["count"] if value[:1] == b"{" else value.rpartition(b" ")[2])


def check(bootstrap_servers: str, topic: str, lines: int) -> None:
    """Raises ValueError if the counts in a topic are not those of the lines."""
    result, right = last_counts(bootstrap_servers, topic), expected(lines)
    if result != right:
        wrong = [word for word in right if result.get(word) != right[word]]
        raise ValueError(
            f"{topic}: {len(wrong)} of {len(right)} words are counted wrongly, "
            f"{sum(result.values())} instead of {sum(right.values())} in all"
        )
