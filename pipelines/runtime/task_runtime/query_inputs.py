"""The inputs of a deployment's query, and the receiver of each partition: channels, or the topics of a Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...graph.chain import edge_type, output_type
from ...graph.operators import traits_of
from ...graph.physical_plan import channel_topic
from ..common.deployment import VertexDeployment
from ..common.protocol import PartitionPositions
from ..common.vertex_parts import split_vertex
from ..operators.kafka_source_parameters import KafkaSourceParameters
from ..spark.buffer_forwarder import BufferForwardingPlan
from ..spark.partition_forwarder import StatelessPrefix, SubtaskTarget
from ..spark.query import Begin, QueryMode
from ..spark.record_forwarder import RecordForwardingPlan


class ReceivingSubtask(msgspec.Struct, frozen=True):
    """A subtask that is read for."""

    subtask_index: int
    socket_path: str
    positions: PartitionPositions
    ends: PartitionPositions | None = None
    attempt_number: int = 0


class QueryInput(Protocol):
    """The inputs of a deployment."""

    def begin(self, receivers: Sequence[ReceivingSubtask]) -> Begin:
        """Every partition that is read for them, and where; a task of Spark reads each."""

    def plan(
        self, receivers: Sequence[ReceivingSubtask], pace: QueryMode
    ) -> BufferForwardingPlan | RecordForwardingPlan:
        """What Spark's workers do with it."""


class ChannelQueryInput:
    """Channels: of each, a subtask reads the partition of its index."""

    def __init__(self, spec: VertexDeployment) -> None:
        self._topics = [channel_topic(spec.cluster, spec.job_id, edge.data_set_id) for edge in spec.inputs]
        self._input_types = tuple(edge_type(spec.job_graph, edge).to_json() for edge in spec.inputs)
        self._prefix = _create_prefix(spec)

    def begin(self, receivers: Sequence[ReceivingSubtask]) -> Begin:
        """What has no position yet begins at offset 0."""
        return {
            topic: {
                each.subtask_index: each.positions.get(i, {}).get(each.subtask_index, 0) for each in receivers
            }
            for i, topic in enumerate(self._topics)
        }

    def plan(self, receivers: Sequence[ReceivingSubtask], pace: QueryMode) -> BufferForwardingPlan:
        """Buffers, with the prefix applied."""
        targets = {
            topic: {
                each.subtask_index: SubtaskTarget(
                    each.socket_path, i, None, each.subtask_index, each.attempt_number
                )
                for each in receivers
            }
            for i, topic in enumerate(self._topics)
        }
        return BufferForwardingPlan(targets, self._input_types, self._prefix)


class TopicQueryInput:
    """The topics of a Kafka source: the subtasks have said which partitions they read."""

    def __init__(self, spec: VertexDeployment, cache: str) -> None:
        config = spec.vertex.operators[0]
        self.source = KafkaSourceParameters.from_config(config)
        self._record_type = output_type(config).to_json()
        self._prefix = _create_prefix(spec)
        self._cache = cache

    def begin(self, receivers: Sequence[ReceivingSubtask]) -> Begin:
        """Nothing, where there are more subtasks than partitions and these ones have none."""
        found: dict[str, dict[int, int]] = {}
        for each in receivers:
            for i, positions in each.positions.items():
                found.setdefault(self.source.topics[i], {}).update(positions)
        return found

    def plan(self, receivers: Sequence[ReceivingSubtask], pace: QueryMode) -> RecordForwardingPlan:
        """Messages, decoded, with the prefix applied."""
        targets: dict[str, dict[int, SubtaskTarget]] = {}
        for each in receivers:
            for i, positions in each.positions.items():
                ends = None if each.ends is None else each.ends[i]
                for partition in positions:
                    targets.setdefault(self.source.topics[i], {})[partition] = SubtaskTarget(
                        each.socket_path,
                        i,
                        None if ends is None else ends[partition],
                        each.subtask_index,
                        each.attempt_number,
                    )
        return RecordForwardingPlan(
            targets,
            self.source.format,
            self._record_type,
            self.source.on_bad_record,
            self.source.on_tombstone,
            self._prefix,
            self._cache,
            gathers=pace is QueryMode.BULK,
        )


def create_query_input(spec: VertexDeployment, cache: str) -> ChannelQueryInput | TopicQueryInput | None:
    """What a deployment's query reads; None where it needs none. `cache` is a directory for workers to share.

    Raises ValueError, LookupError where the graph or a parameter is not one.
    """
    if traits_of(spec.vertex.operators[0].kind).through_spark:
        return TopicQueryInput(spec, cache)
    return ChannelQueryInput(spec) if spec.inputs else None


def _create_prefix(spec: VertexDeployment) -> StatelessPrefix | None:
    operators = split_vertex(spec.vertex, spec.outputs).prefix
    return StatelessPrefix(operators, output_type(operators[-1]).to_json()) if operators else None
