"""How far a log has admitted submissions, and a submissions topic of that length beside a log that was copied.

A log that is imported says that the submissions are admitted up to some offsets. In another Kafka their topic is
shorter, and what clients send would lie below those offsets, where nobody looks. So the topic is filled up to them,
with records that nobody reads. What is in it already stays: it counts as admitted.

A log that names the topic which it has admitted submissions from needs none of that: another topic is read from its
start (services/dispatcher/submissions_topic.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from ...configuration import Configuration
from ...core.replica import Replica
from ...core.role import DISPATCHER
from ...dispatcher.state import DispatcherState
from ...log import LogUnavailable
from ...log.clients import consumer_configuration, producer_configuration, retry_until
from ...log.factory import create_admin_client
from ...log.topics import submissions_topic

_TIMEOUT_S = 30.0
_FILLER_VALUE = b"admitted elsewhere"
"""The value of a submission that nobody reads."""


def submission_positions(replica: Replica) -> dict[int, int]:
    """Partition of the submissions -> the next offset to be admitted, where another topic has to be filled up to it."""
    dispatcher = replica.states.get(DISPATCHER)
    if not isinstance(dispatcher, DispatcherState) or dispatcher.submissions_topic_id is not None:
        return {}
    return dict(dispatcher.positions)


def fill_submissions(configuration: Configuration, positions: Mapping[int, int]) -> int:
    """Brings the submissions topic, which is there, to these positions; returns how many records that took.

    Raises LogUnavailable.
    """
    topic, written = submissions_topic(configuration.cluster_id), 0
    if not positions:
        return 0
    ends = _ends(configuration, topic, max(positions) + 1)
    producer = Producer(producer_configuration(configuration.bootstrap_servers))
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    for partition, position in sorted(positions.items()):
        for _ in range(ends.get(partition, 0), position):
            while True:
                try:
                    producer.produce(topic, _FILLER_VALUE, partition=partition, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            written += 1
    left = producer.flush(_TIMEOUT_S)
    if left or failures:
        why = failures[0].str() if failures else f"{left} records were not taken within {_TIMEOUT_S:.0f} s"
        raise LogUnavailable(f"{topic} can't be written: {why}; the same command goes on")
    return written


def _ends(configuration: Configuration, topic: str, partitions: int) -> dict[int, int]:
    kafka: AdminClient = create_admin_client(configuration)
    known = kafka.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
    if len(known) < partitions:
        for future in kafka.create_partitions([NewPartitions(topic, partitions)]).values():
            future.result(_TIMEOUT_S)
    consumer = Consumer(consumer_configuration(configuration.bootstrap_servers, auto_offset_reset="error"))
    try:
        ends = {}
        for each in range(max(partitions, len(known))):
            partition = TopicPartition(topic, each)

            def ask(partition: TopicPartition = partition) -> tuple[int, int]:
                return consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_S)

            ends[each] = retry_until(ask, _TIMEOUT_S)[1]
        return ends
    finally:
        consumer.close()
