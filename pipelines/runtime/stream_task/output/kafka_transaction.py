"""A subtask's one transactional producer.

A transaction holds what a commit interval made: output buffers, changes of state, and the progress entry.
It begins with the first thing to send, and `commit` follows at once. `transactional.id` is the ExecutionVertex: `open`
fences whoever used it before, and an older attempt that still lives learns of it at its next commit.

Where the outcome of a commit or abort is unknown, librdkafka (no KIP-890) may only be thrown away. State in
memory is then ahead of Kafka, or not; so the attempt fails, and its successor fences, reads what was
committed and goes on from there: the same path as after a crash, instead of a second one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from .....infra.retry import ABSENT
from ...common.failures import ProgressLostError, TaskError
from ...common.kafka_clients import TRANSACTION_TIMEOUT_MS, connected, plain_producer, transactional_producer
from ...common.offset_bounds import topic_gone
from .watchdog import Watchdog

_TOPIC_APPEARS_S: Final = 3.0
"""A topic that was made a moment ago may not be known to all brokers yet."""
_REPORTS_S: Final = 10.0
_PATIENCE_S: Final = 60.0
"""How long retriable errors are retried: as long as the broker keeps the transaction (TRANSACTION_TIMEOUT_MS)."""
_LIST_S: Final = 5.0
_TIMEOUT_S: Final = 10.0
"""Of a single call."""
_HANGS_S: Final = 12.0
"""A call that takes longer than its timeout, and than this, will never return, if Kafka answers others..."""
_ANSWERING_S: Final = 4.0
"""... for so long."""
_ANSWERS_S: Final = 1.0
"""How long an answer may take that shows it."""


class KafkaTransaction:
    """Begins, fills and ends transactions. Raises TaskError where the attempt cannot go on.

    `hangs` is told, from another thread, of a call that will never return: nobody but the process's end ends it.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        transactional_id: str,
        hangs: Callable[[str], None] = lambda _: None,
        exit_lock: threading.Lock | None = None,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        job_topics: tuple[str, ...] = (),
    ) -> None:
        """`job_topics`: channels and the changelog, without which the job has to go back to a checkpoint.

        `exit_lock` is held while a transaction is open: the process is not ended then if that can be avoided.

        `timeout_ms`: the age at which the broker aborts a transaction.
        """
        self._bootstrap_servers = bootstrap_servers
        self._id = transactional_id
        self._exit_lock = exit_lock or threading.Lock()
        self._timeout_ms = timeout_ms
        self._active = False
        self._began_at = 0.0
        self._failure: KafkaError | None = None
        self._topics: set[str] = set()
        """Those that the transaction has messages for."""
        self._job_topics = frozenset(job_topics)
        self._awaited = 0
        """Messages whose offsets somebody wants to know."""
        self._producer = transactional_producer(bootstrap_servers, transactional_id, timeout_ms)
        self._teller: Producer | None = None
        self._topic = ""
        self._watchdog = Watchdog(
            _HANGS_S, lambda what: hangs(self._hanging(what)), self._kafka_answers, _ANSWERING_S
        )

    def open(self, topic: str) -> None:
        """Fences older attempts; what they had open is aborted. `topic` is any that exists."""
        self._topic = topic
        connected(self._producer, topic)
        self._persist("init_transactions", lambda: self._producer.init_transactions(_TIMEOUT_S))

    def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
        delivered: Callable[[int], None] | None = None,
    ) -> None:
        """Adds a message to the transaction, beginning one if need be; `partition` None: by key, or any.

        `delivered` is told the message's offset before `commit` returns.
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
                )
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                raise self._explain_error(f"producing to {topic}", error) from error
            else:
                return

    def require_topic(self, topic: str) -> None:
        """Raises TaskError where there is no topic of that name; a broker that makes topics makes it now."""
        deadline = time.monotonic() + _TOPIC_APPEARS_S
        while True:
            try:
                found = self._producer.list_topics(topic, 10).topics[topic]
            except KafkaException as error:
                raise self._explain_error(f"looking for the topic {topic}", error) from error
            if found.error is None and found.partitions:
                return
            if time.monotonic() > deadline:
                raise TaskError(
                    f"the topic {topic!r} that a Kafka sink is to write to does not exist at"
                    f" {self._bootstrap_servers}: create it, or correct its name"
                )
            time.sleep(0.05)

    def tell(self, topic: str, partition: int, value: bytes) -> None:
        """Sends a message outside of transactions; what becomes of it is not looked at."""
        if self._teller is None:
            self._teller = plain_producer(self._bootstrap_servers)
        with contextlib.suppress(BufferError, KafkaException):  # the next one says more
            self._teller.produce(topic, value, partition=partition)
        self._teller.poll(0)

    def commit(self) -> None:
        """Ends the transaction; begins one if there is none."""
        self._begin()
        self._persist("commit_transaction", lambda: self._producer.commit_transaction(_TIMEOUT_S))
        if self._awaited:
            # The commit has delivered everything; what is left is to hear of it.
            self._producer.flush(_REPORTS_S)
        if self._failure is not None:
            if self._failure.code() in ABSENT and (missing := self._missing_topic()) is not None:
                raise self._topic_gone(missing)
            raise TaskError(f"a message of {self._id} was not delivered: {self._failure.str()}")
        self._end()

    def abort(self, timeout_s: float = 5.0) -> None:
        """Aborts the transaction, if there is one; what cannot be aborted the successor's fencing will."""
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
        """Whether something has been sent and not committed."""
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
        """Calls until it succeeds or is known to be in vain: librdkafka resumes a retriable call."""
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
                    # Its messages are retried for as long as any others.
                    raise self._topic_gone(missing) from error
                with contextlib.suppress(KafkaException):  # the next call says more
                    self._producer.poll(0)  # which hands its log lines over

    def _kafka_answers(self) -> bool:
        """From another thread."""
        try:
            self._producer.list_topics(self._topic, _ANSWERS_S)
        except KafkaException:
            return False
        return True

    def _hanging(self, what: str) -> str:
        return (
            f"{what} of {self._id} has not returned for {_HANGS_S:.0f} s, which is longer than it was given, although"
            " Kafka answers: the process ends, and the next attempt goes on from what was committed"
        )

    def _topic_gone(self, topic: str) -> TaskError:
        if topic in self._job_topics:
            return ProgressLostError(topic_gone(topic))
        return TaskError(f"the topic {topic} that a sink writes to is gone: create it again")

    def _missing_topic(self) -> str | None:
        """One of the topics of this transaction that Kafka does not have; None where it does not answer."""
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
            # Of produce(), which does not say what was fatal; any other call does.
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
                    f" {self._timeout_ms / 1000:g} s. The process stood still, or Kafka was slow or away"
                )
            return TaskError(f"{self._id} was fenced: a newer attempt of this subtask has started")
        return TaskError(f"{what} of {self._id} failed: {reason.name()}: {reason.str()}")
