"""Subscribes to `<c>.answers`, or to that of a tenant: the answers to one client, for principals that may not read the
log.

It has what the log says to this client and to all clients, shortened (services/log/answers.py). An answer may be in the
topic twice: one whose offset in the log is not above the last one is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ...infra.kafka_connection import KafkaConnection
from ...schemas.event import Record
from ..core.role import CLIENT
from ..log import Codec, LogUnavailable
from ..log.answers import log_offset_of
from ..log.clients import ENDS_READING, consumer_configuration, watermarks
from ..log.codec import Undecodable
from ..log.kafka import poll_messages
from ..log.lost_right import RightWatch
from .subscription import Subscription


class AnswersSubscription(Subscription):
    """The Subscription of a client without the right to read the log. Raises LogUnavailable when opened."""

    def __init__(
        self, kafka: KafkaConnection, topic: str, codec: Codec, client_address: str, timeout_s: float = 30.0
    ) -> None:
        super().__init__()
        self._kafka = kafka
        self._topic = topic
        self._codec = codec
        self._own_addresses = frozenset({client_address.encode(), CLIENT.encode()})
        self._right = RightWatch(kafka, topic, "Read")
        self._last = -1
        """The highest offset in the log of an answer."""
        self._position: int | None = None
        self._consumer: Consumer | None = None
        self._connect(timeout_s)

    def follow(self, job_id: str) -> None:
        """The topic has no events of this kind."""

    @property
    def configuration(self) -> Mapping[str, str]:
        return {}

    def _connect(self, timeout_s: float = 30.0) -> Consumer:
        if self._consumer is not None:
            return self._consumer
        consumer = Consumer(
            consumer_configuration(self._kafka, enable_partition_eof=True, auto_offset_reset="earliest")
        )
        if self._position is None:
            try:
                _, self._position = watermarks(consumer, self._topic, timeout_s)
            except KafkaException as error:
                consumer.close()
                raise LogUnavailable(
                    f"{self._topic} can't be read: {self._right.describe(error.args[0])}"
                ) from error
        consumer.assign([TopicPartition(self._topic, 0, self._position)])
        self._consumer = consumer
        return consumer

    def _read(self, timeout_s: float) -> list[Record]:
        found = (self._record_of(message) for message in poll_messages(self._connect(), timeout_s))
        return [record for record in found if record is not None]

    def _record_of(self, message: Message) -> Record | None:
        error = message.error()
        if error is not None:
            if error.fatal() or error.code() in ENDS_READING:
                raise LogUnavailable(f"{self._topic} can't be read: {self._right.describe(error)}")
            return None
        self._position = (message.offset() or 0) + 1
        offset, value = log_offset_of(message), message.value()
        if offset is None or offset <= self._last or message.key() not in self._own_addresses:
            return None
        self._last = offset
        try:
            event = self._codec.decode(value)
        except Undecodable as error:
            raise LogUnavailable(
                f"{self._topic} has an answer at offset {message.offset()} that this release cannot read: {error}. Is "
                "the cluster newer? `tailrace --version`"
            ) from error
        return Record(offset, event.header, event.body)

    def disconnect(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
