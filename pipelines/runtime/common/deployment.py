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
    OffsetsReset,
    RestoredCheckpoint,
    SubtaskState,
)


class SubtaskDeployment(msgspec.Struct, frozen=True):
    """One attempt to run one subtask."""

    execution_attempt_id: str
    subtask_index: int
    attempt_number: int
    resumes: bool = False
    """Whether this attempt ran before, in a TaskExecutor that has been restarted since."""
    generation: int = 0
    """The number of rollbacks of the job: messages and commits of older generations are ignored."""
    restore: RestoredCheckpoint | None = None
    """The last completed checkpoint: the start of the subtask's state."""
    finished: bool = False
    """Whether the subtask had finished in that checkpoint: it only sends its end."""
    checkpoints_over: int = 0
    """The newest checkpoint that had begun before: late barriers up to it are ignored, because no result is
    expected."""
    offset_resets: tuple[OffsetsReset, ...] = ()
    """The positions of its Kafka source that were reset while the job was paused, oldest first."""
    slot: str = ""
    """The allocation id of its slot."""
    slot_tasks: int = 1
    """How many attempts share the process of this one: those of one job in its slot that were submitted together. The
    process starts when all are deployed, and they end together if one of them fails."""

    @property
    def has_past(self) -> bool:
        """Whether this attempt may continue from committed progress; True also if it reads nothing."""
        return self.resumes or self.attempt_number > 0 or self.generation > 0 or self.finished


class VertexDeployment(msgspec.Struct, frozen=True):
    """The subtasks of one job vertex for one TaskExecutor: one query, if the vertex has inputs."""

    cluster: str
    job_id: str
    job_graph: JobGraph
    vertex_id: str
    subtasks: tuple[SubtaskDeployment, ...]
    blobs: Mapping[str, str] = {}
    """The shipped files that are blobs: key -> the local file with the content."""

    @property
    def vertex(self) -> JobVertex:
        """Returns the vertex to run. Raises LookupError if the graph has none of that id."""
        return vertex_of(self.job_graph, self.vertex_id)

    @property
    def inputs(self) -> tuple[JobEdge, ...]:
        """Returns the edges that end at the vertex, in the graph's order. The index of an input is its position
        here."""
        return tuple(edge for edge in self.job_graph.edges if edge.target_vertex_id == self.vertex_id)

    @property
    def outputs(self) -> tuple[JobEdge, ...]:
        """Returns the edges that begin at the vertex, in the graph's order."""
        return tuple(edge for edge in self.job_graph.edges if edge.source_vertex_id == self.vertex_id)


class ExecutionReporter(Protocol):
    """Receives each change of an attempt's state; from any thread."""

    def __call__(
        self,
        execution_attempt_id: str,
        state: ExecutionState,
        failure: str | None,
        accumulators: Mapping[str, float],
        progress_lost: bool,
        /,
    ) -> None:
        """`failure`: the reason of FAILED. `accumulators`: in a terminal state, the committed counts of functions,
        in all attempts of the subtask. `progress_lost`: the state that the attempt should continue from is gone, so
        another attempt would fail too."""


class CheckpointTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger for a checkpoint of a task. `timestamp`: when it was triggered, in microseconds since the epoch."""

    checkpoint_id: int
    timestamp: int
    options: CheckpointOptions


class CheckpointResponder(Protocol):
    """Receives each subtask's answer to a checkpoint; from any thread."""

    def acknowledged(
        self,
        execution_attempt_id: str,
        checkpoint_id: int,
        state: SubtaskState,
        metrics: CheckpointMetrics,
        /,
    ) -> None:
        """Reports that the snapshot is in storage."""

    def declined(self, execution_attempt_id: str, checkpoint_id: int, reason: str, /) -> None:
        """Reports that the subtask takes no snapshot."""


def vertex_of(graph: JobGraph, vertex_id: str) -> JobVertex:
    """Returns the vertex with that id. Raises LookupError."""
    for vertex in graph.vertices:
        if vertex.vertex_id == vertex_id:
            return vertex
    raise LookupError(f"job graph {graph.name!r} has no vertex {vertex_id!r}")
