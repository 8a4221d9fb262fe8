"""The cost of a log without roles: its messages are produced again by one process, and read and decoded by others."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from _members import Member, say
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.services.log import Codec
from tailrace.services.log.clients import client_configuration, consumer_configuration, producer_configuration
from tailrace.services.log.topics import ensure_cluster_topics, log_topic

BATCH = 10_000


def messages(bootstrap_servers: str, topic: str, count: int, *, partition: int = 0) -> Iterator[Message]:
    """Yields the first `count` messages of the partition."""
    consumer = Consumer(
        consumer_configuration(
            KafkaConnection(bootstrap_servers), auto_offset_reset="error", queued_min_messages=50_000
        )
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    seen = 0
    while seen < count:
        for message in consumer.consume(BATCH, 0.01):
            seen += 1
            yield message
    consumer.close()


def raw_s(bootstrap_servers: str, cluster: str, readers: int) -> tuple[float, int]:
    """Returns the seconds for the messages of a cluster's log, and their number: the producer and all readers run at
    once."""
    log, again = log_topic(cluster), f"{cluster}-again"
    with ExitStack() as at_the_end:
        consumer = Consumer(consumer_configuration(KafkaConnection(bootstrap_servers)))
        _, end = consumer.get_watermark_offsets(TopicPartition(log, 0), timeout=30)
        consumer.close()
        copies: list[tuple[bytes, Any, Any]] = [
            (message.value() or b"", message.key(), message.headers())
            for message in messages(bootstrap_servers, log, end)
        ]
        ensure_cluster_topics(AdminClient(client_configuration(KafkaConnection(bootstrap_servers))), again)
        members = [
            Member(__file__, "reader", bootstrap_servers, log_topic(again), end) for _ in range(readers)
        ]
        for member in members:
            at_the_end.callback(member.close)
            member.receive()
        producer = Producer(
            producer_configuration(KafkaConnection(bootstrap_servers))
            | {"queue.buffering.max.messages": end + 1}
        )
        start = time.perf_counter()
        for value, key, headers in copies:
            producer.produce(log_topic(again), value, key, partition=0, headers=headers)
        producer.flush()
        for member in members:
            member.receive()
        return time.perf_counter() - start, end


def read(bootstrap_servers: str, topic: str, count: int) -> None:
    """In a member: decodes the first `count` messages."""
    decode = Codec(topic).decode
    say(ready=True)
    for message in messages(bootstrap_servers, topic, count):
        decode(message.value())
    say(read=count)
    sys.stdin.read()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["reader", servers, name, number]:
            read(servers, name, int(number))
        case other:
            raise SystemExit(f"no part of a benchmark: {other}")
