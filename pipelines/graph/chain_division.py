"""Divides vertices whose operators are chained across partitioned edges (`JobGraph.chained_edges`).

That is possible at parallelism 1 only. A vertex is divided into its *parts* when it gets more subtasks: each target of
a chained edge begins one, and the edge becomes an edge of the graph. Operators keep their ids, so their state moves
with them. The result is the graph that the program has at the higher parallelism.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from ...schemas.types import JobEdge, JobGraph, JobVertex, OperatorConfig, ResourceProfile
from .chain import chain_name
from .errors import shown
from .execution_graph import topological_order
from .limits import truncate_name

NOTHING = ResourceProfile(
    cpu_cores=0,
    heap_memory_mb=0,
    direct_memory_mb=0,
    native_memory_mb=0,
    network_memory_mb=0,
    managed_memory_mb=0,
)


def parts_of(graph: JobGraph) -> Mapping[str, Mapping[str, tuple[OperatorConfig, ...]]]:
    """Returns vertex id -> the id that each part gets as a vertex -> its operators. The first part has the id of the
    vertex, and is the only one if nothing is chained across a partitioned edge."""
    begins = {edge.target_vertex_id for edge in graph.chained_edges}
    return {vertex.vertex_id: _parts(vertex, begins) for vertex in graph.vertices}


def _parts(vertex: JobVertex, begins: Collection[str]) -> Mapping[str, tuple[OperatorConfig, ...]]:
    part_of: dict[str, str] = {}
    parts: dict[str, list[OperatorConfig]] = {}
    for operator in vertex.operators:
        own, upstream = operator.operator_id, operator.upstream
        if upstream is None:
            part_of[own] = vertex.vertex_id
        elif own in begins:
            part_of[own] = own
            operator = replace(operator, upstream=None, output_tag=None)
        else:
            part_of[own] = part_of[upstream]
        parts.setdefault(part_of[own], []).append(operator)
    return {part: tuple(operators) for part, operators in parts.items()}


def divide(graph: JobGraph, vertex_ids: Collection[str]) -> JobGraph:
    """Returns the graph with these vertices divided."""
    parts = {vertex_id: those for vertex_id, those in parts_of(graph).items() if vertex_id in vertex_ids}
    new = {part for those in parts.values() for part in those}
    if len(new) == len(parts):
        return graph
    part_of = {
        operator.operator_id: part
        for those in parts.values()
        for part, operators in those.items()
        for operator in operators
    }
    last = {vertex.vertex_id: vertex.operators[-1].operator_id for vertex in graph.vertices}

    def divided(edge: JobEdge) -> JobEdge:
        sender = edge.source_operator_id or last[edge.source_vertex_id]
        if sender not in part_of:
            return edge
        return replace(edge, source_vertex_id=part_of[sender], source_operator_id=sender)

    crossed = [edge for edge in graph.chained_edges if edge.target_vertex_id in new]
    unordered = replace(
        graph,
        vertices=tuple(
            each
            for vertex in graph.vertices
            for each in _vertices(vertex, parts.get(vertex.vertex_id, {vertex.vertex_id: vertex.operators}))
        ),
        edges=(*map(divided, graph.edges), *crossed),
        chained_edges=tuple(edge for edge in graph.chained_edges if edge.target_vertex_id not in new),
    )
    return replace(unordered, vertices=topological_order(unordered))


def _vertices(vertex: JobVertex, parts: Mapping[str, tuple[OperatorConfig, ...]]) -> Iterator[JobVertex]:
    if len(parts) == 1:
        yield vertex
        return
    # A slot that holds all parts offers what the chain needs, and no more.
    rest = None if vertex.resource_profile is None else NOTHING
    for part, operators in parts.items():
        is_first = part == vertex.vertex_id
        yield replace(
            vertex,
            vertex_id=part,
            name=truncate_name(chain_name(operators)),
            operators=operators,
            resource_profile=vertex.resource_profile if is_first else rest,
        )


def chained_edge_errors(graph: JobGraph) -> Iterator[str]:
    """Yields everything that keeps the vertices from being divided, one line each. Requires valid vertices."""
    operators = {
        operator.operator_id: (operator, vertex) for vertex in graph.vertices for operator in vertex.operators
    }
    part_of = {
        operator.operator_id: part
        for those in parts_of(graph).values()
        for part, members in those.items()
        for operator in members
    }
    targets: set[str] = set()
    for edge in graph.chained_edges:
        name = f"chained edge {shown(edge.data_set_id)}"
        operator, vertex = operators.get(edge.target_vertex_id, (None, None))
        if operator is None or vertex is None or operator.upstream is None:
            yield f"{name}: its target {shown(edge.target_vertex_id)} is no operator behind another one of its vertex"
            continue
        if edge.target_vertex_id in targets:
            yield f"{name}: another one has its target {shown(edge.target_vertex_id)}"
        targets.add(edge.target_vertex_id)
        if vertex.parallelism != 1:
            yield (
                f"{name}: vertex {shown(vertex.name)} has the parallelism {vertex.parallelism}: only one of 1 can be"
                " chained so"
            )
        taken = edge.source_operator_id, edge.output_tag, edge.input_index
        if taken != (operator.upstream, operator.output_tag, 0):
            yield f"{name}: it is not the output that operator {shown(operator.name)} takes"
        elif edge.source_vertex_id != part_of[operator.upstream]:
            yield f"{name}: its source is {shown(edge.source_vertex_id)}, not {shown(part_of[operator.upstream])}"
