"""Who goes by processing time, and when: so that it is told where no records carry it, and only then.

Windows of processing time end at instants that are known beforehand: whoever sends towards one has to tell when such an
instant has passed, at once, and nothing between. Timers, sessions and files that are rolled by time may want any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...schemas.types import JobGraph, OperatorConfig
from ..graph.operators import OperatorKind
from .buffers import NO_WATERMARK


class ClockDemand(msgspec.Struct, frozen=True):
    """Which steps of the clock somebody wants to know of."""

    always: bool = False
    """Any, after the interval at which time is told."""
    periods: frozenset[tuple[int, int]] = frozenset()
    """(length, offset) in ms: that the clock has come to the last millisecond before a multiple of it."""

    def __bool__(self) -> bool:
        return self.always or bool(self.periods)

    def __or__(self, other: ClockDemand) -> ClockDemand:
        return ClockDemand(self.always or other.always, self.periods | other.periods)

    def wants(self, told: int, clock: int) -> bool:
        """Whether the step from the clock that was told to this one matters (ms)."""
        if clock <= told:
            return False
        if self.always or (told == NO_WATERMARK and self.periods):
            return True
        return any(
            (told + 1 - offset) // length < (clock + 1 - offset) // length for length, offset in self.periods
        )

    def next_after(self, told: int) -> int | None:
        """The next clock that somebody waits for (ms); None where that is not known beforehand."""
        if self.always or not self.periods:
            return None
        if told == NO_WATERMARK:
            return told
        return min(
            ((told + 1 - offset) // length + 1) * length + offset - 1 for length, offset in self.periods
        )


_WITH_TIMERS: Final = frozenset(
    {OperatorKind.KEYED_PROCESS, OperatorKind.KEYED_CO_PROCESS, OperatorKind.KEYED_BROADCAST_PROCESS}
)
NEVER: Final = ClockDemand()
ALWAYS: Final = ClockDemand(always=True)


def demand_of(operator: OperatorConfig) -> ClockDemand:
    """When an operator does something just because processing time passes."""
    match OperatorKind(operator.kind):
        case kind if kind in _WITH_TIMERS:
            return NEVER if _parameters(operator).get("timers") is False else ALWAYS
        case OperatorKind.WINDOW:
            return _window_demand(_parameters(operator).get("assigner", {}))
        case OperatorKind.WATERMARKS:
            return NEVER if _parameters(operator).get("idle_after_ms") is None else ALWAYS
        case OperatorKind.FILE_SINK:
            return NEVER if _parameters(operator).get("roll_ms") is None else ALWAYS
        case _:
            return NEVER


def goes_by_event_time(operator: OperatorConfig) -> bool:
    """Whether an operator does something just because the watermark passes."""
    match OperatorKind(operator.kind):
        case kind if kind in _WITH_TIMERS:
            return True
        case OperatorKind.WINDOW:
            return bool(_parameters(operator).get("assigner", {}).get("time") == "event")
        case _:
            return False


def edge_demands(graph: JobGraph) -> Mapping[str, ClockDemand]:
    """Data set id -> what is wanted of processing time behind that edge, at any distance."""
    demands: dict[str, ClockDemand] = {}
    behind = _targets(graph)
    for vertex in reversed(graph.vertices):  # in topological order, sources first
        demand = NEVER
        for operator in vertex.operators:
            demand |= demand_of(operator)
        for target in behind[vertex.vertex_id]:
            demand |= demands[target]
        demands[vertex.vertex_id] = demand
    return {edge.data_set_id: demands[edge.target_vertex_id] for edge in graph.edges}


def timed_edges(graph: JobGraph) -> frozenset[str]:
    """The data set ids of the edges behind which, at any distance, an operator goes by event time."""
    timed: set[str] = set()
    behind = _targets(graph)
    for vertex in reversed(graph.vertices):
        if any(map(goes_by_event_time, vertex.operators)) or not timed.isdisjoint(behind[vertex.vertex_id]):
            timed.add(vertex.vertex_id)
    return frozenset(edge.data_set_id for edge in graph.edges if edge.target_vertex_id in timed)


def _targets(graph: JobGraph) -> Mapping[str, list[str]]:
    """Vertex -> the vertices that its edges lead to."""
    targets: dict[str, list[str]] = {vertex.vertex_id: [] for vertex in graph.vertices}
    for edge in graph.edges:
        targets[edge.source_vertex_id].append(edge.target_vertex_id)
    return targets


def _window_demand(assigner: Mapping[str, Any]) -> ClockDemand:
    if assigner.get("time") != "processing":
        return NEVER
    size, offset = int(assigner.get("size_ms") or 0), int(assigner.get("offset_ms") or 0)
    match assigner.get("kind"):
        case "tumbling" if size:
            return ClockDemand(periods=frozenset({(size, offset % size)}))
        case "sliding" if slide := int(assigner.get("slide_ms") or 0):
            return ClockDemand(periods=frozenset({(slide, (offset + size) % slide)}))
        case _:
            return ALWAYS


def _parameters(operator: OperatorConfig) -> Mapping[str, Any]:
    read: Mapping[str, Any] = json.loads(operator.parameters or "{}")
    return read
