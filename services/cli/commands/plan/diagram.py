"""A graph as boxes and arrows, for all output formats: the StreamGraph, the JobGraph or the ExecutionGraph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .....pipelines.graph.chain import consumers, source_operator
from .....pipelines.graph.execution_graph import (
    ExchangeType,
    ExecutionGraph,
    ExecutionJobVertex,
    IntermediateResult,
)
from .....pipelines.graph.job_graph import obstacles
from .....pipelines.graph.physical_plan import keeps_state
from .....pipelines.graph.stream_graph import (
    DEFAULT_SLOT_SHARING_GROUP,
    ChainingStrategy,
    StreamEdge,
    StreamGraph,
    StreamNode,
)
from .....schemas.types import JobEdge, JobGraph, JobVertex

MAX_ROWS = 6
"""The number of subtasks that are listed one by one; above it, the first few and the last."""
_SHORT = 8


@dataclass(frozen=True, slots=True)
class Box:
    """A node of a graph. `name`: how edges call it; `badge`: its parallelism; `rows`: its operators or subtasks."""

    title: str
    name: str
    badge: str
    facts: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge of a graph, from box to box by index."""

    source: int
    target: int
    label: str
    notes: tuple[str, ...] = ()
    chained: bool = False
    """Whether the two run in one task."""


@dataclass(frozen=True, slots=True)
class Diagram:
    """One graph. Boxes in topological order."""

    title: str
    summary: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def create_diagrams(stream_graph: StreamGraph, job_graph: JobGraph, only: str | None = None) -> list[Diagram]:
    """Returns the diagrams of all three graphs; `only`: of "stream", "job" or "execution"."""
    drawings: dict[str, Callable[[], Diagram]] = {
        "stream": lambda: stream_diagram(stream_graph),
        "job": lambda: job_diagram(stream_graph, job_graph),
        "execution": lambda: execution_diagram(ExecutionGraph.attach("job", job_graph)),
    }
    return [draw() for name, draw in drawings.items() if only in (name, None)]


def stream_diagram(graph: StreamGraph) -> Diagram:
    """Returns the operators, and between them the partitioning and why operators are not chained."""
    order = _in_order(graph)
    index = {node.node_id: i for i, node in enumerate(order)}
    return Diagram(
        "StreamGraph",
        f"{_count(len(order), 'operator')}, {_count(len(graph.edges), 'edge')}",
        tuple(Box(node.name, node.name, f"x{node.parallelism}", tuple(_node_facts(node))) for node in order),
        tuple(
            Arrow(
                index[edge.source_id],
                index[edge.target_id],
                str(edge.partitioner),
                (*_edge_notes(edge, graph), _chaining_note(graph, edge)),
                chained=not obstacles(graph, edge),
            )
            for edge in graph.edges
        ),
    )


def _in_order(graph: StreamGraph) -> list[StreamNode]:
    """Returns the operators, each after its inputs, otherwise in the order of the program."""
    waits_for = {node_id: len(graph.in_edges(node_id)) for node_id in graph.nodes}
    ready = [node_id for node_id in reversed(list(graph.nodes)) if not waits_for[node_id]]
    order = []
    while ready:
        node_id = ready.pop()
        order.append(graph.nodes[node_id])
        for edge in reversed(graph.out_edges(node_id)):
            waits_for[edge.target_id] -= 1
            if not waits_for[edge.target_id]:
                ready.append(edge.target_id)
    return order


def _node_facts(node: StreamNode) -> Iterator[str]:
    yield f"{node.node_id}: {node.kind}" + (f", {node.location}" if node.location else "")
    if node.uid is not None:
        yield f"uid {node.uid}"
    yield from _group_facts(node.slot_sharing_group, node.co_location_group)
    if node.chaining is not ChainingStrategy.ALWAYS:
        yield "starts a new chain" if node.chaining is ChainingStrategy.HEAD else "is never chained"


def _group_facts(slot_sharing_group: str, co_location_group: str | None) -> Iterator[str]:
    if not slot_sharing_group:
        yield "shares no slots"
    elif slot_sharing_group != DEFAULT_SLOT_SHARING_GROUP:
        yield f"slot sharing group {slot_sharing_group}"
    if co_location_group is not None:
        yield f"co-location group {co_location_group}"


def _edge_notes(edge: StreamEdge, graph: StreamGraph) -> Iterator[str]:
    virtual = [graph.virtual_nodes[node_id] for node_id in edge.through if node_id in graph.virtual_nodes]
    if virtual:
        nodes = "virtual node" if len(virtual) == 1 else "virtual nodes"
        yield f"through {nodes} " + ", ".join(f"{each.node_id}: {each}" for each in virtual)
    elif edge.output_tag is not None:
        yield f"side output {edge.output_tag}"
    if edge.input_index:
        yield "second input"


def _chaining_note(graph: StreamGraph, edge: StreamEdge) -> str:
    reasons = obstacles(graph, edge)
    return f"not chained: {'; '.join(reasons)}" if reasons else "chained"


def job_diagram(stream: StreamGraph, graph: JobGraph) -> Diagram:
    """Returns the vertices with the tree of their operators, and the edges between them."""
    index = {vertex.vertex_id: i for i, vertex in enumerate(graph.vertices)}
    unchained = [edge for edge in stream.edges if obstacles(stream, edge)]
    return Diagram(
        "JobGraph",
        f"{_count(len(graph.vertices), 'vertex', 'vertices')}, {_count(len(graph.edges), 'edge')}",
        tuple(
            Box(
                vertex.name,
                _name(vertex),
                f"x{vertex.parallelism}",
                (
                    f"{vertex.vertex_id[:_SHORT]}",
                    *_group_facts(vertex.slot_sharing_group, vertex.co_location_group),
                ),
                tuple(_tree(vertex)) if len(vertex.operators) > 1 else (),
            )
            for vertex in graph.vertices
        ),
        tuple(
            Arrow(
                index[edge.source_vertex_id],
                index[edge.target_vertex_id],
                str(edge.partitioner),
                (
                    *_sender_notes(graph.vertices[index[edge.source_vertex_id]], edge),
                    _chaining_note(stream, of),
                ),
            )
            for edge, of in zip(graph.edges, unchained, strict=True)
        ),
    )


def _sender_notes(vertex: JobVertex, edge: JobEdge) -> Iterator[str]:
    tag = "" if edge.output_tag is None else f"side output {edge.output_tag}"
    if len(vertex.operators) > 1:
        yield (
            f"{tag} of {source_operator(vertex, edge).name}"
            if tag
            else f"from {source_operator(vertex, edge).name}"
        )
    elif tag:
        yield tag
    if edge.input_index:
        yield "second input"


def _name(vertex: JobVertex) -> str:
    """Returns a short name, also for a long chain."""
    return (
        vertex.name
        if len(vertex.operators) == 1
        else f"{vertex.vertex_id[:_SHORT]} {vertex.operators[0].name} -> ..."
    )


def _tree(vertex: JobVertex) -> Iterator[str]:
    """Returns the operators as a tree, one per line."""
    behind = consumers(vertex.operators)
    waiting = [(vertex.operators[0], "", "")]
    while waiting:
        operator, here, below = waiting.pop()
        yield f"{here}{operator.name}" + (
            "" if operator.output_tag is None else f" (side output {operator.output_tag})"
        )
        following = behind[operator.operator_id]
        last = len(following) - 1
        for place in range(last, -1, -1):
            branch, stem = ("└─ ", "   ") if place == last else ("├─ ", "│  ")
            waiting.append((following[place], below + branch, below + stem))


def execution_diagram(graph: ExecutionGraph) -> Diagram:
    """Returns the subtasks with their slots, and IntermediateResults with their partitions."""
    vertices = list(graph.vertices.values())
    index = {vertex.vertex_id: i for i, vertex in enumerate(vertices)}
    subtasks = sum(vertex.parallelism for vertex in vertices)
    groups = ", ".join(
        f"{count} of {'one vertex' if group.startswith('/') else group}"
        for group, count in graph.slot_sharing_groups.items()
    )
    return Diagram(
        "ExecutionGraph",
        f"{_count(subtasks, 'subtask')} in {_count(graph.required_slots(), 'slot')}: {_stages(graph)}{groups}",
        tuple(
            Box(
                vertex.job_vertex.name,
                _name(vertex.job_vertex),
                f"x{vertex.parallelism}",
                tuple(_vertex_facts(graph, vertex)),
                _rows(vertex.parallelism, _subtask(vertex)),
            )
            for vertex in vertices
        ),
        tuple(
            Arrow(
                index[result.edge.source_vertex_id],
                index[result.edge.target_vertex_id],
                f"{result.edge.partitioner}, {'pointwise' if result.is_pointwise else 'all to all'}",
                tuple(_result_notes(graph, result)),
            )
            for result in graph.results.values()
        ),
    )


def _stages(graph: ExecutionGraph) -> str:
    """Returns how many stages a job with blocking exchanges has."""
    if graph.exchange_type is ExchangeType.PIPELINED_BOUNDED:
        return ""
    return f"{_count(1 + max(graph.stages.values()), 'stage')}; in the largest "


def _vertex_facts(graph: ExecutionGraph, vertex: ExecutionJobVertex) -> Iterator[str]:
    yield vertex.vertex_id[:_SHORT]
    if graph.exchange_type is ExchangeType.BLOCKING:
        yield f"stage {graph.stages[vertex.vertex_id] + 1}"
    if keeps_state(vertex.job_vertex):
        yield f"changelog, {_count(vertex.parallelism, 'partition')}"


def _subtask(vertex: ExecutionJobVertex) -> Callable[[int], str]:
    slot = vertex.job_vertex.slot_sharing_group or "of its own"
    return lambda index: f"{index + 1}/{vertex.parallelism} in slot {slot} {index}"


def _result_notes(graph: ExecutionGraph, result: IntermediateResult) -> Iterator[str]:
    if graph.exchange_type is ExchangeType.BLOCKING:
        yield "blocking: is read when all senders have finished"
    partitions = result.consumer_parallelism
    yield f"channel {result.data_set_id[:_SHORT]}, {_count(partitions, 'partition')}"
    senders = [len(result.producers_for(partition)) for partition in range(min(partitions, 1_000))]
    least, most = min(senders), max(senders)
    yield f"each from {_count(most, 'subtask')}" if least == most else f"each from {least} to {most} subtasks"


def _rows(count: int, text: Callable[[int], str]) -> tuple[str, ...]:
    if count <= MAX_ROWS:
        return tuple(map(text, range(count)))
    return (*map(text, range(MAX_ROWS - 2)), "...", text(count - 1))


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
