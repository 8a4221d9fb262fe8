"""Reads the positions of a job's Kafka sources, for tools: the copy in the consumer groups of its subtasks.

A subtask copies its committed positions every 5 s (pipelines/runtime/stream_task/loop/commit_followup.py). A source in
another Kafka cluster has such a copy only there, in its `group_id`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from ...infra.kafka_connection import KafkaConnection
from ...pipelines.checkpoint.source_positions import Place, SourcePosition
from ...pipelines.graph.operators import OperatorKind
from ...pipelines.graph.physical_plan import consumer_group
from ...schemas.types import JobGraph, JobVertex, OperatorConfig
from ..log import LogUnavailable
from ..log.clients import consumer_configuration, watermarks

_TIMEOUT_S: Final = 10.0


class SourceOffset(msgspec.Struct, frozen=True):
    """The position of one partition. `subtask` counts from 1."""

    operator_id: str
    source: str
    """The name of the operator."""
    subtask: int
    topic: str
    partition: int
    position: int
    """The next offset to read."""
    end: int
    """The offset after the last committed record."""

    @property
    def place(self) -> Place:
        return self.operator_id, self.topic, self.partition

    @property
    def lag(self) -> int:
        """The number of offsets that are not read yet."""
        return max(0, self.end - self.position)


def read_source_offsets(
    kafka: KafkaConnection,
    cluster: str,
    job_id: str,
    graph: JobGraph,
    reset: Mapping[Place, int] = {},
) -> list[SourceOffset]:
    """Returns the positions of the sources in the job's own Kafka, in order. `reset`: positions that a paused job
    continues from, whatever it has committed. Raises LogUnavailable."""
    with _sources(kafka, cluster, job_id, graph) as sources:
        return [
            msgspec.structs.replace(offset, position=reset.get(offset.place, offset.position))
            for source in sources
            for offset in source.committed_offsets()
        ]


def read_positions_to_reset(
    kafka: KafkaConnection,
    cluster: str,
    job_id: str,
    graph: JobGraph,
    reset: Mapping[Place, int] = {},
    finished: Collection[tuple[str, int]] = (),
) -> list[SourcePosition]:
    """Returns the position of each partition that a paused job reads. It is not known if the copy is gone: Kafka
    forgets offsets of groups without members after `offsets.retention.minutes`. `finished`: subtasks (vertex id, index)
    that read no more. Raises LogUnavailable."""
    with _sources(kafka, cluster, job_id, graph) as sources:
        return [
            SourcePosition(place[0], source.name, place[1], place[2], reset.get(place, position))
            for source in sources
            for place, position in source.partitions(finished).items()
        ]


@contextmanager
def _sources(
    kafka: KafkaConnection, cluster: str, job_id: str, graph: JobGraph
) -> Iterator[list[_KafkaSource]]:
    consumer = Consumer(consumer_configuration(kafka))
    try:
        topics = consumer.list_topics(timeout=_TIMEOUT_S).topics
        yield [
            _KafkaSource(kafka, consumer, cluster, job_id, vertex, topics)
            for vertex in graph.vertices
            if _source_parameters(vertex.operators[0]) is not None
        ]
    except KafkaException as error:
        raise LogUnavailable(f"the offsets of {job_id} cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


class _KafkaSource:
    """A vertex that reads the job's own Kafka."""

    def __init__(
        self,
        kafka: KafkaConnection,
        consumer: Consumer,
        cluster: str,
        job_id: str,
        vertex: JobVertex,
        topics: Mapping[str, Any],
    ) -> None:
        operator = vertex.operators[0]
        parameters = _source_parameters(operator) or {}
        pattern = parameters.get("topic_pattern")
        names = [each for each in topics if re.fullmatch(pattern, each)] if pattern else parameters["topics"]
        self.name = operator.name
        self._operator_id = operator.operator_id
        self._kafka = kafka
        self._consumer = consumer
        self._vertex = vertex
        self._groups = [
            consumer_group(cluster, job_id, vertex.vertex_id, subtask)
            for subtask in range(vertex.parallelism)
        ]
        self._places = [
            TopicPartition(topic, partition)
            for topic in sorted(names)
            if topic in topics
            for partition in sorted(topics[topic].partitions)
        ]

    def committed_offsets(self) -> Iterator[SourceOffset]:
        """Yields the copies of the committed positions, by subtask."""
        for subtask in range(self._vertex.parallelism):
            for place in self._committed(subtask):
                _, end = watermarks(self._consumer, place.topic, _TIMEOUT_S, place.partition)
                yield SourceOffset(
                    self._operator_id, self.name, subtask + 1, place.topic, place.partition, place.offset, end
                )

    def partitions(self, finished: Collection[tuple[str, int]]) -> dict[Place, int | None]:
        """Returns the partitions that are read, with their positions."""
        found: dict[Place, int | None] = {}
        ended: set[Place] = set()
        for subtask in range(self._vertex.parallelism):
            positions = {
                (self._operator_id, each.topic, each.partition): each.offset
                for each in self._committed(subtask)
            }
            if (self._vertex.vertex_id, subtask) in finished:
                ended |= positions.keys()
            else:
                found |= positions
        everything = {(self._operator_id, each.topic, each.partition): None for each in self._places}
        return {place: found.get(place) for place in everything if place in found or place not in ended}

    def _committed(self, subtask: int) -> list[TopicPartition]:
        own = Consumer({**consumer_configuration(self._kafka), "group.id": self._groups[subtask]})
        try:
            found = own.committed(self._places, _TIMEOUT_S) if self._places else []
        finally:
            own.close()
        return [place for place in found if place.error is None and place.offset >= 0]


def other_clusters(graph: JobGraph) -> Iterator[str]:
    """Yields a line for each source that reads another Kafka cluster, where its positions are."""
    for vertex in graph.vertices:
        parameters = _source_parameters(vertex.operators[0], elsewhere=True)
        if parameters is not None:
            where, group = parameters["connection"]["bootstrap_servers"], parameters.get("group_id")
            copy = (
                f"its group {group} there has its positions" if group else "it has no group_id to show there"
            )
            yield f"{vertex.operators[0].name} reads {where}: {copy}"


def _source_parameters(operator: OperatorConfig, *, elsewhere: bool = False) -> dict[str, Any] | None:
    if operator.kind != OperatorKind.KAFKA_SOURCE:
        return None
    parameters: dict[str, Any] = json.loads(operator.parameters)
    return parameters if (parameters.get("connection") is not None) is elsewhere else None
