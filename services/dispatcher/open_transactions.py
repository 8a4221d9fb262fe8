"""Detects a transaction on the submissions topic that stays open.

Submissions are read up to the first open transaction. One producer that begins a transaction and hangs blocks the
submissions of all others until Kafka aborts the transaction, possibly after 15 minutes. A warning gives the location
and the command that aborts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from ...infra.logging_setup import logger

_log = logger(__name__)
_TIMEOUT_S = 2.0
_OPEN_S = 10.0
_TOLD_EVERY_S = 60.0


class OpenTransactions:
    """Open transactions of one topic. `clock` is in seconds, and monotonic."""

    def __init__(self, admin: AdminClient, topic: str, clock: Callable[[], float]) -> None:
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
            stable = self._ends(partitions, IsolationLevel.READ_COMMITTED)
            ends = self._ends(partitions, IsolationLevel.READ_UNCOMMITTED)
        except (KafkaException, TimeoutError):
            # The reader of the topic reports the error.
            return []
        now, found = self._clock(), []
        for partition, offset in stable.items():
            if ends[partition] <= offset:
                self._since.pop(partition, None)
                continue
            first, since = self._since.get(partition, (-1, now))
            if first != offset:
                since = now
            self._since[partition] = offset, since
            if now - since >= _OPEN_S:
                found.append((partition, offset))
                self._warn(partition, offset, ends[partition], now - since)
        return found

    def _ends(self, partitions: int, isolation: IsolationLevel) -> Mapping[int, int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self._topic, index): latest for index in range(partitions)}
        answers = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=_TIMEOUT_S)
        return {each.partition: answer.result(_TIMEOUT_S).offset for each, answer in answers.items()}

    def _warn(self, partition: int, offset: int, end: int, open_s: float) -> None:
        now = self._clock()
        if now - self._warned_at.get(partition, -_TOLD_EVERY_S) < _TOLD_EVERY_S:
            return
        self._warned_at[partition] = now
        _log.warning(
            "submissions wait: another program's transaction on their topic is open",
            topic=self._topic,
            partition=partition,
            offset=offset,
            waiting=end - offset,
            open_s=round(open_s),
            to_end_it=abort_command(self._topic, partition, offset),
        )


def abort_command(topic: str, partition: int, offset: int) -> str:
    """Returns the command that aborts the transaction at that location."""
    return (
        f"tailrace kafka-tools kafka-transactions abort --topic {topic} --partition {partition} "
        f"--start-offset {offset}"
    )
