"""The one transactional producer of a subtask.

A transaction holds the results of a commit interval: output buffers, state changes, and the progress entry. It begins
with the first message, and `commit` follows at once. The `transactional.id` is that of the ExecutionVertex: `open`
fences older attempts, and an older attempt that still lives detects that at its next commit.

If the outcome of a commit or abort is unknown, a librdkafka producer (without KIP-890) cannot be used any more. The
state in memory may then be ahead of Kafka. So the attempt fails; its successor fences it, reads what was committed and
continues from there. That is the same path as after a crash, not a second one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from .....infra.kafka_connection import KafkaConnection
from .....infra.retry import ABSENT
from ...common.failures import ProgressLostError, TaskError
from ...common.kafka_clients import TRANSACTION_TIMEOUT_MS, connected, plain_producer, transactional_producer
from ...common.offset_bounds import topic_gone
from ...operators.operator import MessageHeaders
from .watchdog import Watchdog

_TOPIC_APPEARS_S: Final = 3.0
"""A new topic may not be known to all brokers yet."""
_REPORTS_S: Final = 10.0
_PATIENCE_S: Final = 60.0
"""How long retriable errors are retried: as long as the broker keeps the transaction (TRANSACTION_TIMEOUT_MS)."""
_LIST_S: Final = 5.0
_TIMEOUT_S: Final = 10.0
"""The timeout of a single call."""
_FIRST_INIT_S: Final = 0.01
_LONGEST_INIT_S: Final = 0.2
"""The timeouts of `init_transactions`: the first, and the longest."""
_HANGS_S: Final = 12.0
"""A call that exceeds its timeout, and this time, never returns, if Kafka has answered other requests ..."""
_ANSWERING_S: Final = 4.0
"""... for this time."""
_ANSWERS_S: Final = 1.0
"""The timeout of such a request."""


class WaitTimer(Protocol):
    """Measures how long a process waits for Kafka."""

    def waiting_for_kafka(self) -> contextlib.AbstractContextManager[None]:
        """A context in which it waits."""


class KafkaTransaction:
    """Begins, fills and ends transactions. Raises TaskError if the attempt cannot continue.

    `hangs` is called from another thread when a call will never return. Only the end of the process ends such a call.
    """

    def __init__(
        self,
        kafka: KafkaConnection,
        transactional_id: str,
        hangs: Callable[[str], None] = lambda _: None,
        exit_lock: threading.Lock | None = None,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        job_topics: tuple[str, ...] = (),
        timer: WaitTimer | None = None,
    ) -> None:
        """`job_topics`: channels and the changelog. If one of them is gone, the job must roll back to a checkpoint.

        `exit_lock` is held while a transaction is open, so that the process does not end then if possible.

        `timeout_ms`: the age at which the broker aborts a transaction. `timer` measures the waiting for commits.
        """
        self._timer = timer
        self._kafka = kafka
        self._id = transactional_id
        self._exit_lock = exit_lock or threading.Lock()
        self._timeout_ms = timeout_ms
        self._active = False
        self._began_at = 0.0
        self._failure: KafkaError | None = None
        self._topics: set[str] = set()
        """The topics that the transaction has messages for."""
        self._job_topics = frozenset(job_topics)
        self._awaited = 0
        """The messages whose offsets are requested."""
        self._producer = transactional_producer(kafka, transactional_id, timeout_ms)
        self._teller: Producer | None = None
        self._topic = ""
        self._watchdog = Watchdog(
            _HANGS_S, lambda what: hangs(self._hanging(what)), self._kafka_answers, _ANSWERING_S
        )

    def open(self, topic: str) -> None:
        """Fences older attempts and aborts their open transactions. `topic` is any topic that exists, or empty.

        While the broker aborts an open transaction, it refuses the request for a producer id. librdkafka repeats that
        after 500 ms; but a new call of init_transactions repeats it at once, so its timeouts are short.
        """
        self._topic = topic
        connected(self._producer, topic)
        timeouts_s = _init_timeouts_s()
        self._persist("init_transactions", lambda: self._producer.init_transactions(next(timeouts_s)))

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
        headers: MessageHeaders | None = None,
        delivered: Callable[[int], None] | None = None,
    ) -> None:
        """Adds a message to the transaction, and begins one if there is none; `partition` None: by key, or any.

        `delivered` is called with the message's offset before `commit` returns.
        """
        self._begin()
        self._topics.add(topic)
        report = self._on_delivered if delivered is None else self._telling(delivered)
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    -1 if partition is None else partition,
                    on_delivery=report,
                    timestamp=timestamp_ms,
                    headers=headers,  # type: ignore[arg-type]  # it does not change the list
                )
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                raise self._explain_error(f"producing to {topic}", error) from error
            else:
                return

    def require_topic(self, topic: str) -> int:
        """Returns the number of partitions of a topic. Raises TaskError if there is no topic of that name.

        A broker with auto-creation creates the topic now.
        """
        deadline = time.monotonic() + _TOPIC_APPEARS_S
        while True:
            try:
                found = self._producer.list_topics(topic, 10).topics[topic]
            except KafkaException as error:
                raise self._explain_error(f"looking for the topic {topic}", error) from error
            if found.error is None and found.partitions:
                return len(found.partitions)
            if time.monotonic() > deadline:
                raise TaskError(
                    f"the topic {topic!r} of a Kafka sink does not exist at"
                    f" {self._kafka}: create it, or correct its name"
                )
            time.sleep(0.05)

    def tell(self, topic: str, partition: int, value: bytes) -> None:
        """Sends a message outside of transactions; its delivery is not checked."""
        if self._teller is None:
            self._teller = plain_producer(self._kafka)
        with contextlib.suppress(BufferError, KafkaException):  # the next call reports the error
            self._teller.produce(topic, value, partition=partition)
        self._teller.poll(0)

    def commit_offsets(self, offsets: list[TopicPartition], group: Any) -> None:
        """Adds committed offsets of a group to the transaction. `group`: the metadata of a consumer of it."""
        self._begin()
        self._persist(
            "send_offsets_to_transaction",
            lambda: self._producer.send_offsets_to_transaction(offsets, group, _TIMEOUT_S),
        )

    def commit(self) -> None:
        """Ends the transaction; begins one if there is none."""
        self._begin()
        with contextlib.nullcontext() if self._timer is None else self._timer.waiting_for_kafka():
            self._persist("commit_transaction", lambda: self._producer.commit_transaction(_TIMEOUT_S))
        if self._awaited:
            # The commit has delivered all messages; this only collects their delivery reports.
            self._producer.flush(_REPORTS_S)
        if self._failure is not None:
            if self._failure.code() in ABSENT and (missing := self._missing_topic()) is not None:
                raise self._topic_gone(missing)
            raise TaskError(f"a message of {self._id} was not delivered: {self._failure.str()}")
        self._end()

    def abort(self, timeout_s: float = 5.0) -> None:
        """Aborts the transaction, if there is one. If that fails, the fencing of the successor aborts it."""
        if self._active:
            try:
                self._producer.purge()
                with self._watchdog.watch_call("abort_transaction"):
                    self._producer.abort_transaction(timeout_s)
            except KafkaException:
                return
            finally:
                self._end()

    @property
    def active(self) -> bool:
        """Whether a message was sent and not committed."""
        return self._active

    def _begin(self) -> None:
        if not self._active:
            try:
                self._producer.begin_transaction()
            except KafkaException as error:
                raise self._explain_error("begin_transaction", error) from error
            self._exit_lock.acquire()
            self._active = True
            self._began_at = time.monotonic()

    def _end(self) -> None:
        self._active = False
        self._topics.clear()
        self._exit_lock.release()

    def _on_delivered(self, error: KafkaError | None, message: Any) -> None:
        self._failure = self._failure or error

    def _telling(self, delivered: Callable[[int], None]) -> Callable[[KafkaError | None, Any], None]:
        self._awaited += 1

        def report(error: KafkaError | None, message: Any) -> None:
            self._awaited -= 1
            self._on_delivered(error, message)
            if error is None:
                delivered(message.offset())

        return report

    def _persist(self, what: str, call: Any) -> None:
        """Repeats a call until it succeeds or cannot succeed: librdkafka resumes a retriable call."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                with self._watchdog.watch_call(what):
                    call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise self._explain_error(what, error) from error
                if (missing := self._missing_topic()) is not None:
                    # Its messages are retried as long as all others.
                    raise self._topic_gone(missing) from error
                with contextlib.suppress(KafkaException):  # the next call reports the error
                    self._producer.poll(0)  # a poll delivers its log lines

    def _kafka_answers(self) -> bool:
        """Whether Kafka answers. Called from another thread."""
        try:
            self._producer.list_topics(self._topic or None, _ANSWERS_S)
        except KafkaException:
            return False
        return True

    def _hanging(self, what: str) -> str:
        return (
            f"{what} of {self._id} has not returned for {_HANGS_S:.0f} s, longer than its timeout, although"
            " Kafka answers: the process ends, and the next attempt continues from the last commit"
        )

    def _topic_gone(self, topic: str) -> TaskError:
        if topic in self._job_topics:
            return ProgressLostError(topic_gone(topic))
        return TaskError(f"the topic {topic} of a sink was deleted: create it again")

    def _missing_topic(self) -> str | None:
        """Returns a topic of this transaction that does not exist in Kafka; None if all exist or Kafka does not
        answer."""
        if not self._topics:
            return None
        deadline = time.monotonic() + _TOPIC_APPEARS_S
        while True:
            try:
                existing = self._producer.list_topics(timeout=_LIST_S).topics
            except KafkaException:
                return None
            missing = next((topic for topic in sorted(self._topics) if topic not in existing), None)
            if missing is None or time.monotonic() > deadline:
                return missing
            time.sleep(0.2)

    def _explain_error(self, what: str, error: KafkaException) -> TaskError:
        reason: KafkaError = error.args[0]
        if reason.code() in ABSENT and (missing := self._missing_topic()) is not None:
            return self._topic_gone(missing)
        if reason.code() == KafkaError._FATAL:
            # produce() does not report the fatal error; any other call does.
            try:
                self._producer.begin_transaction()
            except KafkaException as fatal:
                reason = fatal.args[0]
        if reason.code() in (
            KafkaError._FENCED,
            KafkaError.PRODUCER_FENCED,
            KafkaError.INVALID_PRODUCER_EPOCH,
        ):
            age = time.monotonic() - self._began_at if self._active else 0.0
            if age >= self._timeout_ms / 1000:
                return TaskError(
                    f"{what} of {self._id} failed: the transaction was open for {age:.0f} s, and Kafka aborts one after"
                    f" {self._timeout_ms / 1000:g} s. The process was stopped, or Kafka was slow or unreachable"
                )
            return TaskError(f"{self._id} was fenced: a newer attempt of this subtask has started")
        return TaskError(f"{what} of {self._id} failed: {reason.name()}: {reason.str()}")


def _init_timeouts_s() -> Iterator[float]:
    timeout_s = _FIRST_INIT_S
    while True:
        yield timeout_s
        timeout_s = min(_LONGEST_INIT_S, 2 * timeout_s)
