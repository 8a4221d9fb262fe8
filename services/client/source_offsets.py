"""Reads the positions of a job's Kafka sources, for tools: the copy in the consumer groups of its subtasks.

A subtask copies its committed positions every 5 s (pipelines/runtime/stream_task/loop/commit_followup.py). A source in
another Kafka cluster has such a copy only there, in its `group_id`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from ...infra.kafka_connection import KafkaConnection
from ...pipelines.graph.operators import OperatorKind
from ...pipelines.graph.physical_plan import consumer_group
from ...schemas.types import JobGraph, OperatorConfig
from ..log import LogUnavailable
from ..log.clients import consumer_configuration, watermarks

_TIMEOUT_S: Final = 10.0


class SourceOffset(msgspec.Struct, frozen=True):
    """The position of one partition. `subtask` counts from 1."""

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
    def lag(self) -> int:
        """The number of offsets that are not read yet."""
        return max(0, self.end - self.position)


def read_source_offsets(
    kafka: KafkaConnection, cluster: str, job_id: str, graph: JobGraph
) -> list[SourceOffset]:
    """Returns the positions of the sources in the job's own Kafka, in order. Raises LogUnavailable."""
    consumer = Consumer(consumer_configuration(kafka))
    try:
        return [
            offset
            for vertex in graph.vertices
            if (parameters := _source_parameters(vertex.operators[0])) is not None
            for subtask in range(vertex.parallelism)
            for offset in _read(
                kafka,
                consumer,
                parameters,
                vertex.operators[0].name,
                subtask,
                consumer_group(cluster, job_id, vertex.vertex_id, subtask),
            )
        ]
    except KafkaException as error:
        raise LogUnavailable(f"the offsets of {job_id} cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


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


def _read(
    kafka: KafkaConnection,
    consumer: Consumer,
    parameters: dict[str, Any],
    source: str,
    subtask: int,
    group: str,
) -> Iterator[SourceOffset]:
    topics = consumer.list_topics(timeout=_TIMEOUT_S).topics
    pattern = parameters.get("topic_pattern")
    names = [topic for topic in topics if re.fullmatch(pattern, topic)] if pattern else parameters["topics"]
    places = [
        TopicPartition(topic, partition)
        for topic in sorted(names)
        if topic in topics
        for partition in sorted(topics[topic].partitions)
    ]
    own = Consumer({**consumer_configuration(kafka), "group.id": group})
    try:
        found = own.committed(places, _TIMEOUT_S) if places else []
    finally:
        own.close()
    for place in found:
        if place.error is None and place.offset >= 0:
            _, end = watermarks(consumer, place.topic, _TIMEOUT_S, place.partition)
            yield SourceOffset(source, subtask + 1, place.topic, place.partition, place.offset, end)
