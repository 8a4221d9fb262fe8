"""The deployment of subtasks that a TaskExecutor passes to the runtime, and the runtime's reports.

Plain data: it is sent to StreamTask processes as MessagePack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from ....schemas.types import (
    CheckpointMetrics,
    CheckpointOptions,
    ExecutionState,
    JobEdge,
    JobGraph,
    JobVertex,
    RestoredCheckpoint,
    SubtaskState,
)


class SubtaskDeployment(msgspec.Struct, frozen=True):
    """One attempt to run one subtask."""

    execution_attempt_id: str
    subtask_index: int
    attempt_number: int
    resumes: bool = False
    """Whether this attempt ran before, in a TaskExecutor that has been started again since."""
    generation: int = 0
    """How often the job was rolled back: what older generations have sent and committed counts for nothing."""
    restore: RestoredCheckpoint | None = None
    """The last completed checkpoint, which the subtask's state begins with."""
    finished: bool = False
    """Whether the subtask had finished in that checkpoint: it only says so to those that it sends to."""
    checkpoints_over: int = 0
    """The newest checkpoint that had begun before: late barriers up to it count for nothing, as nobody waits for it."""

    @property
    def has_past(self) -> bool:
        """Whether something may be committed that this attempt goes on from, or it reads nothing."""
        return self.resumes or self.attempt_number > 0 or self.generation > 0 or self.finished


class VertexDeployment(msgspec.Struct, frozen=True):
    """The subtasks of one job vertex that a TaskExecutor is to run: one query, if the vertex has inputs."""

    cluster: str
    job_id: str
    job_graph: JobGraph
    vertex_id: str
    subtasks: tuple[SubtaskDeployment, ...]
    blobs: Mapping[str, str] = {}
    """The shipped files that are blobs: key -> the local file with the content."""

    @property
    def vertex(self) -> JobVertex:
        """The vertex to run. Raises LookupError where the graph has none of that id."""
        return vertex_of(self.job_graph, self.vertex_id)

    @property
    def inputs(self) -> tuple[JobEdge, ...]:
        """The edges that end at the vertex, in the graph's order: an input's index is its place here."""
        return tuple(edge for edge in self.job_graph.edges if edge.target_vertex_id == self.vertex_id)

    @property
    def outputs(self) -> tuple[JobEdge, ...]:
        """The edges that begin at the vertex, in the graph's order."""
        return tuple(edge for edge in self.job_graph.edges if edge.source_vertex_id == self.vertex_id)


class ExecutionReporter(Protocol):
    """Told of each change of an attempt's state; from any thread."""

    def __call__(
        self,
        execution_attempt_id: str,
        state: ExecutionState,
        failure: str | None,
        accumulators: Mapping[str, float],
        progress_lost: bool,
        /,
    ) -> None:
        """`failure`: for FAILED, the reason. `accumulators`: at an end, what functions have counted and committed, in
        all attempts of the subtask. `progress_lost`: whether no other attempt would fare better, as what it was to go
        on from is gone."""


class CheckpointTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that a task is to take. `timestamp`: when it was triggered, in microseconds since the epoch."""

    checkpoint_id: int
    timestamp: int
    options: CheckpointOptions


class CheckpointResponder(Protocol):
    """Told of each subtask's part in a checkpoint; from any thread."""

    def acknowledged(
        self,
        execution_attempt_id: str,
        checkpoint_id: int,
        state: SubtaskState,
        metrics: CheckpointMetrics,
        /,
    ) -> None:
        """The part is in storage."""

    def declined(self, execution_attempt_id: str, checkpoint_id: int, reason: str, /) -> None:
        """There will be none."""


def vertex_of(graph: JobGraph, vertex_id: str) -> JobVertex:
    """The vertex of that id. Raises LookupError."""
    for vertex in graph.vertices:
        if vertex.vertex_id == vertex_id:
            return vertex
    raise LookupError(f"job graph {graph.name!r} has no vertex {vertex_id!r}")
