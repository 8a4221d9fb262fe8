"""Reads the partitions of a subtask in its StreamTask, while no query of Spark delivers them.

The messages go through the code that Spark's workers run (spark/buffer_forwarder.py, spark/record_forwarder.py), and
into the mailbox as their results do. So it makes no difference who has read a message: positions decide what counts.

Memory is bounded as with sockets: the reader pauses while the mailbox is full, and its consumer reads little ahead. An
error that another attempt may overcome fails this one; what the brokers mend by themselves is waited for.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from .....infra import threads
from .....infra.retry import ABSENT
from ...common.failures import describe_failure
from ...common.protocol import FAILURE
from ...spark.message_place import PLACE, to_place
from ...spark.partition_forwarder import ForwardingPlan, ForwardingWorker, PartitionPosition
from ..loop.mailbox import DirectMessage, ForwardedMessage, Mailbox

_POLL_S: Final = 0.1
"""How long the reader needs at most to see that it is closed."""
_MOST_MESSAGES: Final = 500
"""The messages of one batch."""
_APPEARS_S: Final = 5.0
"""The brokers of a new topic may not know it yet."""
_EVERYWHERE: Final = 1 << 62
"""An offset that no position has reached: a failure there always counts."""

Begin = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> the first offset."""


class Reader(Protocol):
    """What reads in place of a query."""

    def close(self) -> None:
        """Ends the reading; returns at once. What has been read may still arrive."""


class DirectReader:
    """Reads from its creation until `close`."""

    def __init__(
        self,
        number: int,
        begin: Begin,
        plan: ForwardingPlan,
        open_consumer: Callable[[], Consumer],
        mailbox: Mailbox,
        task: int = 0,
    ) -> None:
        """`number`: of all messages of this reader (DirectMessage). `task`: the task of the process that reads."""
        self._begin = begin
        self._plan = plan
        self._open_consumer = open_consumer
        self._mailbox = mailbox
        self._receiver = MailboxReceiver(mailbox, number, task)
        self._closed = threading.Event()
        self._began_at = time.monotonic()
        threads.Thread(target=self._read, name=f"direct-reader-{number}").start()

    def close(self) -> None:
        """Ends the reading; returns at once."""
        self._closed.set()

    def _read(self) -> None:
        worker = self._plan.worker(self._receiver)
        try:
            worker.open()
        except Exception as error:
            self._receiver.fail_attempt(describe_failure(error))
            return
        consumer = self._open_consumer()
        try:
            consumer.assign(
                [
                    TopicPartition(topic, partition, offset)
                    for topic, offsets in self._begin.items()
                    for partition, offset in offsets.items()
                ]
            )
            while not self._closed.is_set() and self._read_once(consumer, worker):
                pass
        finally:
            consumer.close()
            with contextlib.suppress(Exception):
                worker.close()

    def _read_once(self, consumer: Consumer, worker: ForwardingWorker) -> bool:
        """Returns whether there may be more."""
        if not self._mailbox.wait_for_room(_POLL_S):
            return True
        first = consumer.poll(_POLL_S)
        if first is None or self._closed.is_set():
            return True
        messages = [first, *consumer.consume(_MOST_MESSAGES - 1, 0)]
        good = [message for message in messages if message.error() is None]
        if good:
            worker.take(to_rows(good, self._plan.columns))
        for message in messages:
            if (failure := self._failure(message)) is not None:
                self._receiver.fail_attempt(failure)
                return False
        return True

    def _failure(self, message: Message) -> str | None:
        """Returns why the partition cannot be read; None if it can, or will be."""
        error = message.error()
        if error is None:
            return None
        gone = error.code() == KafkaError._AUTO_OFFSET_RESET
        absent = error.code() in ABSENT and time.monotonic() > self._began_at + _APPEARS_S
        if gone or absent:
            return f"{message.topic()}-{message.partition()} cannot be read: {error.str()}"
        return None


class MailboxReceiver:
    """Puts what a worker forwards into the mailbox of this process."""

    def __init__(self, mailbox: Mailbox, number: int, task: int = 0) -> None:
        self._mailbox = mailbox
        self._number = number
        self._task = task

    def leads(self, path: str) -> bool:
        """Whether there is a receiver: always."""
        return True

    def announce(self, path: str, place: PartitionPosition) -> None:
        """Does nothing: the time of this reader is not counted."""

    def send(self, path: str, kind: int, place: PartitionPosition, *content: bytes) -> None:
        """Puts the data into the mailbox."""
        data = content[0] if len(content) == 1 else b"".join(content)
        message = ForwardedMessage(
            kind, place.input_index, 0, place.partition, place.first, place.following, data
        )
        self._mailbox.put([(DirectMessage(self._number, message), len(data))], self._task)

    def fail(self, path: str, place: PartitionPosition, reason: str) -> None:
        """Reports why the data at these offsets cannot be processed."""
        self.send(path, FAILURE, place, reason.encode(errors="replace"))

    def fail_attempt(self, reason: str) -> None:
        """Reports why nothing more can be read."""
        self.fail("", PartitionPosition(0, 0, _EVERYWHERE, _EVERYWHERE + 1), reason)


def to_rows(messages: Sequence[Message], columns: Sequence[str]) -> pa.RecordBatch:
    """Returns messages as the rows that Spark's Kafka source makes of them."""
    return pa.RecordBatch.from_arrays([_COLUMNS[name](messages) for name in columns], names=list(columns))


def _column(of: Callable[[Message], Any], type_: pa.DataType) -> Callable[[Sequence[Message]], pa.Array]:
    return lambda messages: pa.array([of(message) for message in messages], type_)


def _place(message: Message) -> int:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return to_place(partition, offset)


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers: Any = message.headers()
    return [{"key": key, "value": value} for key, value in headers or ()] or None


_COLUMNS: Final = {
    "topic": _column(lambda message: message.topic(), pa.string()),
    PLACE: _column(_place, pa.int64()),
    "timestamp": _column(lambda message: message.timestamp()[1] * 1000, pa.timestamp("us", "UTC")),
    "value": _column(lambda message: message.value(), pa.binary()),
    "key": _column(lambda message: message.key(), pa.binary()),
    "headers": _column(_headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
}
