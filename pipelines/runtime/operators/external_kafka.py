"""The other Kafka cluster that a sink writes to: messages, and how far they are written, in one transaction of it.

How far is the *mark*: the offset that a consumer group of the sink's own has committed there, with the generation as
metadata. The group and the transactional id belong to the subtask of the job's operator, so a new attempt fences older
ones, and then reads a mark that nobody moves any more.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from ....infra.kafka_connection import KafkaConnection
from ..common.failures import TaskError
from ..common.kafka_clients import TRANSACTION_TIMEOUT_MS, group_consumer
from ..stream_task.output.kafka_transaction import KafkaTransaction
from .pending_messages import Mark, OutgoingMessage

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = TRANSACTION_TIMEOUT_MS / 1000 + 10
"""The mark of an attempt that has died in a transaction is readable when the broker has aborted that."""


class ExternalKafka(Protocol):
    """One subtask's access to the other cluster. Raises TaskError."""

    def open(self, topic: str) -> None:
        """Fences older attempts of this subtask. `topic` is any topic that exists, or empty."""

    def partitions_of(self, topic: str) -> int:
        """Returns the number of partitions of a topic."""

    def read_mark(self, owner: str, topic: str) -> Mark | None:
        """Returns how far the messages of an owner are written; None if it is unknown there."""

    def deliver(self, messages: Iterable[OutgoingMessage], topic: str, mark: Mark) -> None:
        """Writes messages, and the mark beside `topic`, in one transaction."""

    def close(self) -> None:
        """Ends the access."""


class _Metadata(msgspec.Struct):
    generation: int


class ExternalKafkaClient:
    """ExternalKafka on Kafka."""

    def __init__(self, kafka: KafkaConnection, owner: str) -> None:
        self._kafka = kafka
        self._owner = owner
        self._transaction = KafkaTransaction(kafka, owner, self._end_process)
        self._group: Consumer | None = None

    def open(self, topic: str) -> None:
        """See ExternalKafka."""
        self._transaction.open(topic)
        self._group = group_consumer(self._kafka, self._owner)

    def partitions_of(self, topic: str) -> int:
        """See ExternalKafka."""
        return self._transaction.require_topic(topic)

    def read_mark(self, owner: str, topic: str) -> Mark | None:
        """See ExternalKafka."""
        group = self._group if owner == self._owner else group_consumer(self._kafka, owner)
        assert group is not None
        try:
            (found,) = group.committed([TopicPartition(topic, 0)], _TIMEOUT_S)
        except KafkaException as error:
            raise TaskError(
                f"the offset of the group {owner} cannot be read: {error.args[0].str()}"
            ) from error
        finally:
            if group is not self._group:
                group.close()
        if found.error is not None:
            raise TaskError(f"the offset of the group {owner} cannot be read: {found.error.str()}")
        if found.offset < 0:
            return None
        try:
            known = msgspec.json.decode(found.metadata or "", type=_Metadata)
        except msgspec.MsgspecError as error:
            raise TaskError(
                f"the group {owner} was changed by somebody else: its metadata is {found.metadata!r:.80};"
                " delete the group's offsets, and the messages of the last commit are written again"
            ) from error
        return Mark(known.generation, found.offset)

    def deliver(self, messages: Iterable[OutgoingMessage], topic: str, mark: Mark) -> None:
        """See ExternalKafka."""
        assert self._group is not None
        transaction = self._transaction
        for message in messages:
            transaction.send(
                message.topic,
                message.value,
                key=message.key,
                partition=message.partition,
                timestamp_ms=message.timestamp_ms,
                headers=message.headers,
            )
        metadata = msgspec.json.encode(_Metadata(mark.generation)).decode()
        offset = TopicPartition(topic, 0, mark.number, metadata)
        transaction.commit_offsets([offset], self._group.consumer_group_metadata())
        transaction.commit()

    def close(self) -> None:
        """See ExternalKafka."""
        self._transaction.abort()
        if self._group is not None:
            self._group.close()

    def _end_process(self, reason: str) -> None:
        _log.error("%s", reason)
        os._exit(1)
