"""Admission: copies requests from `<c>.submissions`, which clients write, to the log, which only services write.

Each tenant has a topic of its own, `<c>.submissions.<tenant>`, and Kafka's ACLs say who may write it: the topic of a
request says which tenant asks. The topics take turns (tenant_turns.py).

The admitted positions are part of the Dispatcher's state (each admitted event carries its origin). So no consumer group
is needed, and a new leader continues exactly after the last admitted request. A record that cannot be read, or is not a
client's request, becomes a dead letter and a SubmissionRefused.

The topics are checked every few seconds: after one was deleted and created again, admission starts at its beginning
(submissions_topic.py); new partitions are read, too. Large parts of a graph become blobs (inline_limit.py).
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from immutables import Map
from msgspec.structs import replace

from ...infra import threads
from ...infra.admin_client_cache import AdminClientCache
from ...infra.kafka_connection import KafkaConnection
from ...infra.kafka_statistics import ClientRole
from ...infra.logging_setup import logger
from ...infra.open_telemetry import TRACEPARENT, current_traceparent, use_traceparent
from ...schemas import dispatcher
from ...schemas.event import Event
from ...schemas.types import Origin
from ..configuration.role_options import TenantOptions
from ..core.role import CLIENT, DISPATCHER, Clock, Emit, OutgoingEvent
from ..log import Codec, EventLog, LogUnavailable, Undecodable, Unreadable
from ..log.clients import ENDS_READING, client_configuration, consumer_configuration, retry_until, watermarks
from ..log.topics import LARGEST_SUBMISSION, TopicDescription, describe_topics, submissions_topics
from ..log.unreadable_batch import UNREADABLE_BATCH, find_batch_end
from .inline_limit import GraphTooLarge, InlineLimit
from .open_transactions import OpenTransactions
from .recent_requests import read_recent_requests
from .submission_sender import sender_of
from .submissions_topic import AdmittedPositions, AdmittedTopics, SubmissionsTopic, detect_change
from .tenant_turns import TenantTurns

_log = logger(__name__)
REQUESTS = (
    dispatcher.SubmitJob,
    dispatcher.CancelJob,
    dispatcher.TriggerCheckpoint,
    dispatcher.TriggerSavepoint,
    dispatcher.StopWithSavepoint,
    dispatcher.DisposeSavepoint,
    dispatcher.RescaleJob,
    dispatcher.PauseJob,
    dispatcher.ResumeJob,
    dispatcher.RestartTasks,
    dispatcher.ConfigureJob,
    dispatcher.ResetOffsets,
    dispatcher.SetQuarantine,
    dispatcher.RaiseFeatureLevel,
    dispatcher.ShutDownCluster,
)
"""The requests that clients may send."""
OPERATOR_REQUESTS = (dispatcher.RaiseFeatureLevel, dispatcher.SetQuarantine, dispatcher.ShutDownCluster)
"""Those about the whole cluster, which no tenant may send."""
_SENDER = re.compile(rf"{CLIENT}/[A-Za-z0-9._-]{{1,64}}")
_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,300}")
_LATEST = 1 << 53
"""Microseconds since the epoch, in the year 2255: every reader of the log can convert it to a date."""
_PATIENCE_S = 30.0
_REGISTRY_PAUSE_S = 1.0
_LOOK_S = 2.0
"""The interval at which the topics' ids are checked."""
_POLL_S = 0.1
_WARN_S = 60.0
_RESET = ENDS_READING | {KafkaError._AUTO_OFFSET_RESET}


_NO_TENANTS: Mapping[str, TenantOptions] = {}
_Place = tuple[str, int]
"""A tenant, and a partition of its topic."""


class _TopicChanged(Exception):
    """The topics must be checked again before reading continues."""


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
        inline: InlineLimit | None = None,
        tenants: Mapping[str, TenantOptions] = _NO_TENANTS,
    ) -> None:
        """`tenants`: those with topics of their own. `inline`: the limit of the inline parts of a graph; None: no
        limit."""
        self._kafka = kafka
        self._topics = submissions_topics(cluster, tenants)
        self._tenants = {topic: tenant for tenant, topic in self._topics.items()}
        self._turns: TenantTurns[Message] = TenantTurns(
            {tenant: options.max_requests_per_minute for tenant, options in tenants.items()}
        )
        self._paused: set[str] = set()
        """The tenants whose topics are not read for now."""
        self._codec = codec
        self._log = log
        self._say = say
        self._write_dead_letter = write_dead_letter
        self._clock = clock
        self._inline = inline or InlineLimit(None, LARGEST_SUBMISSION, LARGEST_SUBMISSION)
        self._on_failure = on_failure
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._admitted: AdmittedTopics = Map()
        self._followed = threading.Event()
        self._positions: dict[_Place, int] = {}
        """The next offset to admit."""
        self._warned_at: float | None = None
        self._counts_minute = not self._turns.has_limits
        """Whether the requests that earlier leaders have admitted in the last minute are counted."""

    def start(self, admitted: AdmittedTopics) -> None:
        """Starts admission after these positions; called once."""
        self._admitted = admitted
        self._thread = threads.Thread(target=self._run, name="submissions")
        self._thread.start()

    def follow(self, admitted: AdmittedTopics) -> None:
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
        """Returns when a topic or a file of the connection has changed, all topics are missing, or `close` was
        called."""
        watch = self._kafka.watch()
        described = self._describe(admin)
        if not described:
            self._stop.wait(_LOOK_S)
            return
        consumer = Consumer(
            consumer_configuration(self._kafka, ClientRole.SUBMISSIONS_READER, auto_offset_reset="error")
        )
        try:
            found = self._read_extent(consumer, described)
            if not all(self._is_agreed(tenant, topic) for tenant, topic in found.items()):
                return
            if not self._counts_minute:
                for tenant, age_s in read_recent_requests(self._kafka, self._log, self._codec, self._clock):
                    self._turns.count(tenant, time.monotonic() - age_s)
                self._counts_minute = True
            self._assign(consumer, found)
            looked = time.monotonic()
            # One topic at each look: tenants cost no more requests than one topic.
            transactions = itertools.cycle(
                [
                    (
                        OpenTransactions(self._kafka, admin, self._topics[tenant], time.monotonic),
                        topic.partitions,
                    )
                    for tenant, topic in described.items()
                ]
            )
            while not self._stop.is_set():
                if not self._read(consumer) or not self._admit_next(consumer):
                    return
                if time.monotonic() - looked > _LOOK_S:
                    looked = time.monotonic()
                    if self._describe(admin) not in ({}, described) or watch.has_changed():
                        return
                    watched, partitions = next(transactions)
                    watched.check(partitions)
        except (_TopicChanged, LogUnavailable) as error:
            self._warn("submissions wait", reason=str(error))
            self._stop.wait(_LOOK_S)
        finally:
            consumer.close()

    def _describe(self, admin: AdminClient) -> dict[str, TopicDescription]:
        """Returns the descriptions of the topics that exist, by tenant; empty if Kafka does not answer."""
        try:
            described = describe_topics(admin, self._tenants)
        except LogUnavailable as error:
            self._warn("submissions wait", reason=str(error))
            return {}
        found = {}
        for tenant, topic in self._topics.items():
            if (description := described[topic]) is not None:
                found[tenant] = description
                continue
            self._warn(
                "the topic of submissions does not exist, so no job can be submitted through it: was it deleted? "
                "`tailrace cluster start` creates it",
                topic=topic,
            )
        return found

    def _read_extent(
        self, consumer: Consumer, described: Mapping[str, TopicDescription]
    ) -> dict[str, SubmissionsTopic]:
        """Returns the offsets of each partition, by tenant. The topic without a tenant is the last: once the log knows
        it, the log is not new. Raises LogUnavailable."""
        found = {}
        for tenant in sorted(described, reverse=True):
            topic = self._topics[tenant]
            partitions = partitions_of(consumer, topic, _PATIENCE_S)
            offsets = [offsets_of(consumer, topic, partition, _PATIENCE_S) for partition in partitions]
            found[tenant] = SubmissionsTopic(described[tenant].topic_id, offsets)
        return found

    def _is_agreed(self, tenant: str, found: SubmissionsTopic) -> bool:
        """Returns whether the log's positions belong to this topic. If not, appends the change to the log and waits
        for it."""
        topic = self._topics[tenant]
        while not self._stop.is_set():
            changed = detect_change(topic, self._admitted, found, tenant)
            if changed is None:
                return True
            is_known = bool(self._admitted.get(tenant, AdmittedPositions()).positions)
            log = _log.warning if found.size or is_known else _log.info
            log(
                "the topic of submissions has changed",
                reason=changed.reason,
                positions=list(changed.positions),
            )
            self._say(DISPATCHER, OutgoingEvent(DISPATCHER, changed, None))
            self._positions = {place: each for place, each in self._positions.items() if place[0] != tenant}
            while detect_change(topic, self._admitted, found, tenant) == changed and not self._stop.is_set():
                self._followed.wait()
                self._followed.clear()
        return False

    def _assign(self, consumer: Consumer, found: Mapping[str, SubmissionsTopic]) -> None:
        for tenant, topic in found.items():
            known = self._admitted.get(tenant, AdmittedPositions()).positions
            for partition, (first, _) in enumerate(topic.offsets):
                position = max(known.get(partition, 0), self._positions.get((tenant, partition), 0))
                if position < first:
                    _log.warning(
                        "submissions were deleted before they were admitted",
                        topic=self._topics[tenant],
                        partition=partition,
                        from_offset=position,
                        to_offset=first - 1,
                    )
                self._positions[tenant, partition] = max(position, first)
        # What was read and not admitted is read again.
        self._turns.clear()
        self._paused.clear()
        consumer.assign(
            [
                TopicPartition(self._topics[tenant], partition, position)
                for (tenant, partition), position in sorted(self._positions.items())
                if tenant in found
            ]
        )
        if len(found) == len(self._topics):
            self._warned_at = None

    def _warn(self, what: str, **more: object) -> None:
        """Logs a warning, with a rate limit."""
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at > _WARN_S:
            self._warned_at = now
            _log.warning(what, **more)

    def _read(self, consumer: Consumer) -> bool:
        """Reads all records that are there, a few of each tenant. Returns False if reading must start again at the
        positions."""
        wait_s = 0.0 if self._turns.has_next(time.monotonic()) else _POLL_S
        # With one topic only, reading just stops: a pause discards what the consumer has fetched.
        while len(self._topics) > 1 or not self._turns.is_full(""):
            message = consumer.poll(wait_s)
            if message is None:
                return True
            wait_s = 0.0
            tenant = self._tenants.get(message.topic() or "")
            if tenant is None:
                # An error that concerns no topic.
                if not self._take("", message):
                    return False
                continue
            self._turns.add(tenant, message, len(message))
            if self._turns.is_full(tenant) and len(self._topics) > 1 and tenant not in self._paused:
                self._paused.add(tenant)
                consumer.pause(self._partitions(tenant))
        return True

    def _admit_next(self, consumer: Consumer) -> bool:
        """Admits the record whose turn it is. Returns False if reading must start again at the positions."""
        taken = self._turns.take(time.monotonic())
        if taken is None:
            return True
        tenant, message = taken
        if not self._take(tenant, message):
            return False
        if tenant in self._paused and self._turns.is_empty(tenant):
            self._paused.discard(tenant)
            consumer.resume(self._partitions(tenant))
        return True

    def _partitions(self, tenant: str) -> list[TopicPartition]:
        return [
            TopicPartition(self._topics[tenant], partition)
            for of, partition in self._positions
            if of == tenant
        ]

    def _take(self, tenant: str, message: Message) -> bool:
        """Admits a record. Returns False if reading must start again at the positions."""
        topic, error = self._topics[tenant], message.error()
        if error is not None:
            if error.code() in UNREADABLE_BATCH:
                self._pass_over_batch(tenant, message, error)
                return False
            if error.fatal():
                raise RuntimeError(f"{topic} can't be read: {error.str()}")
            if error.code() in _RESET:
                raise _TopicChanged(f"{topic} cannot be read further: {error.str()}")
            if not error.retriable():
                self._warn("cannot read submissions", topic=topic, error=error.str())
            return True
        place, offset = (tenant, message.partition() or 0), message.offset() or 0
        if offset < self._positions.get(place, 0):
            raise _TopicChanged(f"{topic} goes back from offset {self._positions[place]} to {offset}")
        self._admit(tenant, message)
        self._positions[place] = offset + 1
        return True

    def _pass_over_batch(self, tenant: str, message: Message, error: KafkaError) -> None:
        """Refuses a batch that cannot be decompressed, such as one that expands to hundreds of megabytes."""
        partition, first = message.partition() or 0, message.offset() or 0
        topic = self._topics[tenant]
        end = find_batch_end(self._kafka, topic, partition, first)
        records = f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"
        reason = f"the batch at {records} cannot be decompressed: {error.str()}"
        # The refusal names the last record, so that the next leader starts after the batch.
        origin = Origin(topic=topic, partition=partition, offset=end - 1, tenant=tenant)
        self._refuse(origin, reason, None, None)
        self._positions[tenant, partition] = end

    def _admit(self, tenant: str, message: Message) -> None:
        origin = Origin(
            topic=self._topics[tenant],
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            tenant=tenant,
        )
        use_traceparent(find_traceparent(message))
        try:
            value = message.value()
            if value is not None and len(value) > LARGEST_SUBMISSION:
                # The topic accepts it only if it is compressed.
                raise Undecodable(
                    f"{len(value):,} bytes are too many: at most {LARGEST_SUBMISSION:,} are accepted"
                )
            event = self._decode(value, origin.topic)
            if event is None:
                return
            if event.header.traceparent is not None:
                use_traceparent(event.header.traceparent)
            check_allowed(event, tenant)
            body = self._inline.apply_to_submission(event.body)
        except (Undecodable, GraphTooLarge) as reason:
            self._refuse(origin, str(reason), message.key(), message.value())
            return
        header = replace(
            event.header,
            # The clock of the client is not that of the cluster.
            time=self._clock(),
            recipient=DISPATCHER,
            sender_epoch=0,
            decided_at=None,
            cause=None,
            origin=origin,
            tenant="",
            traceparent=current_traceparent(),
        )
        self._log.append([Event(header, body)])

    def _decode(self, value: bytes | None, topic: str) -> Event | None:
        """Returns the event; None if the reader is closed while the registry is unreachable. Raises Undecodable."""
        while not self._stop.is_set():
            try:
                return self._codec.decode(value)
            except LogUnavailable as error:
                # Only submissions wait for the registry: jobs continue meanwhile.
                _log.warning("a submission waits", topic=topic, error=str(error))
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


def find_traceparent(message: Message) -> str | None:
    """Returns the traceparent in the headers of a Kafka message, where instrumented producers put it."""
    found = dict(message.headers() or ()).get(TRACEPARENT)
    return found.decode(errors="replace") if isinstance(found, bytes) else None


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


def check_allowed(event: Event, tenant: str = "") -> None:
    """Raises Undecodable if a client must not send this event, or not in this form: all replicas have to read it for
    ever. `tenant`: that of the topic; empty: none."""
    name = event.body.AVRO_NAME
    if tenant and isinstance(event.body, OPERATOR_REQUESTS):
        raise Undecodable(
            f"{name} is about the whole cluster, and tenant {tenant} may not send it: the operator sends it to the "
            "topic of submissions without a tenant"
        )
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
    by_rest = event.header.rest_origin
    if by_rest is not None and not all(map(_NAME.fullmatch, (by_rest.principal, by_rest.server))):
        raise Undecodable("the principal or the REST server is not a text of 1 to 300 printable characters")
    if not 0 <= event.header.time <= _LATEST:
        raise Undecodable(f"the time {event.header.time} is not 0 to 2^53: give microseconds since the epoch")
