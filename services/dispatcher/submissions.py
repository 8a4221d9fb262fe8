"""Admission: from `<c>.submissions`, which clients write, into the log, which only services write.

How far the submissions are admitted is part of the Dispatcher's state (each admitted event carries its origin), so no
consumer group is needed, and a new leader goes on exactly behind the last one. What can't be read, or is no request
of a client, becomes a dead letter and a SubmissionRefused.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from msgspec.structs import replace

from ...schemas import dispatcher
from ...schemas.event import Event
from ...schemas.types import Origin
from ..diagnostics import logger
from ..log import Codec, EventLog, LogUnavailable, Undecodable, Unreadable
from ..log.clients import patiently, reader
from ..log.topics import LARGEST_SUBMISSION, submissions_topic
from ..roles import CLIENT, DISPATCHER, Clock, Owed, Say

_log = logger(__name__)
REQUESTS = (
    dispatcher.SubmitJob,
    dispatcher.CancelJob,
    dispatcher.TriggerCheckpoint,
    dispatcher.TriggerSavepoint,
    dispatcher.StopWithSavepoint,
    dispatcher.DisposeSavepoint,
    dispatcher.RaiseFeatureLevel,
    dispatcher.ShutDownCluster,
)
"""What clients may ask for."""
_SENDER = re.compile(rf"{CLIENT}/[A-Za-z0-9._-]{{1,64}}")
_LATEST = 1 << 53
"""Microseconds since the epoch, in the year 2255: every reader of the log can make a date of it."""
_PATIENCE_S = 30.0
_REGISTRY_PAUSE_S = 1.0


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
        stamps: bool = False,
    ) -> None:
        """`stamps`: what is admitted has the time of the clock here, not that of the client's."""
        self._servers = bootstrap_servers
        self._topic = submissions_topic(cluster)
        self._codec = codec
        self._log = log
        self._say = say
        self._write_dead_letter = write_dead_letter
        self._clock = clock
        self._stamps = stamps
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
            consumer.assign(
                [
                    TopicPartition(self._topic, partition, positions.get(partition, OFFSET_BEGINNING))
                    for partition in partitions_of(consumer, self._topic, _PATIENCE_S)
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
            event = self._decode(value)
            if event is None:
                return
            check_allowed(event)
        except Undecodable as reason:
            self._refuse(message, origin, str(reason))
            return
        header = replace(
            event.header,
            time=self._clock() if self._stamps else event.header.time,
            recipient=DISPATCHER,
            sender_epoch=0,
            decided_at=None,
            cause=None,
            origin=origin,
        )
        self._log.append([Event(header, event.body)])

    def _decode(self, value: bytes | None) -> Event | None:
        """The event; None where the reader is stopped while the registry is away. Raises Undecodable."""
        while not self._stop.is_set():
            try:
                return self._codec.decode(value)
            except LogUnavailable as error:
                # Only submissions wait for the registry: jobs run on meanwhile.
                _log.warning("a submission waits", topic=self._topic, error=str(error))
                self._stop.wait(_REGISTRY_PAUSE_S)
        return None

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


def partitions_of(consumer: Consumer, topic: str, timeout: float) -> list[int]:
    """The topic's partitions, one or more. Raises LogUnavailable where it has none within `timeout` seconds."""

    def ask() -> list[int]:
        found = consumer.list_topics(topic, timeout=timeout).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        if not found.partitions:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return sorted(found.partitions)

    try:
        return patiently(ask, timeout)
    except KafkaException as error:
        raise LogUnavailable(
            f"{topic} can't be read: {error.args[0].str()}; was it deleted? `tailrace cluster start` creates it"
        ) from error


def check_allowed(event: Event) -> None:
    """Raises Undecodable where a client must not say this, or not so: all replicas are to read it for ever."""
    name = event.body.AVRO_NAME
    if not isinstance(event.body, REQUESTS):
        allowed = ", ".join(request.AVRO_NAME for request in REQUESTS)
        raise Undecodable(f"{name} is not for clients to say; allowed are {allowed}")
    if not _SENDER.fullmatch(event.header.sender):
        raise Undecodable(
            f"the sender {event.header.sender[:80]!r} is no client: name it client/<your name>, the name of "
            "1 to 64 letters, digits, '.', '_' or '-'"
        )
    if not 0 <= event.header.time <= _LATEST:
        raise Undecodable(f"the time {event.header.time} is not 0 to 2^53: give microseconds since the epoch")
