"""Reads the output of a job's print sinks from the topic `<c>.job.<job>.output`; committed transactions only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from ...pipelines.graph.physical_plan import output_topic
from ..configuration import Configuration
from ..log import LogUnavailable
from ..log.clients import client_configuration, consumer_configuration, retry_until

_POLL_INTERVAL_S = 0.1


class OutputRecord(msgspec.Struct, frozen=True):
    """A printed record. `timestamp` is the record's, in milliseconds since the epoch; `subtask` counts from 1."""

    offset: int
    timestamp: int
    subtask: int
    identifier: str | None
    text: str
    record: Any
    """The record as JSON, or None if it is not representable."""


class _Value(msgspec.Struct, frozen=True):
    subtask: int
    text: str
    timestamp: int | None = None
    identifier: str | None = None
    record: Any = None


def read_output(
    configuration: Configuration,
    job_id: str,
    *,
    over: Callable[[], bool] = lambda: True,
    timeout_s: float = 30.0,
) -> Iterator[OutputRecord]:
    """Yields the job's output, oldest first, up to the topic's end after `over` has returned True.

    Waits for the topic until `over` returns True; a topic that does not exist has no records. Raises LogUnavailable.
    """
    topic = output_topic(configuration.cluster_id, job_id)
    admin = AdminClient(client_configuration(configuration.kafka))
    while not _exists(admin, topic, timeout_s):
        if over():
            return
        time.sleep(_POLL_INTERVAL_S)
    consumer = Consumer(
        consumer_configuration(configuration.kafka, enable_partition_eof=True, auto_offset_reset="earliest")
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    position = 0
    try:
        while True:
            last_round = over()
            end = _end(admin, topic, timeout_s) if last_round else None
            # Without a known end, one iteration reads what is available.
            while end is None or position < end:
                message = consumer.poll(_POLL_INTERVAL_S)
                if message is None:
                    if end is None:
                        break
                    continue
                error = message.error()
                if error is None:
                    position = (message.offset() or 0) + 1
                    yield _decode(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    position = max(position, message.offset() or 0)
                    if end is None:
                        break
                elif error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise LogUnavailable(f"{topic} can't be read: {error.str()}")
            if last_round:
                return
    finally:
        consumer.close()


def _exists(admin: AdminClient, topic: str, timeout_s: float) -> bool:
    try:
        return topic in admin.list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise LogUnavailable(f"Kafka does not answer: {error.args[0].str()}") from error


def _end(admin: AdminClient, topic: str, timeout_s: float) -> int:
    def ask() -> int:
        wanted = {TopicPartition(topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        futures = admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout_s
        )
        return int(next(iter(futures.values())).result().offset)

    try:
        return retry_until(ask, timeout_s)
    except KafkaException as error:
        raise LogUnavailable(f"the end of {topic} can't be read: {error.args[0].str()}") from error


def _decode(message: Message) -> OutputRecord:
    value = message.value() or b""
    offset, timestamp = message.offset() or 0, message.timestamp()[1]
    try:
        found = msgspec.json.decode(value, type=_Value)
    except msgspec.MsgspecError:
        # Show foreign bytes in the topic instead of hiding them: they are a mistake to correct.
        return OutputRecord(offset, timestamp, 0, None, value.decode("utf-8", "replace"), None)
    if found.timestamp is not None:
        timestamp = found.timestamp
    return OutputRecord(offset, timestamp, found.subtask, found.identifier, found.text, found.record)
