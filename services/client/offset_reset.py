"""Finds the offsets that the Kafka sources of a savepoint or of a paused job are reset to.

The job does not run: it, or its successor from a copy of the savepoint, continues from these positions. So nothing that
is committed is changed. Kafka Connect asks for a stopped connector for the same reason (KIP-875). All positions are
those of the cluster's own Kafka; a source that reads another one is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ...infra.kafka_connection import KafkaConnection
from ...pipelines.checkpoint.source_positions import SourcePosition
from ...schemas.types import PartitionOffset
from ..log import LogUnavailable
from ..log.clients import consumer_configuration, watermarks

_TIMEOUT_S = 10.0

TopicPlace = tuple[str, int]
"""(topic, partition)"""


class UnknownPartition(LookupError):
    """A topic or partition that the savepoint, the job or Kafka does not have."""


class OffsetOutOfRange(ValueError):
    """An offset that the partition does not hold."""


class ToEarliest(msgspec.Struct, frozen=True):
    """The first record that the partition holds."""


class ToLatest(msgspec.Struct, frozen=True):
    """The end of the partition: only what comes later is read."""


class ToTime(msgspec.Struct, frozen=True):
    """The first record with this timestamp or a later one; without one the end of the partition."""

    timestamp_ms: int


class ToOffsets(msgspec.Struct, frozen=True):
    """Offsets of single partitions."""

    offsets: Mapping[TopicPlace, int]


ResetTarget = ToEarliest | ToLatest | ToTime | ToOffsets


class ResetPosition(msgspec.Struct, frozen=True):
    """The position of a partition before and after the reset."""

    before: SourcePosition
    after: int

    def to_offset(self) -> PartitionOffset:
        """Returns the new position as a request has it."""
        operator_id, topic, partition = self.before.place
        return PartitionOffset(operator_id=operator_id, topic=topic, partition=partition, offset=self.after)


def resolve_reset(
    kafka: KafkaConnection,
    positions: Sequence[SourcePosition],
    target: ResetTarget,
    topics: Sequence[str] = (),
    owner: str = "the savepoint",
) -> list[ResetPosition]:
    """Returns the positions that change. `positions`: those of the savepoint or job in this Kafka. `topics`: only
    these; by default all. `owner`: what has the positions, for errors.

    Raises UnknownPartition, OffsetOutOfRange, LogUnavailable.
    """
    chosen = _chosen(positions, target, topics, owner)
    consumer = Consumer(consumer_configuration(kafka))
    try:
        found = _Partitions(consumer).offsets({(each.topic, each.partition) for each in chosen}, target)
    except KafkaException as error:
        raise LogUnavailable(f"the offsets of the topics cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()
    return [ResetPosition(each, found[each.topic, each.partition]) for each in chosen]


def _chosen(
    positions: Sequence[SourcePosition], target: ResetTarget, topics: Sequence[str], owner: str
) -> list[SourcePosition]:
    known = sorted({each.topic for each in positions})
    for topic in topics:
        if topic not in known:
            raise UnknownPartition(f"{owner} has no position of topic {topic}: it has {', '.join(known)}")
    if not isinstance(target, ToOffsets):
        return [each for each in positions if not topics or each.topic in topics]
    places = {(each.topic, each.partition) for each in positions}
    for topic, partition in target.offsets:
        if (topic, partition) not in places:
            raise UnknownPartition(
                f"{owner} has no position of {topic}:{partition}: it has {_in_short(places)}"
            )
    return [each for each in positions if (each.topic, each.partition) in target.offsets]


def _in_short(places: set[TopicPlace]) -> str:
    shown = [f"{topic}:{partition}" for topic, partition in sorted(places)]
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")


class _Partitions:
    """The partitions as Kafka has them now."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._topics = consumer.list_topics(timeout=_TIMEOUT_S).topics

    def offsets(self, places: set[TopicPlace], target: ResetTarget) -> dict[TopicPlace, int]:
        """Returns the offset of each partition."""
        bounds = {place: self._bounds(*place) for place in sorted(places)}
        match target:
            case ToEarliest():
                return {place: low for place, (low, _) in bounds.items()}
            case ToLatest():
                return {place: high for place, (_, high) in bounds.items()}
            case ToTime(timestamp_ms):
                return self._at(timestamp_ms, bounds)
            case ToOffsets(offsets):
                for (topic, partition), (low, high) in bounds.items():
                    if not low <= offsets[topic, partition] <= high:
                        raise OffsetOutOfRange(
                            f"offset {offsets[topic, partition]} of {topic}:{partition} is out of range: "
                            f"the partition begins at {low} and ends at {high}"
                        )
                return {place: offsets[place] for place in bounds}

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        if topic not in self._topics or partition not in self._topics[topic].partitions:
            raise UnknownPartition(
                f"{topic}:{partition} does not exist in Kafka, or this principal may not describe it"
            )
        return watermarks(self._consumer, topic, _TIMEOUT_S, partition)

    def _at(self, timestamp_ms: int, bounds: Mapping[TopicPlace, tuple[int, int]]) -> dict[TopicPlace, int]:
        asked = [TopicPartition(topic, partition, timestamp_ms) for topic, partition in bounds]
        found = {}
        for answer in self._consumer.offsets_for_times(asked, _TIMEOUT_S) if asked else ():
            if answer.error is not None:
                raise KafkaException(answer.error)
            place = answer.topic, answer.partition
            found[place] = answer.offset if answer.offset >= 0 else bounds[place][1]
        if found.keys() != bounds.keys():
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return found
