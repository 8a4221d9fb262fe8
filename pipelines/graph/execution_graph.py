"""The ExecutionGraph: a JobGraph multiplied by its parallelism. Pure frozen data.

Every JobVertex becomes an ExecutionJobVertex with one ExecutionVertex per subtask, every JobEdge an IntermediateResult.
The attempts to run an ExecutionVertex, its Executions, are state of the JobMaster. A result is a Kafka topic with a
partition for each *receiving* subtask, so an ExecutionEdge joins one partition with its one consumer and the group of
its producers. The group is a `range` of subtasks, shared by all consumers of an all-to-all edge: an edge between 10,000
and 10,000 subtasks takes 10,000 objects, not 10^8 (Flink's ConsumedPartitionGroup, FLINK-21110).

Subtask i of each vertex of a slot sharing group runs in slot i of the group. So vertices of a co-location group, which
are in one sharing group and have one parallelism, always run in one slot. A vertex without a group has a group of its
own.

The exchanges of a job in BATCH mode are blocking: it runs in stages. The stage of a vertex is the length of the longest
way to it from a source. A stage starts when the one before it has finished, so the job needs the slots of its largest
stage. Any other job is one stage.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

import msgspec

from ...schemas.types import JobEdge, JobGraph, JobVertex, Partitioner
from .execution_mode import runs_in_stages

POINTWISE = frozenset({Partitioner.FORWARD, Partitioner.RESCALE})
"""Partitioners that join each subtask with a few neighbours; all others join all with all."""


class ExchangeType(StrEnum):
    """When the consumers of a result start (Flink's ResultPartitionType)."""

    PIPELINED_BOUNDED = "PIPELINED_BOUNDED"
    """With its producers."""
    BLOCKING = "BLOCKING"
    """When its producers have finished."""


class ExecutionVertex(msgspec.Struct, frozen=True, order=True, gc=False):
    """One subtask of a job: an Execution is one attempt to run it."""

    vertex_id: str
    subtask_index: int

    def __str__(self) -> str:
        return f"{self.vertex_id}_{self.subtask_index}"


class SharedSlot(msgspec.Struct, frozen=True, order=True, gc=False):
    """The slot that one subtask of each vertex of a group runs in (Flink's ExecutionSlotSharingGroup)."""

    slot_sharing_group: str
    index: int


class IntermediateResultPartition(msgspec.Struct, frozen=True, gc=False):
    """One partition of a channel topic, for one consumer."""

    data_set_id: str
    partition: int


class ExecutionEdge(msgspec.Struct, frozen=True, gc=False):
    """A partition, the subtask that consumes it, and the subtasks of the source vertex that write to it."""

    partition: IntermediateResultPartition
    consumer: ExecutionVertex
    producer_vertex_id: str
    producer_subtasks: range

    def producers(self) -> Iterator[ExecutionVertex]:
        """The producing subtasks, by index."""
        return (ExecutionVertex(self.producer_vertex_id, index) for index in self.producer_subtasks)


@dataclass(frozen=True, slots=True)
class IntermediateResult:
    """The data that one vertex sends to another: a JobEdge at its parallelism."""

    edge: JobEdge
    producer_parallelism: int
    consumer_parallelism: int
    _everyone: range = field(repr=False, compare=False)

    @property
    def data_set_id(self) -> str:
        """The IntermediateDataSet."""
        return self.edge.data_set_id

    @property
    def is_pointwise(self) -> bool:
        """Whether a producer writes to some partitions only."""
        return self.edge.partitioner in POINTWISE

    def partitions(self) -> Iterator[IntermediateResultPartition]:
        """All partitions, by number."""
        return (
            IntermediateResultPartition(self.data_set_id, index) for index in range(self.consumer_parallelism)
        )

    def producers_for(self, partition: int) -> range:
        """Returns the subtasks of the source vertex that write to a partition; one shared object if all do."""
        if not self.is_pointwise:
            return self._everyone
        first = partition * self.producer_parallelism // self.consumer_parallelism
        last = (partition + 1) * self.producer_parallelism // self.consumer_parallelism
        return range(first, max(last, first + 1))

    def partitions_for(self, producer: int) -> range:
        """Returns the partitions that a subtask of the source vertex writes to."""
        if not self.is_pointwise:
            return range(self.consumer_parallelism)
        n, m = self.producer_parallelism, self.consumer_parallelism
        if m <= n:
            # The inverse of producers_of: the last partition whose range begins at or before the producer.
            index = ((producer + 1) * m - 1) // n
            return range(index, index + 1)
        return range(-(-producer * m // n), -(-(producer + 1) * m // n))

    def edge_for(self, partition: int) -> ExecutionEdge:
        """Returns the ExecutionEdge of a partition."""
        return ExecutionEdge(
            IntermediateResultPartition(self.data_set_id, partition),
            ExecutionVertex(self.edge.target_vertex_id, partition),
            self.edge.source_vertex_id,
            self.producers_for(partition),
        )

    def edges(self, consumers: Sequence[ExecutionVertex]) -> list[ExecutionEdge]:
        """Returns the ExecutionEdge of each partition, with the subtasks of the consuming vertex."""
        data_set_id, source = self.edge.data_set_id, self.edge.source_vertex_id
        producers_of, everyone = self.producers_for, None if self.is_pointwise else self._everyone
        return [
            ExecutionEdge(
                IntermediateResultPartition(data_set_id, index),
                consumer,
                source,
                everyone or producers_of(index),
            )
            for index, consumer in enumerate(consumers)
        ]


@dataclass(frozen=True)
class ExecutionJobVertex:
    """A vertex with its subtasks, its inputs and its results."""

    job_vertex: JobVertex
    inputs: tuple[IntermediateResult, ...]
    produced: tuple[IntermediateResult, ...]

    @property
    def vertex_id(self) -> str:
        """The vertex."""
        return self.job_vertex.vertex_id

    @property
    def parallelism(self) -> int:
        """Number of subtasks."""
        return self.job_vertex.parallelism

    @property
    def slot_sharing_group(self) -> str:
        """The slot sharing group; a name that no group can have if the vertex shares slots with no other."""
        return self.job_vertex.slot_sharing_group or f"/{self.vertex_id}"

    @cached_property
    def task_vertices(self) -> tuple[ExecutionVertex, ...]:
        """The subtasks, by index."""
        vertex_id = self.vertex_id
        return tuple([ExecutionVertex(vertex_id, index) for index in range(self.parallelism)])


@dataclass(frozen=True)
class ExecutionGraph:
    """A job's subtasks and channels. Vertices in topological order, sources first."""

    job_id: str
    name: str
    vertices: Mapping[str, ExecutionJobVertex]
    results: Mapping[str, IntermediateResult]
    exchange_type: ExchangeType
    stages: Mapping[str, int]
    """The stage of each vertex, from 0."""

    @staticmethod
    def attach(job_id: str, graph: JobGraph) -> ExecutionGraph:
        """Expands a valid JobGraph; see `validation` for graphs from outside.

        Raises ValueError if an edge names an unknown vertex or the vertices form a cycle.
        """
        parallelism = {vertex.vertex_id: vertex.parallelism for vertex in graph.vertices}
        everyone = {vertex_id: range(count) for vertex_id, count in parallelism.items()}
        produced: dict[str, list[IntermediateResult]] = {vertex_id: [] for vertex_id in parallelism}
        consumed: dict[str, list[IntermediateResult]] = {vertex_id: [] for vertex_id in parallelism}
        results = {}
        for edge in graph.edges:
            source, target = edge.source_vertex_id, edge.target_vertex_id
            if source not in parallelism or target not in parallelism:
                raise ValueError(f"edge {edge.data_set_id} joins {source} and {target}, not both of the job")
            result = IntermediateResult(edge, parallelism[source], parallelism[target], everyone[source])
            results[edge.data_set_id] = result
            produced[source].append(result)
            consumed[target].append(result)
        return ExecutionGraph(
            job_id,
            graph.name,
            MappingProxyType(
                {
                    vertex.vertex_id: ExecutionJobVertex(
                        vertex, tuple(consumed[vertex.vertex_id]), tuple(produced[vertex.vertex_id])
                    )
                    for vertex in topological_order(graph)
                }
            ),
            MappingProxyType(results),
            exchange_type(graph),
            MappingProxyType(stages_of(graph)),
        )

    def execution_vertices(self) -> Iterator[ExecutionVertex]:
        """Every subtask of the job, sources first."""
        for vertex in self.vertices.values():
            yield from vertex.task_vertices

    def execution_edges(self) -> Iterator[ExecutionEdge]:
        """Every edge of the job: one per partition of each result."""
        for result in self.results.values():
            yield from result.edges(self.vertices[result.edge.target_vertex_id].task_vertices)

    @cached_property
    def slot_sharing_groups(self) -> Mapping[str, int]:
        """Group -> slots it needs: the largest parallelism among its vertices."""
        groups: dict[str, int] = {}
        for vertex in self.vertices.values():
            group = vertex.slot_sharing_group
            groups[group] = max(groups.get(group, 0), vertex.parallelism)
        return MappingProxyType(groups)

    def required_slots(self) -> int:
        """The number of slots that the job needs to run all subtasks of a stage at once."""
        return _required_slots((vertex.job_vertex for vertex in self.vertices.values()), self.stages)

    def shared_slots(self) -> Mapping[SharedSlot, tuple[ExecutionVertex, ...]]:
        """The slots that the job needs, and the subtasks that run in each."""
        slots: dict[SharedSlot, list[ExecutionVertex]] = {
            SharedSlot(group, index): []
            for group, count in self.slot_sharing_groups.items()
            for index in range(count)
        }
        for vertex in self.vertices.values():
            group = vertex.slot_sharing_group
            for subtask in vertex.task_vertices:
                slots[SharedSlot(group, subtask.subtask_index)].append(subtask)
        return {slot: tuple(vertices) for slot, vertices in slots.items()}

    def slot_for(self, vertex: ExecutionVertex) -> SharedSlot:
        """Returns the slot that a subtask runs in."""
        return SharedSlot(self.vertices[vertex.vertex_id].slot_sharing_group, vertex.subtask_index)


def topological_order(graph: JobGraph) -> tuple[JobVertex, ...]:
    """Returns the vertices, each after all vertices that it consumes from. Raises ValueError on a cycle."""
    vertices = {vertex.vertex_id: vertex for vertex in graph.vertices}
    waits_for = dict.fromkeys(vertices, 0)
    targets: dict[str, list[str]] = {vertex_id: [] for vertex_id in vertices}
    for edge in graph.edges:
        waits_for[edge.target_vertex_id] += 1
        targets[edge.source_vertex_id].append(edge.target_vertex_id)
    ready = deque(vertex_id for vertex_id, count in waits_for.items() if count == 0)
    order = []
    while ready:
        vertex_id = ready.popleft()
        order.append(vertices[vertex_id])
        for target in targets[vertex_id]:
            waits_for[target] -= 1
            if waits_for[target] == 0:
                ready.append(target)
    if len(order) < len(vertices):
        stuck = sorted(vertices[vertex_id].name for vertex_id, count in waits_for.items() if count > 0)
        raise ValueError(f"the vertices {', '.join(stuck)} form a cycle, or follow one")
    return tuple(order)


def exchange_type(graph: JobGraph) -> ExchangeType:
    """Returns the type of all exchanges of a job."""
    return ExchangeType.BLOCKING if runs_in_stages(graph.configuration) else ExchangeType.PIPELINED_BOUNDED


def stages_of(graph: JobGraph) -> dict[str, int]:
    """Returns the stage of each vertex. Raises ValueError on a cycle."""
    stages = dict.fromkeys((vertex.vertex_id for vertex in graph.vertices), 0)
    if exchange_type(graph) is not ExchangeType.BLOCKING:
        return stages
    targets: dict[str, list[str]] = {vertex_id: [] for vertex_id in stages}
    for edge in graph.edges:
        targets[edge.source_vertex_id].append(edge.target_vertex_id)
    for vertex in topological_order(graph):
        for target in targets[vertex.vertex_id]:
            stages[target] = max(stages[target], stages[vertex.vertex_id] + 1)
    return stages


def required_slots(graph: JobGraph) -> int:
    """Returns the number of slots that a job needs to run all subtasks of a stage at once. Raises ValueError on a
    cycle."""
    return _required_slots(graph.vertices, stages_of(graph))


def _required_slots(vertices: Iterable[JobVertex], stages: Mapping[str, int]) -> int:
    groups: dict[tuple[int, str], int] = {}
    for vertex in vertices:
        group = stages[vertex.vertex_id], ExecutionJobVertex(vertex, (), ()).slot_sharing_group
        groups[group] = max(groups.get(group, 0), vertex.parallelism)
    slots: dict[int, int] = {}
    for (stage, _), count in groups.items():
        slots[stage] = slots.get(stage, 0) + count
    return max(slots.values(), default=0)
