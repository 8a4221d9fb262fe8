"""Reads the output of a job's print sinks from the topic `<c>.job.<job>.output`; committed transactions only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]
from confluent_kafka.admin._listoffsets import OffsetSpec

from ...infra.retry import ABSENT
from ...pipelines.graph.physical_plan import output_topic
from ..configuration import Configuration
from ..log import LogUnavailable
from ..log.clients import (
    ENDS_READING,
    client_configuration,
    consumer_configuration,
    poll_message,
    retry_until,
    watermarks,
)
from ..log.lost_right import RightWatch, is_denied

_POLL_INTERVAL_S = 0.1
_FIRST_SPAN: Final = 64
"""The last records are looked for in so many offsets before the end, and then in twice as many before them."""
_MOST_OFFSETS_PER_RECORD: Final = 4
"""The mark of a transaction's end takes an offset, and so do records of aborted transactions."""


class OutputDenied(LogUnavailable):
    """The principal may not read the output of the job."""


class OutputRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A printed record. `timestamp` is the record's, in milliseconds since the epoch; `subtask` counts from 1."""

    offset: int
    timestamp: int
    subtask: int
    identifier: str | None
    text: str
    record: Any
    """The record as JSON, or None if it is not representable."""
    collected: bytes | None = None
    """The record pickled, if the program collects it."""


class _Value(msgspec.Struct, frozen=True):
    subtask: int
    text: str
    timestamp: int | None = None
    identifier: str | None = None
    record: Any = None
    collected: bytes | None = None


class ReadOutput(Protocol):
    """`read_output`, or another function like it."""

    def __call__(
        self, configuration: Configuration, job_id: str, *, over: Callable[[], bool] = ...
    ) -> Iterator[OutputRecord]: ...


def read_output(
    configuration: Configuration,
    job_id: str,
    *,
    over: Callable[[], bool] = lambda: True,
    timeout_s: float = 30.0,
) -> Iterator[OutputRecord]:
    """Yields the job's output, oldest first, up to the topic's end after `over` has returned True.

    Waits for the topic until `over` returns True; a topic that does not exist has no records. Raises LogUnavailable,
    OutputDenied.
    """
    topic = output_topic(configuration.cluster_id, job_id)
    # Kafka lists a topic only to those who may use it: without this check it would be waited for.
    if is_denied(configuration.kafka, topic, AclOperation.READ, timeout_s):
        remedy = RightWatch(configuration.kafka, topic, "Read").remedy
        raise OutputDenied(f"{configuration.kafka.principal} may not read {topic}: {remedy}")
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
                message = poll_message(consumer, _POLL_INTERVAL_S)
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


class OutputPage(msgspec.Struct, frozen=True):
    """Records in the order of the topic. `next`: the offset to continue from."""

    records: Sequence[OutputRecord]
    next: int


def read_output_page(
    configuration: Configuration,
    job_id: str,
    start: int | None,
    *,
    limit: int,
    most_bytes: int,
    timeout_s: float = 10.0,
) -> OutputPage | None:
    """Returns the output from the offset `start` on; None: the last `limit` records.

    A page is complete when it has `limit` records or at least `most_bytes` bytes. Returns None if the topic does not
    exist. Raises LogUnavailable, also if Kafka does not give the records within `timeout_s` seconds.
    """
    topic = output_topic(configuration.cluster_id, job_id)
    consumer = Consumer(
        consumer_configuration(configuration.kafka, enable_partition_eof=True, auto_offset_reset="earliest")
    )
    deadline = time.monotonic() + timeout_s
    try:
        # A client that asks for one topic does not create it: allow.auto.create.topics is false.
        described = consumer.list_topics(topic, timeout_s).topics[topic]
        if described.error is not None and described.error.code() in ABSENT:
            return None
        first, end = watermarks(consumer, topic, timeout_s)
        if start is None:
            return _read_last(consumer, topic, range(first, end), limit, most_bytes, deadline)
        return _read_first(consumer, topic, range(max(first, start), end), limit, most_bytes, deadline)
    except KafkaException as error:
        raise LogUnavailable(f"{topic} can't be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _read_first(
    consumer: Consumer, topic: str, offsets: range, limit: int, most_bytes: int, deadline: float
) -> OutputPage:
    found, size = [], 0
    for message in _read_range(consumer, topic, offsets, deadline):
        found.append(_decode(message))
        size += len(message)
        if len(found) == limit or size >= most_bytes:
            return OutputPage(found, found[-1].offset + 1)
    return OutputPage(found, offsets.stop)


def _read_last(
    consumer: Consumer, topic: str, offsets: range, limit: int, most_bytes: int, deadline: float
) -> OutputPage:
    lowest = max(offsets.start, offsets.stop - limit * _MOST_OFFSETS_PER_RECORD)
    found: list[Message] = []
    begin, span = offsets.stop, _FIRST_SPAN
    while begin > lowest and len(found) < limit and sum(map(len, found)) < most_bytes:
        part = range(max(lowest, begin - span), begin)
        found[:0] = _read_range(consumer, topic, part, deadline)
        begin, span = part.start, span * 2
    count, size = 0, 0
    while count < min(limit, len(found)) and size < most_bytes:
        count += 1
        size += len(found[-count])
    return OutputPage([_decode(message) for message in found[len(found) - count :]], offsets.stop)


def _read_range(consumer: Consumer, topic: str, offsets: range, deadline: float) -> Iterator[Message]:
    """Yields the messages at these offsets. Raises LogUnavailable after the deadline, by the monotonic clock."""
    if not offsets:
        return
    consumer.assign([TopicPartition(topic, 0, offsets.start)])
    while True:
        message = poll_message(consumer, _POLL_INTERVAL_S)
        if message is None:
            if time.monotonic() > deadline:
                raise LogUnavailable(f"{topic} can't be read: Kafka does not give its records in time")
            continue
        error = message.error()
        if error is None:
            offset = message.offset() or 0
            if offset < offsets.stop:
                yield message
            if offset >= offsets.stop - 1:
                return
        elif error.code() == KafkaError._PARTITION_EOF:
            return
        elif error.fatal() or error.code() in ENDS_READING:
            raise LogUnavailable(f"{topic} can't be read: {error.str()}")


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
    return OutputRecord(
        offset, timestamp, found.subtask, found.identifier, found.text, found.record, found.collected
    )
