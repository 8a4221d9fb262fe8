"""Admission: copies requests from `<c>.submissions`, which clients write, to the log, which only services write.

The admitted positions are part of the Dispatcher's state (each admitted event carries its origin). So no consumer group
is needed, and a new leader continues exactly after the last admitted request. A record that cannot be read, or is not a
client's request, becomes a dead letter and a SubmissionRefused.

The topic is checked every few seconds: after it was deleted and created again, admission starts at its beginning
(submissions_topic.py); new partitions are read, too. Large parts of a graph become blobs (inline_limit.py).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from ...infra import threads
from ...infra.admin_client_cache import AdminClientCache
from ...infra.kafka_connection import KafkaConnection
from ...infra.logging_setup import logger
from ...schemas import dispatcher
from ...schemas.event import Event
from ...schemas.types import Origin
from ..core.role import CLIENT, DISPATCHER, Clock, Emit, OutgoingEvent
from ..log import Codec, EventLog, LogUnavailable, Undecodable, Unreadable
from ..log.clients import ENDS_READING, client_configuration, consumer_configuration, retry_until, watermarks
from ..log.topics import LARGEST_SUBMISSION, TopicDescription, describe_topics, submissions_topic
from ..log.unreadable_batch import UNREADABLE_BATCH, find_batch_end
from .inline_limit import GraphTooLarge, InlineLimit
from .open_transactions import OpenTransactions
from .submission_sender import sender_of
from .submissions_topic import AdmittedPositions, SubmissionsTopic, detect_change

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
"""The requests that clients may send."""
_SENDER = re.compile(rf"{CLIENT}/[A-Za-z0-9._-]{{1,64}}")
_LATEST = 1 << 53
"""Microseconds since the epoch, in the year 2255: every reader of the log can convert it to a date."""
_PATIENCE_S = 30.0
_REGISTRY_PAUSE_S = 1.0
_LOOK_S = 2.0
"""The interval at which the topic's id is checked."""
_WARN_S = 60.0
_RESET = ENDS_READING | {KafkaError._AUTO_OFFSET_RESET}


class _TopicChanged(Exception):
    """The topic must be checked again before reading continues."""


class SubmissionsReader:
    """A thread that admits submissions while its process leads the Dispatcher."""

    def __init__(
        self,
        *,
        kafka: KafkaConnection,
        cluster: str,
        codec: Codec,
        log: EventLog,
        say: Emit,
        write_dead_letter: Callable[[Unreadable, int], None],
        clock: Clock,
        on_failure: Callable[[Exception], None],
        stamps: bool = False,
        inline: InlineLimit | None = None,
    ) -> None:
        """`inline`: the limit of the inline parts of a graph; None: no limit. `stamps`: admitted events get the time
        of the clock here instead of the client's time."""
        self._kafka = kafka
        self._topic = submissions_topic(cluster)
        self._codec = codec
        self._log = log
        self._say = say
        self._write_dead_letter = write_dead_letter
        self._clock = clock
        self._stamps = stamps
        self._inline = inline or InlineLimit(None, LARGEST_SUBMISSION, LARGEST_SUBMISSION)
        self._on_failure = on_failure
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._admitted = AdmittedPositions(None, {})
        self._followed = threading.Event()
        self._positions: dict[int, int] = {}
        """Partition -> the next offset to read."""
        self._warned_at: float | None = None

    def start(self, admitted: AdmittedPositions) -> None:
        """Starts admission after these positions; called once."""
        self._admitted = admitted
        self._thread = threads.Thread(target=self._run, name="submissions")
        self._thread.start()

    def follow(self, admitted: AdmittedPositions) -> None:
        """Sets the positions that the log has admitted by now."""
        self._admitted = admitted
        self._followed.set()

    def close(self) -> None:
        """Stops admission. Submissions that were not admitted yet stay in the topic."""
        self._stop.set()
        self._followed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        admin = AdminClientCache(lambda: client_configuration(self._kafka), self._kafka.version)
        try:
            while not self._stop.is_set():
                self._admit_while_unchanged(admin.client())
        except Exception as error:
            if not self._stop.is_set():
                self._on_failure(error)

    def _admit_while_unchanged(self, admin: AdminClient) -> None:
        """Returns when the topic or a file of the connection has changed, the topic is missing, or `close` was
        called."""
        watch = self._kafka.watch()
        described = self._describe(admin)
        if described is None:
            self._stop.wait(_LOOK_S)
            return
        consumer = Consumer(consumer_configuration(self._kafka, auto_offset_reset="error"))
        try:
            found = self._read_extent(consumer, described)
            if not self._is_agreed(found):
                return
            self._assign(consumer, found)
            looked = time.monotonic()
            transactions = OpenTransactions(self._kafka, admin, self._topic, time.monotonic)
            while not self._stop.is_set():
                message = consumer.poll(0.1)
                if message is not None and not self._take(message):
                    return
                if time.monotonic() - looked > _LOOK_S:
                    looked = time.monotonic()
                    if self._describe(admin) not in (None, described) or watch.has_changed():
                        return
                    transactions.check(described.partitions)
        except (_TopicChanged, LogUnavailable) as error:
            self._warn("submissions wait", reason=str(error))
            self._stop.wait(_LOOK_S)
        finally:
            consumer.close()

    def _describe(self, admin: AdminClient) -> TopicDescription | None:
        """Returns the description of the topic in Kafka; None if it does not exist or Kafka does not answer."""
        try:
            found = describe_topics(admin, [self._topic])[self._topic]
        except LogUnavailable as error:
            self._warn("submissions wait", reason=str(error))
            return None
        if found is None:
            self._warn(
                "the topic of submissions does not exist, so no job can be submitted: was it deleted? `tailrace "
                "cluster start` creates it",
                topic=self._topic,
            )
        return found

    def _read_extent(self, consumer: Consumer, described: TopicDescription) -> SubmissionsTopic:
        """Returns the offsets of each partition. Raises LogUnavailable."""
        partitions = partitions_of(consumer, self._topic, _PATIENCE_S)
        offsets = [offsets_of(consumer, self._topic, partition, _PATIENCE_S) for partition in partitions]
        return SubmissionsTopic(described.topic_id, offsets)

    def _is_agreed(self, found: SubmissionsTopic) -> bool:
        """Returns whether the log's positions belong to this topic. If not, appends the change to the log and waits
        for it."""
        while not self._stop.is_set():
            changed = detect_change(self._topic, self._admitted, found)
            if changed is None:
                return True
            tell = _log.warning if found.size or self._admitted.positions else _log.info
            tell(
                "the topic of submissions has changed",
                reason=changed.reason,
                positions=list(changed.positions),
            )
            self._say(DISPATCHER, OutgoingEvent(DISPATCHER, changed, None))
            self._positions = {}
            while detect_change(self._topic, self._admitted, found) == changed and not self._stop.is_set():
                self._followed.wait()
                self._followed.clear()
        return False

    def _assign(self, consumer: Consumer, found: SubmissionsTopic) -> None:
        known = self._admitted.positions
        for partition, (first, _) in enumerate(found.offsets):
            position = max(known.get(partition, 0), self._positions.get(partition, 0))
            if position < first:
                _log.warning(
                    "submissions were deleted before they were admitted",
                    topic=self._topic,
                    partition=partition,
                    from_offset=position,
                    to_offset=first - 1,
                )
            self._positions[partition] = max(position, first)
        consumer.assign([TopicPartition(self._topic, *each) for each in sorted(self._positions.items())])
        self._warned_at = None

    def _warn(self, what: str, **more: object) -> None:
        """Logs a warning, with a rate limit."""
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at > _WARN_S:
            self._warned_at = now
            _log.warning(what, **more)

    def _take(self, message: Message) -> bool:
        """Admits records. Returns False if reading must start again at the positions."""
        error = message.error()
        if error is not None:
            if error.code() in UNREADABLE_BATCH:
                self._pass_over_batch(message, error)
                return False
            if error.fatal():
                raise RuntimeError(f"{self._topic} can't be read: {error.str()}")
            if error.code() in _RESET:
                raise _TopicChanged(f"{self._topic} cannot be read further: {error.str()}")
            if not error.retriable():
                self._warn("cannot read submissions", topic=self._topic, error=error.str())
            return True
        partition, offset = message.partition() or 0, message.offset() or 0
        if offset < self._positions.get(partition, 0):
            raise _TopicChanged(
                f"{self._topic} goes back from offset {self._positions[partition]} to {offset}"
            )
        self._admit(message)
        self._positions[partition] = offset + 1
        return True

    def _pass_over_batch(self, message: Message, error: KafkaError) -> None:
        """Refuses a batch that cannot be decompressed, such as one that expands to hundreds of megabytes."""
        partition, first = message.partition() or 0, message.offset() or 0
        end = find_batch_end(self._kafka, self._topic, partition, first)
        records = f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"
        reason = f"the batch at {records} cannot be decompressed: {error.str()}"
        # The refusal names the last record, so that the next leader starts after the batch.
        self._refuse(Origin(topic=self._topic, partition=partition, offset=end - 1), reason, None, None)
        self._positions[partition] = end

    def _admit(self, message: Message) -> None:
        origin = Origin(topic=self._topic, partition=message.partition() or 0, offset=message.offset() or 0)
        try:
            value = message.value()
            if value is not None and len(value) > LARGEST_SUBMISSION:
                # The topic accepts it only if it is compressed.
                raise Undecodable(
                    f"{len(value):,} bytes are too many: at most {LARGEST_SUBMISSION:,} are accepted"
                )
            event = self._decode(value)
            if event is None:
                return
            check_allowed(event)
            body = self._inline.apply_to_submission(event.body)
        except (Undecodable, GraphTooLarge) as reason:
            self._refuse(origin, str(reason), message.key(), message.value())
            return
        header = replace(
            event.header,
            # A client without a time sends 0.
            time=self._clock() if self._stamps or event.header.time <= 0 else event.header.time,
            recipient=DISPATCHER,
            sender_epoch=0,
            decided_at=None,
            cause=None,
            origin=origin,
        )
        self._log.append([Event(header, body)])

    def _decode(self, value: bytes | None) -> Event | None:
        """Returns the event; None if the reader is closed while the registry is unreachable. Raises Undecodable."""
        while not self._stop.is_set():
            try:
                return self._codec.decode(value)
            except LogUnavailable as error:
                # Only submissions wait for the registry: jobs continue meanwhile.
                _log.warning("a submission waits", topic=self._topic, error=str(error))
                self._stop.wait(_REGISTRY_PAUSE_S)
        return None

    def _refuse(self, origin: Origin, reason: str, key: bytes | None, value: bytes | None) -> None:
        _log.warning(
            "refused a submission",
            topic=origin.topic,
            partition=origin.partition,
            offset=origin.offset,
            reason=reason,
        )
        unreadable = Unreadable(origin.topic, origin.partition, origin.offset, reason, key, value)
        self._write_dead_letter(unreadable, self._clock())
        sender = sender_of(value or b"")
        refused = dispatcher.SubmissionRefused(
            source=origin,
            reason=reason,
            client="" if sender is None else sender.client,
            job_id="" if sender is None else sender.job_id,
        )
        self._say(DISPATCHER, OutgoingEvent(DISPATCHER, refused, None))


def partitions_of(consumer: Consumer, topic: str, timeout_s: float) -> list[int]:
    """Returns the partitions of the topic, one or more. Raises LogUnavailable if it has none within `timeout_s`
    seconds."""

    def ask() -> list[int]:
        found = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        if not found.partitions:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return sorted(found.partitions)

    try:
        return retry_until(ask, timeout_s)
    except KafkaException as error:
        raise LogUnavailable(
            f"{topic} can't be read: {error.args[0].str()}; was it deleted? `tailrace cluster start` creates it"
        ) from error


def offsets_of(consumer: Consumer, topic: str, partition: int, timeout_s: float) -> tuple[int, int]:
    """Returns the first offset of the partition, and the one after its last. Raises LogUnavailable."""
    try:
        return watermarks(consumer, topic, timeout_s, partition)
    except KafkaException as error:
        raise LogUnavailable(f"{topic} can't be read: {error.args[0].str()}") from error


def check_allowed(event: Event) -> None:
    """Raises Undecodable if a client must not send this event, or not in this form: all replicas have to read it for
    ever."""
    name = event.body.AVRO_NAME
    if not isinstance(event.body, REQUESTS):
        allowed = ", ".join(request.AVRO_NAME for request in REQUESTS)
        raise Undecodable(f"{name} may not be sent by clients; allowed are {allowed}")
    if not _SENDER.fullmatch(event.header.sender):
        raise Undecodable(
            f"the sender {event.header.sender[:80]!r} is not a client: name it client/<your name>, the name with "
            "1 to 64 letters, digits, '.', '_' or '-'"
        )
    if isinstance(event.body, dispatcher.SubmitJob) and event.body.job_id.startswith("-"):
        raise Undecodable(
            f"the job id {event.body.job_id[:80]!r} begins with '-', so commands would read it as an option: begin it "
            "with a letter or digit"
        )
    if not 0 <= event.header.time <= _LATEST:
        raise Undecodable(f"the time {event.header.time} is not 0 to 2^53: give microseconds since the epoch")
