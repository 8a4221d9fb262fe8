"""Reads the operators of a JobVertex: a tree in pre-order.

`OperatorConfig.upstream` names the operator of the same vertex whose output an operator takes. It is None for the head,
which takes the input of the vertex. An operator may feed several others and several edges. The sending operator
declares the record type of a stream, once for its main output and once for each side output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...infra.json_depth import is_too_deep
from ...schemas.types import JobEdge, JobGraph, JobVertex, OperatorConfig
from ..types import PICKLED, RecordType


def vertex_of(graph: JobGraph, vertex_id: str) -> JobVertex:
    """Returns the vertex with that id. Raises ValueError if it does not exist."""
    for vertex in graph.vertices:
        if vertex.vertex_id == vertex_id:
            return vertex
    raise ValueError(f"the graph has no vertex {vertex_id}")


def consumers(operators: Sequence[OperatorConfig]) -> Mapping[str, tuple[OperatorConfig, ...]]:
    """Returns operator id -> the operators of the chain that take its outputs, in their order; every id is a key."""
    found: dict[str, list[OperatorConfig]] = {operator.operator_id: [] for operator in operators}
    for operator in operators:
        if operator.upstream is not None:
            found[operator.upstream].append(operator)
    return {operator_id: tuple(those) for operator_id, those in found.items()}


def source_operator(vertex: JobVertex, edge: JobEdge) -> OperatorConfig:
    """Returns the operator of the edge's source vertex that sends on the edge. Raises ValueError if it does not
    exist."""
    if edge.source_operator_id is None and vertex.operators:
        return vertex.operators[-1]
    for operator in vertex.operators:
        if operator.operator_id == edge.source_operator_id:
            return operator
    raise ValueError(f"vertex {vertex.vertex_id} has no operator {edge.source_operator_id}")


def output_type(operator: OperatorConfig, output_tag: str | None = None) -> RecordType:
    """Returns the record type of an output; PICKLED if the operator's parameters do not declare one."""
    parameters: Mapping[str, Any] = json.loads(operator.parameters or "{}")
    if output_tag is None:
        form = parameters.get("output_type")
    else:
        form = (parameters.get("side_outputs") or {}).get(output_tag)
    return PICKLED if form is None else RecordType.from_json(form)


def side_outputs(operator: OperatorConfig) -> frozenset[str]:
    """Returns the tags of an operator's side outputs; none if its parameters cannot be read."""
    if is_too_deep(operator.parameters):
        return frozenset()
    try:
        tags = json.loads(operator.parameters).get("side_outputs")
    except (ValueError, AttributeError):
        return frozenset()
    return frozenset(tags) if isinstance(tags, dict) else frozenset()


def edge_type(graph: JobGraph, edge: JobEdge) -> RecordType:
    """Returns the record type of an edge. Raises ValueError if its source is not in the graph."""
    return output_type(source_operator(vertex_of(graph, edge.source_vertex_id), edge), edge.output_tag)


def input_types(graph: JobGraph, vertex: JobVertex, operator: OperatorConfig) -> tuple[RecordType, ...]:
    """Returns the record type of each input of an operator; none for a source.

    If several edges carry one input (a union), they have one type: that of the first.
    """
    if operator.upstream is not None:
        (before,) = (upstream for upstream in vertex.operators if upstream.operator_id == operator.upstream)
        return (output_type(before, operator.output_tag),)
    found: dict[int, RecordType] = {}
    for edge in graph.edges:
        if edge.target_vertex_id == vertex.vertex_id and edge.input_index not in found:
            found[edge.input_index] = edge_type(graph, edge)
    return tuple(found.get(index, PICKLED) for index in range(max(found) + 1)) if found else ()


def chain_name(operators: Sequence[OperatorConfig]) -> str:
    """Returns the name of a chain in Flink's form: `Source: X -> (Map, Filter -> Sink: Y)`. The operators are in
    pre-order."""
    behind = consumers(operators)
    names: dict[str, str] = {}
    for operator in reversed(operators):
        following = [names.pop(downstream.operator_id) for downstream in behind[operator.operator_id]]
        match following:
            case []:
                names[operator.operator_id] = operator.name
            case [only]:
                names[operator.operator_id] = f"{operator.name} -> {only}"
            case several:
                names[operator.operator_id] = f"{operator.name} -> ({', '.join(several)})"
    return names[operators[0].operator_id]
