"""Copies what the log says to clients to `<c>.answers`, in a thread of the leading master; for each tenant to
`<c>.answers.<tenant>`, by a publisher of its own.

An event to clients has the tenant whose clients it is for in its header. Each topic has its own position: a topic that
is new, deleted or unavailable delays no answer in another one.

The log is the truth: the publisher reads it, and answers nothing that readers of the log ignore. It sends answers in
the order of the log, and stops at the first one that Kafka does not take. So each record in the topic vouches for all
answers before it, and a new leader continues after the last one (services/log/answers.py). While nothing is to be
answered, it writes from time to time how far it is: the next leader has less to read, and the topic is not empty.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ...infra import threads
from ...infra.kafka_connection import KafkaConnection
from ...infra.kafka_statistics import ClientRole
from ...infra.logging_setup import logger
from ...schemas.event import EVERYONE, Event
from ...schemas.types import Header
from ..core.leadership import LeadershipState
from ..core.role import CLIENT, kind_of
from ..log import Codec, EventLog, LogTruncated, LogUnavailable, Tail
from ..log.answers import LOG_ID, LOG_OFFSET, read_next_offset, shorten
from ..log.clients import poll_producer, producer_configuration
from ..log.kafka import headers_of

_log = logger(__name__)
_PAUSE_S: Final = 0.1
_RETRY_S: Final = 1.0
_TIMEOUT_S: Final = 30.0
_MOST_EVENTS_UNMARKED: Final = 10_000
_LONGEST_UNMARKED_S: Final = 86_400.0

ReadLeadership = Callable[[int | None], tuple[LeadershipState, int]]
"""(offset) -> the leadership before some event of the log at or before this offset, and the offset of that event. None:
of the newest one that is known without the log's head."""


class AnswersPublisher:
    """Publishes from `start` to `close` while `leads` returns True."""

    def __init__(
        self,
        kafka: KafkaConnection,
        topic: str,
        codec: Codec,
        log: EventLog,
        *,
        tenant: str = "",
        leads: Callable[[], bool],
        read_leadership: ReadLeadership,
        find_log_id: Callable[[], str],
    ) -> None:
        """`tenant`: the one whose clients the topic is for; empty: clients without a tenant. `find_log_id` returns the
        id of the log's topic, and may raise LogUnavailable."""
        self._kafka = kafka
        self._topic = topic
        self._tenant = tenant
        self._codec = codec
        self._log = log
        self._leads = leads
        self._read_leadership = read_leadership
        self._find_log_id = find_log_id
        self._closed = threading.Event()
        self._thread = threads.Thread(target=self._run, name="answers")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stops the thread; does not wait for a request in progress."""
        self._closed.set()

    def _run(self) -> None:
        pause_s = _PAUSE_S
        while not self._closed.wait(pause_s):
            pause_s = _PAUSE_S
            if not self._leads():
                continue
            try:
                self._publish()
            except (LogUnavailable, LogTruncated, KafkaException) as error:
                _log.warning("answers to clients wait; retries", topic=self._topic, error=str(error))
                pause_s = _RETRY_S

    def _publish(self) -> None:
        """Returns when this process does not lead any more. Raises LogUnavailable, LogTruncated, KafkaException."""
        log_id = self._find_log_id()
        first = read_next_offset(self._kafka, self._topic, log_id, _TIMEOUT_S)
        leadership, tail = self._open_log(first)
        self._codec.follow(leadership)
        writer = _AnswersWriter(self._kafka, self._topic, self._codec, log_id)
        marked, marked_at = tail.position, time.monotonic()
        try:
            while not self._closed.is_set() and self._leads():
                has_answered = False
                for record in tail.poll(_PAUSE_S):
                    accepts, before = leadership.accepts(record), leadership
                    leadership = leadership.evolve(record)
                    if leadership is not before:
                        self._codec.follow(leadership)
                    if accepts and record.offset >= first and self._is_answer(record.header):
                        writer.send(record.offset, shorten(Event(record.header, record.body)))
                        has_answered, marked, marked_at = True, tail.position, time.monotonic()
                is_long = (
                    tail.position - marked >= _MOST_EVENTS_UNMARKED
                    or time.monotonic() - marked_at >= _LONGEST_UNMARKED_S
                )
                if is_long and not has_answered and tail.position > first:
                    writer.mark(tail.position - 1)
                    marked, marked_at = tail.position, time.monotonic()
                writer.flush()
        finally:
            tail.close()
            writer.close()

    def _is_answer(self, header: Header) -> bool:
        return kind_of(header.recipient) == CLIENT and header.tenant == self._tenant

    def _open_log(self, first: int) -> tuple[LeadershipState, Tail]:
        def concerns(_: str, recipient: str) -> bool:
            return recipient == EVERYONE or kind_of(recipient) == CLIENT

        try:
            leadership, start = self._read_leadership(first)
            return leadership, self._log.tail(start, concerns=concerns)
        except LogTruncated as error:
            leadership, start = self._read_leadership(None)
            _log.warning(
                "answers to clients are missing: the events before them were deleted from the log",
                topic=self._topic,
                from_offset=first,
                to_offset=start,
                error=str(error),
            )
            return leadership, self._log.tail(start, concerns=concerns)


class _AnswersWriter:
    """Sends records in order. After an error nothing more is sent: a gap would hide the answers in it."""

    def __init__(self, kafka: KafkaConnection, topic: str, codec: Codec, log_id: str) -> None:
        self._topic = topic
        self._codec = codec
        self._log_id = log_id
        self._failures: list[KafkaError] = []
        self._producer = Producer(
            producer_configuration(kafka, ClientRole.ANSWERS_WRITER, enable_gapless_guarantee=True)
        )

    def send(self, offset: int, answer: Event) -> None:
        """Sends the answer of an event at this offset of the log. Raises LogUnavailable."""
        self._produce(
            offset, headers_of(answer), self._codec.encode(answer), answer.header.recipient.encode()
        )

    def mark(self, offset: int) -> None:
        """Sends a record that says: up to this offset of the log all is answered. Raises LogUnavailable."""
        self._produce(offset, [], None, None)

    def _produce(
        self,
        offset: int,
        headers: list[tuple[str, str | bytes | None]],
        value: bytes | None,
        key: bytes | None,
    ) -> None:
        source: list[tuple[str, str | bytes | None]] = [
            (LOG_OFFSET, str(offset).encode()),
            (LOG_ID, self._log_id.encode()),
        ]
        while True:
            self._check()
            try:
                self._producer.produce(
                    self._topic, value, key=key, headers=[*headers, *source], on_delivery=self._on_delivery
                )
                return
            except BufferError:
                self.flush()

    def flush(self) -> None:
        """Returns when all records are durable. Raises LogUnavailable."""
        left = self._producer.flush(_TIMEOUT_S)
        self._check()
        if left:
            raise LogUnavailable(f"{self._topic} does not accept answers within {_TIMEOUT_S:g} s")

    def close(self) -> None:
        """Drops what was not sent."""
        self._producer.purge()
        poll_producer(self._producer, 0)

    def _check(self) -> None:
        if self._failures:
            raise LogUnavailable(f"{self._topic} does not accept answers: {self._failures[0].str()}")

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(error)
