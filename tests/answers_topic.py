"""Compares the topic of answers with the log."""

from __future__ import annotations

from confluent_kafka import Consumer, Message, TopicPartition

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas.event import Record
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.core.role import CLIENT, kind_of
from tailrace.services.log import EventLog
from tailrace.services.log.answers import log_offset_of
from tailrace.services.log.event_log import read_to_end


def answers_in(log: EventLog, tenant: str = "") -> list[Record]:
    """Returns the events for clients of the tenant, or of none, that readers of the log accept."""
    leadership, found = LeadershipState(), []
    for batch in read_to_end(log):
        for record in batch:
            header = record.header
            if leadership.accepts(record) and kind_of(header.recipient) == CLIENT and header.tenant == tenant:
                found.append(record)
            leadership = leadership.evolve(record)
    return found


def messages_in(kafka: KafkaConnection, topic: str) -> list[tuple[int, Message]]:
    """Returns the records of the topic, each with the offset of the log that it names."""
    consumer = Consumer({**kafka.to_librdkafka(), "group.id": "unused", "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while (message := consumer.poll(30)) is not None and message.error() is None:
            offset = log_offset_of(message)
            assert offset is not None
            found.append((offset, message))
        assert message is not None, f"{topic} does not answer"
        return found
    finally:
        consumer.close()
