"""Subtasks that have finished fix the parallelism of their vertex (FLIP-147)."""

from __future__ import annotations

from ....pipelines.graph.parallelism import changed_vertices, origins_of
from ....schemas.types import ExecutionState, JobGraph
from ..state import StartedJob


def find_finished(state: StartedJob, graph: JobGraph) -> str | None:
    """Returns why the job can't get this graph, if subtasks of a vertex that changes have finished."""
    origins = origins_of(state.graph, graph)
    for vertex_id in dict.fromkeys(origins[changed] for changed in changed_vertices(state.graph, graph)):
        vertex = state.topology.vertices[vertex_id]
        attempts = (state.current_attempts[(vertex_id, index)] for index in range(vertex.parallelism))
        if any(state.executions[attempt].state is ExecutionState.FINISHED for attempt in attempts):
            return f"subtasks of vertex {vertex.name!r} have finished: its parallelism can't change any more"
    return None
