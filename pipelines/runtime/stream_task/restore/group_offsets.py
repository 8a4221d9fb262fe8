"""A copy of a subtask's changelog position in its consumer group, so that a new attempt can detect losses.

A broker may forget a group's offsets, or return old ones. So no attempt continues from them: a copy only proves that at
least that much was committed (progress_evidence.py).

Group offsets are read and written by consumers. An AdminClient could do it, but librdkafka 2.16 ends the process if the
group's coordinator is loading, or its broker ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from confluent_kafka import Consumer, TopicPartition

from .....infra.kafka_connection import KafkaConnection
from ...common.kafka_clients import group_consumer

_TIMEOUT_S: Final = 3.0
Place = tuple[str, int]
"""Topic and partition."""


class CommittedGroupOffset(msgspec.Struct, frozen=True):
    """The metadata of every offset in the group, as JSON."""

    generation: int
    offset: int
    """The offset of the last progress entry; -1 if there was none yet."""
    changelog_id: str | None


class GroupOffsets:
    """Commits to a group, from one thread. It has a client from the first call on."""

    def __init__(self, kafka: KafkaConnection, group: str) -> None:
        self._kafka = kafka
        self._group = group
        self._consumer: Consumer | None = None

    def commit(self, positions: Mapping[Place, int], copy: CommittedGroupOffset | None = None) -> None:
        """Commits next offsets with the copy as metadata of each. Raises KafkaException."""
        metadata = "" if copy is None else msgspec.json.encode(copy).decode()
        if self._consumer is None:
            self._consumer = group_consumer(self._kafka, self._group)
        offsets = [TopicPartition(*place, offset, metadata) for place, offset in positions.items()]
        self._consumer.commit(offsets=offsets, asynchronous=False)


def read_group_offset(
    consumer: Consumer, places: Sequence[Place], source_topics: Sequence[str]
) -> CommittedGroupOffset | None:
    """Returns the newest copy in the group, of one of these partitions or of any partition of these topics.

    None if the broker has none. Raises KafkaException.
    """
    partitions = [TopicPartition(*place) for place in places]
    for topic in source_topics:
        found = consumer.list_topics(topic, _TIMEOUT_S).topics[topic]
        partitions += [TopicPartition(topic, partition) for partition in found.partitions]
    if not partitions:
        return None
    copies = [
        copy
        for partition in consumer.committed(partitions, _TIMEOUT_S)
        if (copy := _read(partition)) is not None
    ]
    return max(copies, key=lambda copy: (copy.generation, copy.offset), default=None)


def _read(offset: TopicPartition) -> CommittedGroupOffset | None:
    if offset.error is not None or offset.offset < 0:
        return None
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(offset.metadata or "", type=CommittedGroupOffset)
    return None
