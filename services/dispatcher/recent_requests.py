"""The requests of tenants in the last minute, from the log: a limit of requests holds across changes of the leader.

The time of a request is that of its record in the log, which Kafka stores when the leader admits or refuses the
request.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ...infra.kafka_connection import KafkaConnection
from ...schemas import dispatcher
from ..core.role import CLIENT, Clock, kind_of
from ..log import Codec, EventLog, LogUnavailable, Undecodable
from ..log.clients import ENDS_READING, consumer_configuration
from ..log.kafka import TYPE, poll_messages
from ..log.raw_record import addresses_in
from .tenant_turns import MINUTE_S

_REFUSED = dispatcher.SubmissionRefused.AVRO_NAME.encode()
_TIMEOUT_S = 10.0


def read_recent_requests(
    kafka: KafkaConnection, log: EventLog, codec: Codec, clock: Clock
) -> list[tuple[str, float]]:
    """Returns tenant and age in seconds of each request that the log has from the last minute, oldest first. Raises
    LogUnavailable."""
    end = log.end()
    consumer = Consumer(consumer_configuration(kafka, enable_partition_eof=True, auto_offset_reset="error"))
    try:
        since = TopicPartition(log.topic, 0, int((clock() / 1e6 - MINUTE_S) * 1000))
        (first,) = consumer.offsets_for_times([since], timeout=_TIMEOUT_S)
        # It is the logical offset of the end, -1, if the last minute has no record.
        if not 0 <= first.offset < end:
            return []
        consumer.assign([first])
        return _read(consumer, log.topic, codec, end, clock)
    except KafkaException as error:
        raise LogUnavailable(f"{log.topic} can't be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, codec: Codec, end: int, clock: Clock) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    position, received_at = 0, time.monotonic()
    while position < end:
        messages = poll_messages(consumer, 1.0)
        if not messages and time.monotonic() - received_at > _TIMEOUT_S:
            raise LogUnavailable(f"{topic} does not answer")
        for message in messages:
            received_at, position = time.monotonic(), max(position, (message.offset() or 0) + 1)
            error = message.error()
            if error is not None and (error.fatal() or error.code() in ENDS_READING):
                raise LogUnavailable(f"{topic} can't be read: {error.str()}")
            if error is None and (tenant := _tenant_of(message, codec)):
                found.append((tenant, max(0.0, clock() / 1e6 - message.timestamp()[1] / 1000)))
    return sorted(found, key=lambda request: -request[1])


def _tenant_of(message: Message, codec: Codec) -> str:
    """Returns the tenant whose request the record admits or refuses; empty if there is none."""
    addresses = addresses_in(message.key())
    is_admitted = addresses is not None and kind_of(addresses[0]) == CLIENT
    if not is_admitted and dict(message.headers() or ()).get(TYPE) != _REFUSED:
        return ""
    try:
        event = codec.decode(message.value())
    except Undecodable:
        return ""
    body = event.body
    origin = body.source if isinstance(body, dispatcher.SubmissionRefused) else event.header.origin
    return "" if origin is None else origin.tenant
