"""Which edges lead to something that goes by processing time, and so has to be told of it when no records come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...schemas.types import JobGraph, OperatorConfig
from ..graph.operators import OperatorKind


def goes_by_clock(operator: OperatorConfig) -> bool:
    """Whether an operator does something just because processing time passes."""
    match OperatorKind(operator.kind):
        case OperatorKind.KEYED_PROCESS | OperatorKind.KEYED_CO_PROCESS:
            return True
        case OperatorKind.WINDOW:
            return bool(_parameters(operator).get("assigner", {}).get("time") == "processing")
        case OperatorKind.WATERMARKS:
            return _parameters(operator).get("idle_after_ms") is not None
        case OperatorKind.FILE_SINK:
            return _parameters(operator).get("roll_ms") is not None
        case _:
            return False


def clocked_edges(graph: JobGraph) -> frozenset[str]:
    """The data set ids of the edges behind which, at any distance, an operator goes by processing time."""
    behind: dict[str, list[str]] = {vertex.vertex_id: [] for vertex in graph.vertices}
    for edge in graph.edges:
        behind[edge.source_vertex_id].append(edge.target_vertex_id)
    clocked: set[str] = set()
    for vertex in reversed(graph.vertices):  # in topological order, sources first
        if any(map(goes_by_clock, vertex.operators)) or not clocked.isdisjoint(behind[vertex.vertex_id]):
            clocked.add(vertex.vertex_id)
    return frozenset(edge.data_set_id for edge in graph.edges if edge.target_vertex_id in clocked)


def _parameters(operator: OperatorConfig) -> Mapping[str, Any]:
    read: Mapping[str, Any] = json.loads(operator.parameters or "{}")
    return read
