"""A checkpoint in progress: awaited subtasks and received acknowledgements (Flink's PendingCheckpoint)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from immutables import Map
from msgspec.structs import replace

from ....pipelines.checkpoint.metadata import SubtaskSnapshot
from ....schemas.types import (
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointOptions,
    SnapshotType,
    SubtaskState,
)
from ...core.role import Time
from ..topology import VertexKey


class CheckpointRequest(msgspec.Struct, frozen=True):
    """A request for a checkpoint, a savepoint, or stop-with-savepoint."""

    offset: int
    time: Time
    requester: str
    """The client that is to be answered."""
    snapshot_type: SnapshotType
    directory: str | None = None
    stops: bool = False
    drains: bool = False


class Acknowledgement(msgspec.Struct, frozen=True):
    """What a subtask contributes."""

    execution_attempt_id: str
    state: SubtaskState
    metrics: CheckpointMetrics


class Failure(msgspec.Struct, frozen=True):
    """Why a checkpoint will not be completed; `cause` is the offset of what made it so."""

    kind: CheckpointFailureReason
    reason: str
    cause: int


class PendingCheckpoint(msgspec.Struct, frozen=True):
    """When nobody is awaited any more its metadata is written, and only that can still fail."""

    checkpoint_id: int
    options: CheckpointOptions
    triggered: Time
    cause: int
    """The offset of CheckpointTriggered."""
    generation: int
    awaited: Map[str, VertexKey] = Map()
    """Execution -> its subtask."""
    acknowledged: Map[VertexKey, Acknowledgement] = Map()
    finished: Map[VertexKey, None] = Map()
    """Subtasks that had finished before, or finish without having a part in it (FLIP-147)."""
    requests: tuple[CheckpointRequest, ...] = ()
    failure: Failure | None = None
    """Set where CheckpointAborted is owed."""
    attempt_restarted: bool = False
    """Of one that stops the job: an Execution has started again behind its part, and knows nothing of its stop."""

    @property
    def is_savepoint(self) -> bool:
        """Whether it belongs to whoever asked for it."""
        return self.options.snapshot_type is SnapshotType.SAVEPOINT

    @property
    def is_acknowledged(self) -> bool:
        """Whether its metadata is to be written."""
        return not self.awaited and self.failure is None

    @property
    def has_begun(self) -> bool:
        """Whether tasks were to be told of it: it was not given up as it began."""
        return self.failure is None or self.failure.cause != self.cause

    def has_part(self, attempt: str) -> bool:
        """Whether that Execution has acknowledged."""
        return any(each.execution_attempt_id == attempt for each in self.acknowledged.values())

    def subtasks(
        self, counted: Mapping[VertexKey, Mapping[str, float]] = Map()
    ) -> tuple[SubtaskSnapshot, ...]:
        """Each subtask's part, as `_metadata` has it: by vertex and number. `counted`: by those that had finished."""
        found = {
            (vertex_id, index): SubtaskSnapshot(vertex_id, index, each.state, each.metrics)
            for (vertex_id, index), each in self.acknowledged.items()
        }
        for vertex_id, index in self.finished:
            state = SubtaskState(accumulators=counted.get((vertex_id, index), {}))
            found[(vertex_id, index)] = SubtaskSnapshot(vertex_id, index, state, finished=True)
        return tuple(found[key] for key in sorted(found))

    def acknowledge(self, attempt: str, state: SubtaskState, metrics: CheckpointMetrics) -> PendingCheckpoint:
        """An Execution that is awaited has done its part. Raises KeyError."""
        vertex = self.awaited[attempt]
        part = Acknowledgement(attempt, state, metrics)
        return replace(
            self, awaited=self.awaited.delete(attempt), acknowledged=self.acknowledged.set(vertex, part)
        )

    def without(self, attempt: str) -> PendingCheckpoint:
        """An Execution that is awaited has finished before its part was done. Raises KeyError."""
        vertex = self.awaited[attempt]
        return replace(self, awaited=self.awaited.delete(attempt), finished=self.finished.set(vertex, None))

    def with_failure(self, kind: CheckpointFailureReason, reason: str, cause: int) -> PendingCheckpoint:
        """It is to be aborted; what came first is the reason."""
        return self if self.failure is not None else replace(self, failure=Failure(kind, reason, cause))
