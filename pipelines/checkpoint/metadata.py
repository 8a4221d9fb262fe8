"""`_metadata`: what a checkpoint's directory holds, so that it can be found whole, inspected, and restored into a job.

It is written last, so a directory without it is no checkpoint. It names files with their lengths and checksums: whoever
restores knows at once that one is missing or torn.
"""

from __future__ import annotations

import msgspec

from ...schemas.types import CheckpointMetrics, CompletedCheckpoint, SubtaskState


class OperatorOutline(msgspec.Struct, frozen=True):
    """An operator as it was: `uid` None where its id follows from its position."""

    operator_id: str
    kind: str
    name: str
    uid: str | None = None


class VertexOutline(msgspec.Struct, frozen=True):
    """A JobVertex as it was, its operators in pre-order."""

    vertex_id: str
    name: str
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorOutline, ...]


class SubtaskSnapshot(msgspec.Struct, frozen=True):
    """One subtask's part: `finished` where it had ended, and has no state."""

    vertex_id: str
    subtask_index: int
    state: SubtaskState = SubtaskState()
    metrics: CheckpointMetrics = CheckpointMetrics()
    finished: bool = False


class CheckpointMetadata(msgspec.Struct, frozen=True):
    """All of it. `triggered`: microseconds since the epoch."""

    job_id: str
    job_name: str
    checkpoint: CompletedCheckpoint
    triggered: int
    vertices: tuple[VertexOutline, ...]
    subtasks: tuple[SubtaskSnapshot, ...]
