"""Subtasks that have finished fix the parallelism of their vertex (FLIP-147)."""

from __future__ import annotations

from collections.abc import Iterable

from ....schemas.types import ExecutionState
from ..state import StartedJob


def find_finished(state: StartedJob, vertex_ids: Iterable[str]) -> str | None:
    """Returns why the parallelism can't change, if subtasks of one of the vertices have finished."""
    for vertex_id in vertex_ids:
        vertex = state.topology.vertices[vertex_id]
        attempts = (state.current_attempts[(vertex_id, index)] for index in range(vertex.parallelism))
        if any(state.executions[attempt].state is ExecutionState.FINISHED for attempt in attempts):
            return f"subtasks of vertex {vertex.name!r} have finished: its parallelism can't change any more"
    return None
