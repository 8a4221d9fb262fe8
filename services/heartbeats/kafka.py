"""The heartbeats topic on Kafka: a producer without ordering and durability guarantees, and a consumer that starts at
the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ...infra.kafka_connection import KafkaConnection
from ...infra.kafka_statistics import ClientRole
from ...infra.logging_setup import logger
from ...schemas.event import Event, Record
from ..log import Codec, LogUnavailable, Undecodable
from ..log.clients import (
    ENDS_READING,
    LARGEST_MESSAGE,
    client_configuration,
    consumer_configuration,
    watermarks,
)
from ..log.kafka import RECIPIENT, headers_of, poll_messages
from ..log.kafka_time import NOBODY
from ..log.unreadable_batch import UNREADABLE_BATCH
from .topic import Wanted

_LONGEST_FETCH_WAIT_S = 1.0
_FETCH_BYTES = 1 << 20
_LINGER_MS = 20
_log = logger(__name__)


class KafkaHeartbeats:
    """A HeartbeatTopic: reads partition `reads` of `topic` from its current end on, and writes the other partition.

    `patience_s` is the delivery timeout. Raises LogUnavailable.
    """

    def __init__(
        self,
        kafka: KafkaConnection,
        topic: str,
        codec: Codec,
        *,
        reads: int,
        wanted: Wanted,
        patience_s: float,
        timeout_s: float = 10.0,
    ) -> None:
        self._watch = kafka.watch()
        self._topic = topic
        self._codec = codec
        self._reads = reads
        self._wanted = wanted
        self._patience = patience_s
        self._timeout = timeout_s
        self._unacknowledged: dict[int, float] = {}
        self._sent = 0
        self._interrupted = False
        self._reported_reason = ""
        """The reason of the last failure, until a message is delivered."""
        wait_s = min(_LONGEST_FETCH_WAIT_S, patience_s / 4)
        self._producer = Producer(
            client_configuration(
                kafka,
                ClientRole.HEARTBEAT_WRITER,
                # Heartbeats are soft state: the next one follows soon, and a late one has no value.
                acks=1,
                linger_ms=_LINGER_MS,
                message_max_bytes=LARGEST_MESSAGE,
                message_timeout_ms=max(1_000, int(patience_s * 1000)),
            )
        )
        self._consumer = Consumer(
            consumer_configuration(
                kafka,
                ClientRole.HEARTBEAT_READER,
                auto_offset_reset="latest",
                # Many processes write and read this topic: wait for several messages instead of one fetch for each.
                fetch_min_bytes=_FETCH_BYTES,
                fetch_wait_max_ms=max(1, int(wait_s * 1000)),
                queued_min_messages=1_000,
                enable_partition_eof=True,
            )
        )
        try:
            self._position = self.end()
        except LogUnavailable:
            self._consumer.close()
            raise
        self._consumer.assign([TopicPartition(topic, reads, self._position)])

    def send(self, events: Sequence[Event]) -> None:
        if not events:
            return
        self._sent += 1
        number, last = self._sent, len(events) - 1
        self._unacknowledged[number] = time.monotonic()
        for index, event in enumerate(events):
            # The partition keeps the order, so that the acknowledgement of the last message covers all.
            on_delivery = self._on_delivery(number) if index == last else None
            try:
                self._producer.produce(
                    self._topic,
                    self._codec.encode(event),
                    partition=1 - self._reads,
                    headers=headers_of(event),
                    on_delivery=on_delivery,
                )
            except (BufferError, KafkaException, LogUnavailable) as error:
                self._unacknowledged.pop(number, None)
                self._failed(error.args[0].str() if isinstance(error, KafkaException) else str(error))
                return

    def interrupted(self) -> bool:
        self._producer.poll(0)
        was_interrupted, self._interrupted = self._interrupted, False
        oldest = next(iter(self._unacknowledged.values()), None)
        return was_interrupted or (oldest is not None and time.monotonic() - oldest > self._patience)

    def poll(self, timeout_s: float) -> list[Record]:
        if self._watch.has_changed():
            raise LogUnavailable("a file with a password, key or certificate has changed: connects again")
        records: list[Record] = []
        for message in poll_messages(self._consumer, timeout_s):
            self._take(message, records)
        return records

    @property
    def position(self) -> int:
        return self._position

    def end(self) -> int:
        try:
            _, high = watermarks(self._consumer, self._topic, self._timeout, self._reads)
        except KafkaException as error:
            raise LogUnavailable(f"{self._topic} can't be read: {error.args[0].str()}") from error
        return high

    def close(self) -> None:
        self._producer.flush(min(self._timeout, self._patience))
        self._consumer.close()

    def _on_delivery(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            sent = self._unacknowledged.pop(number, None)
            if error is not None:
                self._failed(error.str())
                return
            self._reported_reason = ""
            if sent is not None and time.monotonic() - sent > self._patience:
                self._interrupted = True

        return on_delivery

    def _failed(self, reason: str) -> None:
        self._interrupted = True
        # Each heartbeat would say it again.
        if reason != self._reported_reason:
            self._reported_reason = reason
            _log.warning("cannot send heartbeats; retries", topic=self._topic, reason=reason)

    def _take(self, message: Message, records: list[Record]) -> None:
        error = message.error()
        offset = message.offset() or 0
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._position = max(self._position, offset)
                return
            if error.fatal() or error.code() in ENDS_READING:
                raise LogUnavailable(f"{self._topic} can't be read: {error.str()}")
            if error.code() in UNREADABLE_BATCH:
                # The client would fetch it again for ever, and all processes would be taken for lost.
                _log.warning("skipped heartbeats", topic=self._topic, offset=offset, reason=error.str())
                self._position = self.end()
                self._consumer.assign([TopicPartition(self._topic, self._reads, self._position)])
            return
        self._position = offset + 1
        recipient = dict(message.headers() or ()).get(RECIPIENT)
        if recipient == NOBODY:
            return
        if isinstance(recipient, bytes) and not self._wanted(recipient.decode("utf-8", "replace")):
            return
        try:
            event = self._codec.decode(message.value())
        except Undecodable as reason:
            # Skipping it is harmless: the next heartbeat replaces it.
            _log.warning(
                "skipped an unreadable heartbeat", topic=self._topic, offset=offset, reason=str(reason)
            )
            return
        is_contradicted = isinstance(recipient, bytes) and recipient != event.header.recipient.encode()
        if self._wanted(event.header.recipient) and not is_contradicted:
            records.append(Record(offset, event.header, event.body))
