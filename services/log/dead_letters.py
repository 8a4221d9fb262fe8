"""The dead-letter topic: records that could not be read or were not allowed, with the reason and their source.

The letter is written before the refusal is recorded, so no refused record lacks one. A record is identified by its
source (topic, partition, offset); a record that is read again after a crash or in a replay gets no second letter. A
process reads only the last few letters for this check. That is enough: log records are read in order, so all up to the
last one with a letter have theirs; of submissions only those that were refused just before a crash are read again.

All masters read the log, and each record gets one letter: a master that does not lead waits, and writes the letter only
if the leader has not.

Letters are for operators. If their topic was deleted, a log line replaces the letter, and the cluster continues.
"""

from __future__ import annotations

import io
import queue
import threading
import time as clock
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ...infra import threads
from ...infra.kafka_connection import KafkaConnection
from ...infra.logging_setup import logger
from ...infra.retry import ABSENT
from ...schemas import avro, released
from ...schemas.dead_letters import DeadLetter
from ...schemas.types import Origin
from .clients import consumer_configuration, poll_message, producer_configuration, watermarks
from .codec import SINGLE_OBJECT
from .event_log import LARGEST_EVENT, LogUnavailable, Unreadable
from .topics import dead_letters_topic, log_topic

_log = logger(__name__)
_LONGEST_KEY = 1 << 16
_MOST_WAITING = 64
"""The maximum number of letters that wait for Kafka; each may have 16 MiB."""
_MOST_READ = 100
"""The number of letters that a process reads before it writes its first; each may have 16 MiB."""
_PAUSE_S = 1.0
_STANDBY_PAUSE_S = 5.0
"""How long a master that does not lead waits for the leader's letter."""


class NoSuchTopic(LogUnavailable):
    """The dead-letter topic was deleted."""


def encode_dead_letter(letter: DeadLetter) -> bytes:
    """Encodes in single-object encoding."""
    out = io.BytesIO()
    out.write(SINGLE_OBJECT + avro.fingerprint(letter.AVRO_NAME))
    datum = msgspec.to_builtins(letter, builtin_types=(bytes,))
    fastavro.schemaless_writer(out, avro.parsed()[letter.AVRO_NAME], datum)
    return out.getvalue()


def decode_dead_letter(
    value: bytes, written_by: Callable[[bytes], released.Writer | None] = released.writer
) -> DeadLetter:
    """Decodes a letter of this release or an earlier one. Raises ValueError for other bytes."""
    ours: Any = avro.parsed()[DeadLetter.AVRO_NAME]
    schema = ours
    if value[:10] != SINGLE_OBJECT + avro.fingerprint(DeadLetter.AVRO_NAME):
        earlier = written_by(value[2:10]) if value[:2] == SINGLE_OBJECT else None
        if earlier is None or earlier.name != DeadLetter.AVRO_NAME:
            raise ValueError(f"{value[:10].hex(' ')} is not the head of a dead letter")
        schema = earlier.schema
    try:
        datum = fastavro.schemaless_reader(io.BytesIO(value[10:]), schema, ours)
        return msgspec.convert(datum, DeadLetter)
    except Exception as error:
        # fastavro raises many types of errors for garbage.
        raise ValueError(f"an invalid dead letter: {type(error).__name__}") from error


class DeadLetters:
    """Writes to `<c>.dead-letters`; thread-safe."""

    def __init__(
        self,
        kafka: KafkaConnection,
        cluster: str,
        *,
        timeout_s: float = 30.0,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """`leads`: whether this master leads, so that it writes letters at once."""
        self._leads = leads
        self._kafka = kafka
        self._cluster = cluster
        self._topic = dead_letters_topic(cluster)
        self._timeout = timeout_s
        self._written: set[tuple[str, int, int]] | None = None
        self._log_written_to = -1
        """The last offset of the log with a letter, among the letters that were read."""
        self._writing = threading.Lock()
        self._watch = kafka.watch()
        self._producer = Producer(producer_configuration(kafka))
        self._waiting: queue.Queue[tuple[Unreadable, int]] = queue.Queue(_MOST_WAITING)
        self._thread = threads.Thread(target=self._write_posted, name="dead letters")

    def post(self, unreadable: Unreadable, time: int) -> None:
        """Like `write`, without waiting: a thread retries until Kafka accepts the letter. If too many wait, a log
        line replaces the letter. Not thread-safe."""
        if self._thread.ident is None:
            self._thread.start()
        try:
            self._waiting.put_nowait((unreadable, time))
        except queue.Full:
            _warn(unreadable, f"{_MOST_WAITING} letters already wait for Kafka")

    def _write_posted(self) -> None:
        while True:
            unreadable, time = self._waiting.get()
            if not self._leads() and not self._is_known(unreadable):
                clock.sleep(_STANDBY_PAUSE_S)
                with self._writing:
                    self._written = None
            while not self._is_written(unreadable, time):
                clock.sleep(_PAUSE_S)

    def _is_known(self, unreadable: Unreadable) -> bool:
        """Returns whether the record has a letter among those that were read last; False if they cannot be read."""
        try:
            with self._writing:
                return self._has_letter((unreadable.topic, unreadable.partition, unreadable.offset))
        except LogUnavailable:
            return False

    def _is_written(self, unreadable: Unreadable, time: int) -> bool:
        try:
            self.write(unreadable, time)
        except LogUnavailable as error:
            _log.warning("a dead letter waits", offset=unreadable.offset, error=str(error))
            return False
        return True

    def write(self, unreadable: Unreadable, time: int) -> None:
        """Writes one letter and waits until it is durable; a record that already has a letter gets no other.

        `time` is in microseconds. Raises LogUnavailable.
        """
        try:
            self._write(unreadable, time)
        except NoSuchTopic as error:
            _warn(unreadable, str(error))

    def _write(self, unreadable: Unreadable, time: int) -> None:
        letter = DeadLetter(
            source=Origin(topic=unreadable.topic, partition=unreadable.partition, offset=unreadable.offset),
            reason=unreadable.reason,
            time=time,
            key=unreadable.key and unreadable.key[:_LONGEST_KEY],
            value=unreadable.value and unreadable.value[:LARGEST_EVENT],
        )
        failures: list[KafkaError] = []
        where = _location_of(letter)
        with self._writing:
            if self._has_letter(where):
                return
            if self._watch.has_changed():
                self._producer = Producer(producer_configuration(self._kafka))
            try:
                self._producer.produce(
                    self._topic,
                    encode_dead_letter(letter),
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
            except KafkaException as error:
                raise LogUnavailable(
                    f"{self._topic} does not accept dead letters: {error.args[0].str()}"
                ) from error
            left = self._producer.flush(self._timeout)
            if failures or left:
                # The topic may have been deleted: the next read detects that, and unsent messages are not sent later.
                self._written = None
                self._producer.purge()
                raise LogUnavailable(
                    f"{self._topic} does not accept dead letters: {failures[0].str() if failures else 'timed out'}"
                )
            self._read_written().add(where)

    def _has_letter(self, where: tuple[str, int, int]) -> bool:
        if where in self._read_written():
            return True
        return where[0] == log_topic(self._cluster) and where[2] <= self._log_written_to

    def _read_written(self) -> set[tuple[str, int, int]]:
        """Returns the records that have letters, as far as they are known."""
        if self._written is None:
            # A replay, or a new leader that repeats its predecessor's last admissions, meets records that have letters.
            letters = read_dead_letters(self._kafka, self._cluster, timeout_s=self._timeout, last=_MOST_READ)
            self._written = {_location_of(letter) for letter in letters}
            own = [source[2] for source in self._written if source[0] == log_topic(self._cluster)]
            self._log_written_to = max(own, default=-1)
        return self._written


def _warn(unreadable: Unreadable, why: str) -> None:
    _log.warning(
        "an unreadable record gets no dead letter",
        topic=unreadable.topic,
        partition=unreadable.partition,
        offset=unreadable.offset,
        reason=unreadable.reason,
        why=why,
    )


def count_dead_letters_since(
    kafka: KafkaConnection, cluster: str, since_ms: int, *, timeout_s: float = 10.0
) -> int:
    """Returns the number of letters that were written at or after a time in milliseconds since the epoch.

    Raises KafkaException.
    """
    topic = dead_letters_topic(cluster)
    consumer = Consumer(consumer_configuration(kafka))
    try:
        _, end = watermarks(consumer, topic, timeout_s)
        (first,) = consumer.offsets_for_times([TopicPartition(topic, 0, since_ms)], timeout=timeout_s)
    finally:
        consumer.close()
    # It is the logical offset of the end, -1, if there are none.
    return end - first.offset if 0 <= first.offset <= end else 0


def _location_of(letter: DeadLetter) -> tuple[str, int, int]:
    return letter.source.topic, letter.source.partition, letter.source.offset


def read_dead_letters(
    kafka: KafkaConnection, cluster: str, *, timeout_s: float = 30.0, last: int | None = None
) -> Iterator[DeadLetter]:
    """Yields the existing letters, oldest first; all of them, or the `last` N. Messages that this release cannot decode
    are skipped.

    Raises LogUnavailable, NoSuchTopic.
    """
    topic = dead_letters_topic(cluster)
    consumer = Consumer(consumer_configuration(kafka, enable_partition_eof=True))
    try:
        low, high = watermarks(consumer, topic, timeout_s)
        low = low if last is None else max(low, high - last)
        consumer.assign([TopicPartition(topic, 0, low)])
        position = low
        while position < high:
            message = poll_message(consumer, timeout_s)
            if message is None:
                raise LogUnavailable(f"{topic} does not answer")
            if message.error() is not None:
                position = max(position, message.offset() or 0)
                continue
            position = (message.offset() or 0) + 1
            try:
                letter = decode_dead_letter(message.value() or b"")
            except ValueError as error:
                # A letter of another release must not end a jobmanager, which only needs to know the sources.
                _log.warning(
                    "skipped an unreadable dead letter", topic=topic, offset=position - 1, reason=str(error)
                )
                continue
            yield letter
    except KafkaException as error:
        if error.args[0].code() in ABSENT:
            raise NoSuchTopic(f"{topic} was deleted: `tailrace cluster start` creates it") from error
        raise LogUnavailable(f"{topic} can't be read: {error.args[0].str()}") from error
    finally:
        consumer.close()
