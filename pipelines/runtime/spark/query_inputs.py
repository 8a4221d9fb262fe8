"""The inputs of a deployment's query, and the receiver of each partition: channels, or the topics of a Kafka source."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....infra.kafka_connection import KafkaConnection
from ....schemas.types import Partitioner
from ...graph.chain import edge_type, output_type
from ...graph.execution_mode import has_slot_processes
from ...graph.operators import traits_of
from ...graph.physical_plan import channel_topic
from ..common.deployment import VertexDeployment, vertex_of
from ..common.protocol import PartitionPositions
from ..common.settings import ExecutionMode, TaskSettings
from ..common.vertex_parts import split_vertex
from ..operators.kafka_source_parameters import KafkaSourceParameters
from .buffer_forwarder import BufferForwardingPlan
from .message_condition import MessageCondition, create_condition
from .partition_forwarder import StatelessPrefix, SubtaskTarget
from .query import Begin, QueryMode
from .record_forwarder import RecordForwardingPlan


class ReceivingSubtask(msgspec.Struct, frozen=True):
    """A subtask that the query reads for."""

    subtask_index: int
    socket_path: str
    positions: PartitionPositions
    ends: PartitionPositions | None = None
    attempt_number: int = 0
    topics: tuple[str, ...] = ()
    """The topics of a Kafka source, by index of the input."""


class ChannelQueryInput:
    """Channels: a subtask reads the partition of its index in each."""

    connection: KafkaConnection | None = None
    """The cluster to read from; None: the job's own."""

    def __init__(self, spec: VertexDeployment) -> None:
        self._topics = [channel_topic(spec.cluster, spec.job_id, edge.data_set_id) for edge in spec.inputs]
        self._input_types = tuple(edge_type(spec.job_graph, edge).to_json() for edge in spec.inputs)
        self._prefix = _create_prefix(spec)

    def begin(self, receivers: Sequence[ReceivingSubtask]) -> Begin:
        """Returns every partition to read, and its first offset: 0 without a position. A task of Spark reads each."""
        return {
            topic: {
                receiver.subtask_index: receiver.positions.get(i, {}).get(receiver.subtask_index, 0)
                for receiver in receivers
            }
            for i, topic in enumerate(self._topics)
        }

    def plan(
        self, receivers: Sequence[ReceivingSubtask], pace: QueryMode, overlap: int = 0
    ) -> BufferForwardingPlan:
        """Returns a plan for buffers with the prefix applied."""
        targets = {
            topic: {
                receiver.subtask_index: SubtaskTarget(
                    receiver.socket_path, i, None, receiver.subtask_index, receiver.attempt_number
                )
                for receiver in receivers
            }
            for i, topic in enumerate(self._topics)
        }
        return BufferForwardingPlan(targets, self._input_types, self._prefix)


class TopicQueryInput:
    """The topics of a Kafka source. The subtasks have reported which partitions they read."""

    def __init__(self, spec: VertexDeployment, cache: str | None) -> None:
        config = spec.vertex.operators[0]
        self.source = KafkaSourceParameters.from_config(config)
        self.connection: KafkaConnection | None = self.source.connection
        record_type = output_type(config)
        self._record_type = record_type.to_json()
        self._prefix = _create_prefix(spec)
        self._cache = cache
        self._condition: MessageCondition | None = None
        if self._prefix is not None and self.source.key_format is None:
            self._condition = create_condition(self.source.format, record_type, self._prefix.operators)

    def begin(self, receivers: Sequence[ReceivingSubtask]) -> Begin:
        """Returns the same; empty if there are more subtasks than partitions and these subtasks have none."""
        found: dict[str, dict[int, int]] = {}
        for receiver in receivers:
            for i, positions in receiver.positions.items():
                found.setdefault(receiver.topics[i], {}).update(positions)
        return found

    def plan(
        self, receivers: Sequence[ReceivingSubtask], pace: QueryMode, overlap: int = 0
    ) -> RecordForwardingPlan:
        """Returns a plan for messages, decoded, with the prefix applied. `overlap`: as in SwitchQuery."""
        targets: dict[str, dict[int, SubtaskTarget]] = {}
        for receiver in receivers:
            for i, positions in receiver.positions.items():
                ends = None if receiver.ends is None else receiver.ends[i]
                for partition, position in positions.items():
                    targets.setdefault(receiver.topics[i], {})[partition] = SubtaskTarget(
                        receiver.socket_path,
                        i,
                        None if ends is None else ends[partition],
                        receiver.subtask_index,
                        receiver.attempt_number,
                        position + overlap,
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
            key_format=self.source.key_format,
            # In bulk Spark's parsers cost more than ours, and a message costs Python little (benchmarks/sql_prefix.py).
            condition=None if pace is QueryMode.BULK else self._condition,
            delivers_one_by_one=pace is QueryMode.REAL_TIME,
        )


def create_query_input(
    spec: VertexDeployment, cache: str | None = None
) -> ChannelQueryInput | TopicQueryInput | None:
    """Returns the inputs of a deployment's query; None if it needs none. `cache` is a directory that workers share.

    Raises ValueError or LookupError for an invalid graph or parameter.
    """
    if traits_of(spec.vertex.operators[0].kind).through_spark:
        return TopicQueryInput(spec, cache)
    return ChannelQueryInput(spec) if spec.inputs else None


def needs_query(spec: VertexDeployment) -> bool:
    """Whether records reach the vertex through Kafka. If all its senders are in its subtasks' own processes, that
    happens for moments only (output/local_channel.py), and the StreamTasks read them themselves."""
    graph, vertex = spec.job_graph, spec.vertex
    if not has_slot_processes(graph.configuration) or not spec.inputs:
        return True
    if TaskSettings.from_configuration(graph.configuration).mode is not ExecutionMode.REAL_TIME:
        return True
    group = vertex.slot_sharing_group  # if it is empty, the vertex has a group of its own
    for edge in spec.inputs:
        sender = vertex_of(graph, edge.source_vertex_id)
        is_local = sender.parallelism == vertex.parallelism == 1 or (
            edge.partitioner is Partitioner.FORWARD and sender.parallelism == vertex.parallelism
        )
        if not is_local or not group or sender.slot_sharing_group != group:
            return True
    return False


def _create_prefix(spec: VertexDeployment) -> StatelessPrefix | None:
    operators = split_vertex(spec.vertex, spec.outputs).prefix
    return StatelessPrefix(operators, output_type(operators[-1]).to_json()) if operators else None
