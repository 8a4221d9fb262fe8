"""The job of a checkpoint, by operator id: its vertices, and the state of their subtasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from ...schemas.types import InFlightState, OperatorState
from .metadata import CheckpointMetadata, EdgeOutline, OperatorOutline, SubtaskSnapshot, VertexOutline

ACCUMULATORS: Final = "accumulators"
"""The key of a subtask's accumulators, in place of an operator id."""


class PreviousJob:
    """A checkpoint's metadata with indexes."""

    def __init__(self, metadata: CheckpointMetadata) -> None:
        self.metadata: Final = metadata
        self.vertices: Final = {vertex.vertex_id: vertex for vertex in metadata.vertices}
        self.vertex_of: Final = {
            operator.operator_id: vertex for vertex in metadata.vertices for operator in vertex.operators
        }
        """Operator id -> its vertex."""

    @cached_property
    def operators(self) -> Mapping[str, OperatorOutline]:
        """The operators by id."""
        return {
            operator.operator_id: operator
            for vertex in self.metadata.vertices
            for operator in vertex.operators
        }

    @cached_property
    def subtasks(self) -> Mapping[str, Sequence[SubtaskSnapshot]]:
        """Vertex id -> its subtasks by index."""
        found: dict[str, list[SubtaskSnapshot]] = defaultdict(list)
        for subtask in sorted(self.metadata.subtasks, key=lambda snapshot: snapshot.subtask_index):
            found[subtask.vertex_id].append(subtask)
        return found

    def finished(self, vertex: VertexOutline) -> frozenset[int]:
        """Returns the indexes of its subtasks that had ended."""
        return frozenset(
            subtask.subtask_index for subtask in self.subtasks.get(vertex.vertex_id, ()) if subtask.finished
        )

    def states(self, vertex: VertexOutline, key: str) -> Iterator[tuple[int, OperatorState]]:
        """Yields index and state of each subtask that has state under the key."""
        for subtask in self.subtasks.get(vertex.vertex_id, ()):
            state = subtask.state.operators.get(key)
            if state is not None and holds_any(state):
                yield subtask.subtask_index, state

    def in_flight(self, vertex: VertexOutline) -> Iterator[InFlightState]:
        """Yields what was in flight to its subtasks."""
        for subtask in self.subtasks.get(vertex.vertex_id, ()):
            yield from (channel for channel in subtask.state.in_flight if channel.files)

    def edges_into(self, vertex_id: str) -> list[EdgeOutline]:
        """Returns the edges in the order of the vertex's inputs."""
        return [edge for edge in self.metadata.edges if edge.target_vertex_id == vertex_id]


def holds_any(state: OperatorState) -> bool:
    """Whether the state is not empty."""
    return bool(state.files) or state.inline is not None
