"""Finds the vertices that use event time: others need no watermarks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ....schemas.types import JobGraph, OperatorConfig
from ...graph.operators import OperatorKind

_IN_EVENT_TIME: Final = frozenset(
    {
        OperatorKind.KEYED_PROCESS,
        OperatorKind.KEYED_CO_PROCESS,
        OperatorKind.KEYED_BROADCAST_PROCESS,
        OperatorKind.INTERVAL_JOIN,
    }
)


def uses_event_time(operator: OperatorConfig) -> bool:
    """Whether an operator reacts to the progress of the watermark."""
    match OperatorKind(operator.kind):
        case kind if kind in _IN_EVENT_TIME:
            return True
        case OperatorKind.WINDOW:
            parameters = _parameters(operator)
            in_event_time = parameters.get("assigner", {}).get("time") == "event"
            return in_event_time or parameters.get("trigger") is not None
        case _:
            return False


def event_time_edges(graph: JobGraph) -> frozenset[str]:
    """Returns the data set ids of the edges that lead, over any distance, to an operator with event time."""
    timed: set[str] = set()
    behind = _targets(graph)
    for vertex in reversed(graph.vertices):
        if any(map(uses_event_time, vertex.operators)) or not timed.isdisjoint(behind[vertex.vertex_id]):
            timed.add(vertex.vertex_id)
    return frozenset(edge.data_set_id for edge in graph.edges if edge.target_vertex_id in timed)


def _targets(graph: JobGraph) -> Mapping[str, list[str]]:
    """Returns vertex -> the vertices that its edges lead to."""
    targets: dict[str, list[str]] = {vertex.vertex_id: [] for vertex in graph.vertices}
    for edge in graph.edges:
        targets[edge.source_vertex_id].append(edge.target_vertex_id)
    return targets


def _parameters(operator: OperatorConfig) -> Mapping[str, Any]:
    read: Mapping[str, Any] = json.loads(operator.parameters or "{}")
    return read
