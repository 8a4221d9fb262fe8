"""Detects a transaction on the submissions topic that stays open.

Submissions are read up to the first open transaction. One producer that begins a transaction and hangs blocks the
submissions of all others until Kafka aborts the transaction, possibly after 15 minutes. A warning gives the location,
since when it is open, and the command that aborts it. Nothing skips or aborts it: docs/decisions/open-transactions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError
from datetime import UTC, datetime
from typing import NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from ...infra.kafka_connection import KafkaConnection
from ...infra.logging_setup import logger
from ..log.clients import consumer_configuration

_log = logger(__name__)
_TIMEOUT_S = 2.0
OPEN_S = 10.0
"""A transaction that is open for longer is reported."""
_REPORT_INTERVAL_S = 60.0


class OpenTransaction(NamedTuple):
    """The first open transaction of a partition begins at `offset`; `waiting` records are there and behind it."""

    partition: int
    offset: int
    waiting: int


def find_open_transactions(admin: AdminClient, topic: str, partitions: int) -> list[OpenTransaction]:
    """Returns the first open transaction of each partition. Raises KafkaException, TimeoutError."""
    stable = _ends(admin, topic, partitions, IsolationLevel.READ_COMMITTED)
    ends = _ends(admin, topic, partitions, IsolationLevel.READ_UNCOMMITTED)
    return [
        OpenTransaction(partition, offset, ends[partition] - offset)
        for partition, offset in stable.items()
        if ends[partition] > offset
    ]


def read_begin_time(kafka: KafkaConnection, topic: str, transaction: OpenTransaction) -> datetime | None:
    """Returns the time of the first record of a transaction, as its producer says; None if it cannot be read now."""
    partition, offset, _ = transaction
    committed = consumer_configuration(kafka, auto_offset_reset="error")
    consumer = Consumer(committed | {"isolation.level": "read_uncommitted"})
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        message = consumer.poll(_TIMEOUT_S)
    finally:
        consumer.close()
    if message is None or message.error() is not None or message.offset() != offset:
        return None
    try:
        return datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    except (ValueError, OverflowError):
        # The producer chooses the time.
        return None


class OpenTransactions:
    """Open transactions of one topic. `clock` is in seconds, and monotonic."""

    def __init__(
        self, kafka: KafkaConnection, admin: AdminClient, topic: str, clock: Callable[[], float]
    ) -> None:
        self._kafka = kafka
        self._admin = admin
        self._topic = topic
        self._clock = clock
        self._since: dict[int, tuple[int, float]] = {}
        """Partition -> the offset of an open transaction, and the time since when it is known."""
        self._warned_at: dict[int, float] = {}

    def check(self, partitions: int) -> list[tuple[int, int]]:
        """Returns (partition, offset) of transactions that have been open for long; warns with a rate limit. Empty
        if Kafka does not answer."""
        try:
            opened = find_open_transactions(self._admin, self._topic, partitions)
        except (KafkaException, TimeoutError):
            # The reader of the topic reports the error.
            return []
        now, earlier, found = self._clock(), self._since, []
        self._since = {}
        for transaction in opened:
            partition, offset, _ = transaction
            first, since = earlier.get(partition, (-1, now))
            if first != offset:
                since = now
            self._since[partition] = offset, since
            if now - since >= OPEN_S:
                found.append((partition, offset))
                self._warn(transaction, now - since)
        return found

    def _warn(self, transaction: OpenTransaction, open_s: float) -> None:
        now, partition = self._clock(), transaction.partition
        if now - self._warned_at.get(partition, -_REPORT_INTERVAL_S) < _REPORT_INTERVAL_S:
            return
        self._warned_at[partition] = now
        began = read_begin_time(self._kafka, self._topic, transaction)
        _log.warning(
            "submissions wait: another program's transaction on their topic is open",
            topic=self._topic,
            partition=partition,
            offset=transaction.offset,
            waiting=transaction.waiting,
            open_s=round(open_s),
            since=None if began is None else began.isoformat(timespec="seconds"),
            to_see_its_producer=producers_command(self._topic, partition),
            to_end_it=abort_command(self._topic, partition, transaction.offset),
        )


def _ends(admin: AdminClient, topic: str, partitions: int, isolation: IsolationLevel) -> Mapping[int, int]:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, index): latest for index in range(partitions)}
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=_TIMEOUT_S)
    return {each.partition: answer.result(_TIMEOUT_S).offset for each, answer in answers.items()}


def producers_command(topic: str, partition: int) -> str:
    """Returns the command that lists the producers of a partition: their ids, and where their transactions begin."""
    return (
        f"tailrace kafka-tools kafka-transactions describe-producers --topic {topic} --partition {partition}"
    )


def abort_command(topic: str, partition: int, offset: int) -> str:
    """Returns the command that aborts the transaction at that location."""
    return (
        f"tailrace kafka-tools kafka-transactions abort --topic {topic} --partition {partition} "
        f"--start-offset {offset}"
    )
