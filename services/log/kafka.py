"""The event log on Kafka: one partition, an idempotent producer, consumers with `assign` and no group.

The end is the last stable offset, requested from the broker before reading. A reader reaches it by its position or by
the broker's end-of-partition signal, because transaction markers occupy offsets that no record will ever have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec

from ...infra.admin_client_cache import AdminClientCache
from ...infra.kafka_connection import KafkaConnection
from ...infra.kafka_statistics import INTERVAL_PROPERTY, STATISTICS, ClientRole
from ...infra.logging_setup import logger
from ...schemas.event import Event
from ..core.leadership import LeadershipState
from .clients import (
    ATTEMPT_S,
    ENDS_READING,
    client_configuration,
    consumer_configuration,
    poll_message,
    poll_producer,
    producer_configuration,
    retry_until,
    watermarks,
)
from .codec import Codec
from .event_log import Concerns, LogTruncated, LogUnavailable, OnUnreadable, Tail
from .lost_right import RightWatch
from .raw_record import DecodingTail, RawRecord, RawTail, addresses_in, key_of
from .unreadable_batch import UNREADABLE_BATCH, find_batch_end

_BATCH = 10_000
_FETCH_BYTES = 1 << 20
_TYPICAL_EVENT_BYTES = 64
"""Of a compressed event."""
_MOST_KNOWN_ADDRESSES = 1 << 12
_log = logger(__name__)
SENDER = "sender"
RECIPIENT = "recipient"
TYPE = "type"


class KafkaEventLog:
    """An EventLog in the single partition of `topic`. `skipped`: offsets of records that every tail skips."""

    def __init__(
        self,
        kafka: KafkaConnection,
        topic: str,
        codec: Codec,
        *,
        timeout_s: float = 30.0,
        skipped: Collection[int] = (),
        appends: bool = False,
    ) -> None:
        """`appends`: connects the producer now. A new idempotent producer waits half a second for its id."""
        self._kafka = kafka
        self._topic = topic
        self._codec = codec
        self._timeout = timeout_s
        self._skipped = frozenset(skipped)
        self._appending = threading.Lock()
        self._write_right = RightWatch(kafka, topic, "Write")
        self._admin = AdminClientCache(lambda: client_configuration(kafka), kafka.version)
        self._connected: AdminClient | None = None
        self._producer: Producer | None = None
        """None until the first append unless `appends`: its id needs the right to write, which readers have not."""
        self._watch = kafka.watch()
        if appends:
            self._connect_producer()
        if INTERVAL_PROPERTY in kafka.properties:
            STATISTICS.serve(self)

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def codec(self) -> Codec:
        """The codec of the log's events."""
        return self._codec

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        entries = list(zip(events, self._codec.encode_all(events, most_bytes), strict=False))
        schemas = self._codec.registration(events[0]) if events else None
        if schemas is None:
            return self._append(entries)
        _, *offsets = self._append([(schemas, self._codec.encode(schemas)), *entries])
        self._codec.learn_from(schemas)
        return offsets

    def follow(self, leadership: LeadershipState) -> None:
        self._codec.follow(leadership)

    def append_all(self, entries: Sequence[Event | bytes | None]) -> list[int]:
        """Like `append`, for entries read from another log: events, and raw values, which are appended unchanged."""
        events = [entry for entry in entries if isinstance(entry, Event)]
        encoded = iter(self._codec.encode_all(events))
        return self._append(
            [(entry, next(encoded)) if isinstance(entry, Event) else (None, entry) for entry in entries]
        )

    def _append(self, entries: Sequence[tuple[Event | None, bytes | None]]) -> list[int]:
        offsets: list[int] = []
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets.append(message.offset() or 0)

        with self._appending:
            while True:
                producer = self._connect_producer()
                for event, value in entries:
                    self._produce(producer, event, value, on_delivery)
                while len(offsets) + len(failures) < len(entries):
                    fatal = poll_producer(producer, 0.1)
                    if fatal is not None:
                        failures.append(fatal)
                        break
                # If some were written, another attempt would write them twice.
                if not failures or offsets or not self._write_right.is_lost(failures[0]):
                    break
                failures.clear()
                # A producer asks minutes later whether it may write again.
                self._producer = None
            if failures:
                why = self._write_right.describe(failures[0])
                raise LogUnavailable(
                    f"{self._topic} does not accept events: {why}; is Kafka at {self._kafka} up?"
                )
            self._write_right.note_success()
        # The producer is idempotent: the partition keeps the order of produce calls.
        return sorted(offsets)

    def _connect_producer(self) -> Producer:
        if self._producer is None or self._watch.has_changed():
            milliseconds = int(self._timeout * 1000)
            self._producer = Producer(
                producer_configuration(
                    self._kafka,
                    ClientRole.LOG_WRITER,
                    delivery_timeout_ms=milliseconds,
                    request_timeout_ms=min(milliseconds, 10_000),
                )
            )
        return self._producer

    def _produce(
        self,
        producer: Producer,
        event: Event | None,
        value: bytes | None,
        on_delivery: Callable[[KafkaError | None, Message], None],
    ) -> None:
        key = None if event is None else key_of(event)
        headers = [] if event is None else [_type_header(event)]
        while True:
            try:
                producer.produce(
                    self._topic, value, key, partition=0, headers=headers, on_delivery=on_delivery
                )
                return
            except BufferError:
                # The local queue is full: wait for deliveries, which keeps the order.
                producer.poll(0.1)
            except KafkaException as error:
                raise LogUnavailable(
                    f"{self._topic} does not accept events: {error.args[0].str()}"
                ) from error

    def end(self) -> int:
        try:
            return retry_until(self._probed_end, self._timeout)
        except KafkaException as error:
            raise LogUnavailable(
                f"the end of {self._topic} can't be read from Kafka at {self._kafka}: {error.args[0].str()}"
            ) from error

    def _probed_end(self) -> int:
        admin = self._admin.client()
        if self._connected is not admin:
            # A client without a connection may take 3 s to look up the partition's leader.
            admin.list_topics(timeout=self._timeout)
            self._connected = admin
        # A request to a broker that has died waits for it: the next one goes to the new leader.
        return self.probe_end(min(self._timeout, ATTEMPT_S)).result()

    def probe_end(self, timeout_s: float) -> Future[int]:
        """Returns a future of the end; it fails with a KafkaException after `timeout_s` seconds, or while the
        partition's leader is being discovered."""
        wanted = {TopicPartition(self._topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        end: Future[int] = Future()

        def on_answer(answer: Future[ListOffsetsResultInfo]) -> None:
            error = answer.exception()
            offset = int(answer.result().offset) if error is None else -1
            if offset < 0 and error is None:
                # A request that times out on an established connection reports no error, and no offset either.
                error = KafkaException(KafkaError(KafkaError._TIMED_OUT))
            if error is not None:
                self._admin.note_error(error)
                end.set_exception(error)
            else:
                end.set_result(offset)

        futures = self._admin.client().list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout_s
        )
        next(iter(futures.values())).add_done_callback(on_answer)
        return end

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        return self.decode(self.raw_tail(start, concerns=concerns), concerns, on_unreadable)

    def raw_tail(
        self,
        start: int,
        *,
        concerns: Concerns | None = None,
        prefetched: int = 50_000,
        timeout_s: float | None = None,
    ) -> RawTail:
        """Reads records from offset `start` on without decoding them. `prefetched`: the number of messages that the
        client fetches ahead. `timeout_s`: of the first request to Kafka. Raises LogTruncated, LogUnavailable."""
        return _KafkaTail(
            self._kafka,
            self._topic,
            start,
            concerns,
            self._timeout if timeout_s is None else timeout_s,
            self._skipped,
            prefetched=prefetched,
        )

    def decode(self, source: RawTail, concerns: Concerns | None, on_unreadable: OnUnreadable | None) -> Tail:
        """Returns a tail of the events of `source`, which has records of this log."""
        return DecodingTail(source, self._codec, self._topic, lambda: self._skipped, concerns, on_unreadable)

    def serve_statistics(self) -> None:
        """Takes the statistics of the producer while nothing is appended; an append takes them itself."""
        if self._producer is not None and self._appending.acquire(blocking=False):
            try:
                poll_producer(self._producer, 0)
            finally:
                self._appending.release()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.flush(self._timeout)


class _KafkaTail:
    def __init__(
        self,
        kafka: KafkaConnection,
        topic: str,
        start: int,
        concerns: Concerns | None,
        timeout_s: float,
        skipped: frozenset[int],
        *,
        prefetched: int,
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self._skipped = skipped
        self.position = start
        self.bytes_read = 0
        self._read_right = RightWatch(kafka, topic, "Read")
        self._warned: set[int] = set()
        """Errors that were logged."""
        self._concerns = concerns
        self._known_addresses: dict[object, tuple[str, str]] = {}
        """A cache: the key of a message -> sender and recipient."""
        self._prefetched = prefetched
        self._watch = kafka.watch()
        self._consumer = self._create_consumer()
        try:
            low, high = watermarks(self._consumer, topic, timeout_s)
        except KafkaException as error:
            self._consumer.close()
            raise LogUnavailable(
                f"{topic} can't be read from Kafka at {kafka}: {error.args[0].str()}"
            ) from error
        if start < low:
            self._consumer.close()
            raise LogTruncated(topic, start, low)
        self._consumer.assign([TopicPartition(topic, 0, min(start, high))])

    def _create_consumer(self) -> Consumer:
        return Consumer(
            consumer_configuration(
                self._kafka,
                ClientRole.LOG_READER,
                enable_partition_eof=True,
                auto_offset_reset="error",
                queued_min_messages=self._prefetched,
                # A single larger batch is fetched whole in any case.
                fetch_message_max_bytes=min(_FETCH_BYTES, self._prefetched * _TYPICAL_EVENT_BYTES),
            )
        )

    def _connect_again(self) -> None:
        self._consumer.close()
        self._consumer = self._create_consumer()
        self._consumer.assign([TopicPartition(self._topic, 0, self.position)])

    def poll(self, timeout_s: float) -> list[RawRecord]:
        records: list[RawRecord] = []
        concerns, before = self._concerns, self.position
        if self._watch.has_changed():
            self._connect_again()
        for message in poll_messages(self._consumer, timeout_s):
            error = message.error()
            if error is not None:
                if error.code() in UNREADABLE_BATCH:
                    self._pass_over_batch(error, message.offset() or 0)
                    break
                self._on_message(error, message.offset() or 0)
                continue
            offset = message.offset() or 0
            if offset < self.position:
                # The tail starts above the end: the log has not reached it yet.
                continue
            self.position = offset + 1
            self.bytes_read += len(message)
            key = message.key()
            addresses = self._known_addresses.get(key) or self._find_addresses(key)
            if concerns is None or addresses is None or concerns(*addresses):
                records.append(
                    RawRecord(offset, addresses, key if addresses is None else None, message.value())
                )
        if self.position > before:
            self._read_right.note_success()
        return records

    def _on_message(self, error: KafkaError, offset: int) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._read_right.note_success()
            self.position = max(self.position, offset)
        elif self._read_right.is_lost(error):
            # A consumer asks minutes later whether it may read again.
            self._connect_again()
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise LogTruncated(self._topic, self.position, offset)
        elif error.fatal() or error.code() in ENDS_READING:
            raise LogUnavailable(f"{self._topic} can't be read: {self._read_right.describe(error)}")
        elif error.code() not in self._warned:
            self._warned.add(error.code())
            _log.warning("reading is interrupted; retries", topic=self._topic, error=error.str())

    def _pass_over_batch(self, error: KafkaError, first: int) -> None:
        """Continues after a batch that cannot be decompressed. Raises LogUnavailable unless the batch may be
        skipped."""
        if first not in self._skipped:
            raise LogUnavailable(
                f"{self._topic} has at offset {first} a batch that cannot be decompressed: {error.str()}. If it is not "
                f"needed: -D log.skipped-offsets={first}, the same for all processes, skips it"
            )
        self.position = find_batch_end(self._kafka, self._topic, 0, first)
        self._consumer.assign([TopicPartition(self._topic, 0, self.position)])

    def _find_addresses(self, key: object) -> tuple[str, str] | None:
        found = addresses_in(key)
        if found is not None:
            if len(self._known_addresses) >= _MOST_KNOWN_ADDRESSES:
                # The number of clients is unbounded.
                self._known_addresses.clear()
            self._known_addresses[key] = found
        return found

    def close(self) -> None:
        self._consumer.close()


def headers_of(event: Event) -> list[tuple[str, str | bytes | None]]:
    """Returns the message headers by which readers of heartbeats and answers filter events without decoding them."""
    return [
        _type_header(event),
        (SENDER, event.header.sender.encode()),
        (RECIPIENT, event.header.recipient.encode()),
    ]


def _type_header(event: Event) -> tuple[str, str | bytes | None]:
    return TYPE, event.body.AVRO_NAME.encode()


def poll_messages(consumer: Consumer, timeout_s: float) -> list[Message]:
    """Returns the available messages; waits up to `timeout_s` seconds for the first."""
    # consume() waits for as many messages as requested: wait for one, then take all that are available.
    first = poll_message(consumer, timeout_s)
    return [] if first is None else [first, *consumer.consume(_BATCH, 0)]
