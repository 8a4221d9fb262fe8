"""Validates the edges of a JobGraph, and how they connect its vertices."""

from __future__ import annotations

from collections.abc import Iterator

from ...schemas.ids import is_id
from ...schemas.types import JobEdge, JobGraph, JobVertex, Partitioner
from . import limits
from .chain import side_outputs, source_operator
from .errors import shown
from .execution_graph import topological_order
from .operators import traits_of
from .parameters import edge_parameter_errors
from .physical_plan import taken_names


def edge_reasons(graph: JobGraph) -> Iterator[str]:
    """Yields everything that is wrong with the edges by themselves, one line each."""
    vertices = {vertex.vertex_id: vertex for vertex in graph.vertices}
    taken = taken_names(graph)
    for edge in graph.edges:
        name = f"edge {shown(edge.data_set_id)}"
        yield from (f"{name}: {fault}" for fault in limits.edge_errors(edge))
        if not is_id(edge.data_set_id):
            yield f"{name}: its id is not 1 to 64 letters, digits, '-' or '_'"
        if edge.data_set_id in taken:
            yield f"{name}: its channel would collide with the topic of the job's {taken[edge.data_set_id]}"
        source, target = vertices.get(edge.source_vertex_id), vertices.get(edge.target_vertex_id)
        if source is None:
            yield f"{name}: its source {shown(edge.source_vertex_id)} is no vertex of the graph"
        if target is None:
            yield f"{name}: its target {shown(edge.target_vertex_id)} is no vertex of the graph"
        if source is not None and target is not None:
            for reason in (*_source_errors(edge, source), *_partitioner_reasons(edge, source, target)):
                yield f"{name}: {reason}"


def _source_errors(edge: JobEdge, source: JobVertex) -> Iterator[str]:
    if not source.operators:  # another check reports it
        return
    try:
        operator = source_operator(source, edge)
    except ValueError:
        yield (
            f"its source operator {shown(edge.source_operator_id or '')} is none of the vertex {shown(source.name)}"
        )
        return
    if edge.output_tag is not None and edge.output_tag not in side_outputs(operator):
        yield f"{shown(operator.name)} has no side output {shown(edge.output_tag)}"


def _partitioner_reasons(edge: JobEdge, source: JobVertex, target: JobVertex) -> Iterator[str]:
    match edge.partitioner:
        case Partitioner.HASH:
            if not edge.code:
                yield "it is partitioned by HASH but has no key selector"
        case Partitioner.CUSTOM:
            if not edge.code:
                yield "it is partitioned by CUSTOM but has no partitioner"
        case other:
            if edge.code:
                yield f"it has code, but {other} takes none"
    if edge.partitioner is Partitioner.FORWARD and source.parallelism != target.parallelism:
        yield f"FORWARD cannot join parallelism {source.parallelism} with {target.parallelism}"
    yield from edge_parameter_errors(edge.partitioner, edge.parameters)


def topology_errors(graph: JobGraph) -> Iterator[str]:
    """Yields what is wrong with the connections of the vertices, for graphs whose vertices and edges are valid."""
    try:
        topological_order(graph)
    except ValueError as error:
        yield str(error)
    inputs: dict[str, list[JobEdge]] = {vertex.vertex_id: [] for vertex in graph.vertices}
    outputs: dict[str, list[JobEdge]] = {vertex.vertex_id: [] for vertex in graph.vertices}
    for edge in graph.edges:
        inputs[edge.target_vertex_id].append(edge)
        outputs[edge.source_vertex_id].append(edge)
    for vertex in graph.vertices:
        reasons = [*_input_errors(vertex, inputs[vertex.vertex_id])]
        if any(traits_of(source_operator(vertex, edge).kind).sink for edge in outputs[vertex.vertex_id]):
            reasons.append("a sink cannot have an output")
        yield from (f"vertex {shown(vertex.name)}: {reason}" for reason in reasons)


def _input_errors(vertex: JobVertex, edges: list[JobEdge]) -> Iterator[str]:
    head = traits_of(vertex.operators[0].kind)
    if head.source:
        if edges:
            yield "a source cannot have an input"
        return
    if not edges:
        yield "it has no input, and its first operator is no source"
        return
    found = {edge.input_index for edge in edges}
    for index in sorted(found - set(range(head.inputs))):
        yield f"an edge reaches its input {index}, but {vertex.operators[0].kind} has only {head.inputs}, from 0"
    for index in range(head.inputs):
        if index not in found:
            yield f"no edge reaches its input {index}, and {vertex.operators[0].kind} has {head.inputs}"
    keyed = [edge for edge in edges if not (head.broadcast and edge.input_index == 1)]
    if head.keyed and any(edge.partitioner is not Partitioner.HASH for edge in keyed):
        yield "a keyed operator needs its input partitioned by HASH"
    broadcast = (edge for edge in edges if head.broadcast and edge.input_index == 1)
    if any(edge.partitioner is not Partitioner.BROADCAST for edge in broadcast):
        yield "an operator with broadcast state needs its second input partitioned by BROADCAST"
