"""A checkpoint in progress: awaited subtasks and received acknowledgements (Flink's PendingCheckpoint)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from immutables import Map
from msgspec.structs import replace

from ....pipelines.checkpoint.metadata import SubtaskSnapshot
from ....schemas.types import (
    CheckpointFailureReason,
    CheckpointOptions,
    SnapshotType,
    SubtaskAcknowledgement,
    SubtaskState,
)
from ...core.role import Time
from ..topology import VertexKey
from .stop_phase import StopEvent


class CheckpointRequest(msgspec.Struct, frozen=True):
    """A request for a checkpoint, a savepoint, or stop-with-savepoint."""

    offset: int
    time: Time
    requester: str
    """The client that gets the answer."""
    snapshot_type: SnapshotType
    directory: str | None = None
    stops: bool = False
    drains: bool = False
    tenant: str = ""
    """The tenant of this client; empty: none."""
    trigger_id: str | None = None
    """Of a savepoint: requests with the same id are one."""

    def repeats(self, other: CheckpointRequest) -> bool:
        """Whether it asks for the same savepoint: a client with several requests uses an address for each. A request
        for a checkpoint asks for one that begins after it."""
        is_savepoint = self.snapshot_type is SnapshotType.SAVEPOINT
        return is_savepoint and self == replace(other, offset=self.offset, time=self.time)


class Failure(msgspec.Struct, frozen=True):
    """The reason why a checkpoint will not be completed; `cause` is the offset of the event that caused it."""

    kind: CheckpointFailureReason
    reason: str
    cause: int


class PendingCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint in progress. When no subtask is awaited any more, its metadata is written, and only that can
    still fail."""

    checkpoint_id: int
    options: CheckpointOptions
    triggered: Time
    cause: int
    """The offset of CheckpointTriggered."""
    generation: int
    awaited: Map[str, VertexKey] = Map()
    """Execution -> its subtask."""
    acknowledged: Map[VertexKey, SubtaskAcknowledgement] = Map()
    finished: Map[VertexKey, None] = Map()
    """Subtasks that had finished before, or finish without an acknowledgement (FLIP-147)."""
    requests: tuple[CheckpointRequest, ...] = ()
    retained: int = 1
    """The number of completed checkpoints to keep when it is complete."""
    failure: Failure | None = None
    """Set if CheckpointAborted is owed."""

    @property
    def is_savepoint(self) -> bool:
        """Whether it is a savepoint, which belongs to its requester."""
        return self.options.snapshot_type is SnapshotType.SAVEPOINT

    @property
    def is_cut(self) -> bool:
        """Whether it is the cut of a rescale: a checkpoint of the job behind which its tasks stand still."""
        return self.options.stops and not self.is_savepoint

    @property
    def is_acknowledged(self) -> bool:
        """Whether its metadata has to be written."""
        return not self.awaited and self.failure is None

    @property
    def stop_event(self) -> StopEvent:
        """The event for the stop of the job, if this is the savepoint that stops it."""
        if self.failure is not None:
            return StopEvent.FAILED
        return StopEvent.STARTED if self.awaited else StopEvent.ACKNOWLEDGED

    @property
    def has_begun(self) -> bool:
        """Whether tasks had to be informed of it: False if it was aborted at its trigger."""
        return self.failure is None or self.failure.cause != self.cause

    def has_part(self, attempt: str) -> bool:
        """Whether that Execution has acknowledged."""
        return any(each.execution_attempt_id == attempt for each in self.acknowledged.values())

    def subtasks(
        self, counted: Mapping[VertexKey, Mapping[str, float]] = Map()
    ) -> tuple[SubtaskSnapshot, ...]:
        """Returns each subtask's part, as in `_metadata`: by vertex and number. `counted`: the accumulators of
        finished subtasks."""
        found = {
            (vertex_id, index): SubtaskSnapshot(vertex_id, index, each.subtask_state, each.metrics)
            for (vertex_id, index), each in self.acknowledged.items()
        }
        for vertex_id, index in self.finished:
            state = SubtaskState(accumulators=counted.get((vertex_id, index), {}))
            found[(vertex_id, index)] = SubtaskSnapshot(vertex_id, index, state, finished=True)
        return tuple(found[key] for key in sorted(found))

    def acknowledge(self, parts: Iterable[SubtaskAcknowledgement]) -> PendingCheckpoint:
        """Records the parts of awaited Executions. Raises KeyError."""
        awaited, acknowledged = self.awaited.mutate(), self.acknowledged.mutate()
        for part in parts:
            acknowledged[awaited.pop(part.execution_attempt_id)] = part
        return replace(self, awaited=awaited.finish(), acknowledged=acknowledged.finish())

    def without(self, attempt: str) -> PendingCheckpoint:
        """Records that an awaited Execution has finished without an acknowledgement. Raises KeyError."""
        vertex = self.awaited[attempt]
        return replace(self, awaited=self.awaited.delete(attempt), finished=self.finished.set(vertex, None))

    def with_failure(self, kind: CheckpointFailureReason, reason: str, cause: int) -> PendingCheckpoint:
        """Marks it to be aborted; the first reason counts."""
        return self if self.failure is not None else replace(self, failure=Failure(kind, reason, cause))
