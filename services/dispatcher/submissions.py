"""Admission: from `<c>.submissions`, which clients write, into the log, which only services write.

How far the submissions are admitted is part of the Dispatcher's state (each admitted event carries its origin), so no
consumer group is needed, and a new leader goes on exactly behind the last one. What can't be read, or is no request
of a client, becomes a dead letter and a SubmissionRefused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from msgspec.structs import replace

from ...schemas import dispatcher
from ...schemas.event import Event
from ...schemas.types import Origin
from ..log import Codec, EventLog, Undecodable, Unreadable
from ..log.clients import reader
from ..log.topics import LARGEST_SUBMISSION, submissions_topic
from ..roles import CLIENT, DISPATCHER, Clock, Owed, Say, kind_of

_log = structlog.get_logger(__name__)
REQUESTS = (dispatcher.SubmitJob, dispatcher.CancelJob, dispatcher.ShutDownCluster)
"""What clients may ask for."""


class SubmissionsReader:
    """A thread that admits submissions for as long as its process leads the Dispatcher."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        cluster: str,
        codec: Codec,
        log: EventLog,
        say: Say,
        write_dead_letter: Callable[[Unreadable, int], None],
        clock: Clock,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._servers = bootstrap_servers
        self._topic = submissions_topic(cluster)
        self._codec = codec
        self._log = log
        self._say = say
        self._write_dead_letter = write_dead_letter
        self._clock = clock
        self._on_failure = on_failure
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, positions: Mapping[int, int]) -> None:
        """Begins behind `positions`: partition -> the next offset to admit."""
        self._thread = threading.Thread(
            target=self._run, args=(dict(positions),), name="submissions", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops; what was not admitted yet stays in the topic."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, positions: dict[int, int]) -> None:
        consumer = Consumer(reader(self._servers, auto_offset_reset="earliest"))
        try:
            partitions = consumer.list_topics(self._topic, timeout=30).topics[self._topic].partitions
            consumer.assign(
                [
                    TopicPartition(self._topic, partition, positions.get(partition, OFFSET_BEGINNING))
                    for partition in sorted(partitions)
                ]
            )
            while not self._stop.is_set():
                message = consumer.poll(0.1)
                if message is not None:
                    self._take(message)
        except Exception as error:
            if not self._stop.is_set():
                self._on_failure(error)
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise RuntimeError(f"{self._topic} can't be read: {error.str()}")
            return
        origin = Origin(topic=self._topic, partition=message.partition() or 0, offset=message.offset() or 0)
        try:
            value = message.value()
            if value is not None and len(value) > LARGEST_SUBMISSION:
                # The topic takes it only if it is compressed.
                raise Undecodable(
                    f"{len(value):,} bytes are too many: at most {LARGEST_SUBMISSION:,} are taken"
                )
            event = self._codec.decode(value)
            _check_allowed(event)
        except Undecodable as reason:
            self._refuse(message, origin, str(reason))
            return
        header = replace(
            event.header, recipient=DISPATCHER, sender_epoch=0, decided_at=None, cause=None, origin=origin
        )
        self._log.append([Event(header, event.body)])

    def _refuse(self, message: Message, origin: Origin, reason: str) -> None:
        _log.warning(
            "refused a submission",
            topic=origin.topic,
            partition=origin.partition,
            offset=origin.offset,
            reason=reason,
        )
        key = message.key()
        unreadable = Unreadable(
            origin.topic,
            origin.partition,
            origin.offset,
            reason,
            key,
            message.value(),
        )
        self._write_dead_letter(unreadable, self._clock())
        self._say(
            DISPATCHER, Owed(DISPATCHER, dispatcher.SubmissionRefused(source=origin, reason=reason), None)
        )


def _check_allowed(event: Event) -> None:
    name = event.body.AVRO_NAME
    if not isinstance(event.body, REQUESTS):
        allowed = ", ".join(request.AVRO_NAME for request in REQUESTS)
        raise Undecodable(f"{name} is not for clients to say; allowed are {allowed}")
    if kind_of(event.header.sender) != CLIENT:
        raise Undecodable(f"the sender {event.header.sender[:80]!r} is no client: name it client/<your name>")
