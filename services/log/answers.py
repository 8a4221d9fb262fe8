"""The records of `<c>.answers`, and of that of a tenant: what the log says to clients, shortened, and the offset of the
log that each is from.

A client that may read this topic and not the log learns what became of its requests. All clients of a tenant, or all
without one, may read the same topic, so an answer has ids, a status and one line of reason, and nothing else of a job:
no name, no accumulators, no traceback. The log has the rest.

The header `log_offset` of a record at N says: every event up to N that is for these clients is in this topic. A record
without a value says only that. So a leader continues after the highest offset in the topic, and no answer is
missing. Some may be there twice. The header `log_id` is the id of the log's topic in Kafka: a log that was created
again begins anew.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from msgspec.structs import replace

from ...infra.kafka_connection import KafkaConnection
from ...schemas import client
from ...schemas.body import Body
from ...schemas.event import Event
from .clients import consumer_configuration, poll_message, watermarks
from .event_log import LogUnavailable

LOG_OFFSET: Final = "log_offset"
LOG_ID: Final = "log_id"
LONGEST_REASON: Final = 300
"""In characters."""
_LAST: Final = 100
"""Among so many records at the end is the highest offset: a deposed leader writes a few more at most."""


def shorten(event: Event) -> Event:
    """Returns the event of the log as clients get it: without what only the owner of a job is to know."""
    return Event(event.header, _shorten_body(event.body))


def _shorten_body(body: Body) -> Body:
    match body:
        case client.JobAccepted():
            return replace(body, name="")
        case client.JobFinished():
            return replace(body, reason=_shorten_optional(body.reason), accumulators={})
        case client.JobStatusChanged():
            return replace(body, reason=_shorten_optional(body.reason))
        case client.SavepointDisposed():
            return replace(body, failure=_shorten_optional(body.failure), left=())
        case (
            client.JobRejected()
            | client.CancelJobRejected()
            | client.CheckpointFailed()
            | client.FeatureLevelRejected()
            | client.RescaleFailed()
            | client.JobRequestRejected()
        ):
            return replace(body, reason=_shorten_reason(body.reason))
        case _:
            return body


def _shorten_optional(reason: str | None) -> str | None:
    return None if reason is None else _shorten_reason(reason)


def _shorten_reason(reason: str) -> str:
    line = reason.partition("\n")[0]
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 3]}..."


def log_offset_of(message: Message, log_id: str | None = None) -> int | None:
    """Returns the offset of the log that a record of the topic names; None if it names none, or another log than
    `log_id`."""
    headers = dict(message.headers() or ())
    offset, of_log = headers.get(LOG_OFFSET), headers.get(LOG_ID)
    if not isinstance(offset, bytes) or (log_id is not None and of_log != log_id.encode()):
        return None
    return int(offset) if offset.isdigit() else None


def read_next_offset(kafka: KafkaConnection, topic: str, log_id: str, timeout_s: float = 30.0) -> int:
    """Returns the offset of the log from which on answers may be missing in the topic; 0 for an empty topic. Raises
    LogUnavailable."""
    consumer = Consumer(consumer_configuration(kafka, enable_partition_eof=True))
    try:
        low, high = watermarks(consumer, topic, timeout_s)
        position, highest = max(low, high - _LAST), -1
        consumer.assign([TopicPartition(topic, 0, position)])
        while position < high:
            message = poll_message(consumer, timeout_s)
            if message is None:
                raise LogUnavailable(f"{topic} does not answer")
            if (error := message.error()) is not None:
                if error.fatal():
                    raise LogUnavailable(f"{topic} can't be read: {error.str()}")
                position = max(position, message.offset() or 0)
                continue
            position = (message.offset() or 0) + 1
            offset = log_offset_of(message, log_id)
            highest = highest if offset is None else max(highest, offset)
        return highest + 1
    except KafkaException as error:
        raise LogUnavailable(f"{topic} can't be read: {error.args[0].str()}") from error
    finally:
        consumer.close()
