"""The instructions of a JobMaster: topics for its tasks' channels, measurements, and checkpoints in storage.

Each docstring names the event that reports the result. After a change of leader an instruction may be performed again,
so performing it twice must have the same result.
"""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map

from ...schemas.types import CompletedCheckpoint, JobGraph, RestoredCheckpoint
from ..core.role import Instruction, Time
from .checkpoints.pending_checkpoint import PendingCheckpoint
from .topology import VertexKey


class CreateChannels(Instruction, frozen=True):
    """Create the missing topics of the job's channels, changelogs and output, in each generation of the job: a lost
    topic may be the reason of a rollback. Before that, store the graph as a blob if TaskExecutors need it."""

    job_id: str
    job_graph: JobGraph
    generation: int
    cause: int
    graph_blob: str | None = None
    """The key of the graph's blob."""

    @property
    def key(self) -> str:
        return f"create channels/{self.job_id}/{self.generation}/{self.cause}"


class DeleteChannels(Instruction, frozen=True):
    """Delete the topics that end with the job."""

    job_id: str
    job_graph: JobGraph
    cause: int

    @property
    def key(self) -> str:
        return f"delete channels/{self.job_id}"


class MeasureTasks(Instruction, frozen=True):
    """Measure what all tasks do in a window of time that begins at `begins`. Answered by TasksMeasured.

    `vertices`: the parallelism of all vertices; `window`: in microseconds.
    """

    job_id: str
    begins: Time
    window: Time
    vertices: Map[str, int]
    cause: int

    @property
    def key(self) -> str:
        return f"measure tasks/{self.job_id}/{self.cause}"


class WriteMetadata(Instruction, frozen=True):
    """Write `_metadata` of a fully acknowledged checkpoint into `pending.options.directory`.

    Answered by CheckpointCompleted, or by CheckpointAborted with FINALIZE_CHECKPOINT_FAILURE. `counted`: accumulators
    of finished subtasks. `tenant`: that of the job.
    """

    job_id: str
    job_graph: JobGraph
    pending: PendingCheckpoint
    cause: int
    counted: Map[VertexKey, Mapping[str, float]] = Map()
    tenant: str = ""

    @property
    def key(self) -> str:
        return f"write metadata/{self.job_id}/{self.pending.checkpoint_id}"


class DiscardCheckpoint(Instruction, frozen=True):
    """Delete a checkpoint's directory and, if it was completed, the files that only it refers to. Answered by
    CheckpointDiscarded, also if something could not be deleted.

    `kept`: the directories of retained checkpoints, whose files must not be touched.
    """

    job_id: str
    checkpoint_id: int
    directory: str
    completed: bool
    kept: tuple[str, ...]
    cause: int

    @property
    def key(self) -> str:
        return f"discard checkpoint/{self.job_id}/{self.checkpoint_id}"


class FindCheckpoint(Instruction, frozen=True):
    """Find the first of the candidates that is intact and fits the job, newest first. Answered by CheckpointRestored,
    with the subtasks that had finished in it, or by RestoreFailed; not at all while storage is unreachable.

    A user named a candidate of generation -1: its `uri` may be a directory or a `_metadata` file, and its
    `checkpoint_id` is 0. Only such a candidate may be of another tenant than the job's, which is `tenant`.
    """

    job_id: str
    job_graph: JobGraph
    candidates: tuple[RestoredCheckpoint, ...]
    allow_non_restored_state: bool
    cause: int
    tenant: str = ""

    @property
    def is_first(self) -> bool:
        """Whether the job has not started yet, and starts from a savepoint that a user named."""
        return all(candidate.checkpoint_id == 0 for candidate in self.candidates)

    @property
    def key(self) -> str:
        return f"find checkpoint/{self.job_id}/{self.cause}"


class RemoveCheckpoints(Instruction, frozen=True):
    """The job has ended: delete `directory`, everything that its checkpoints left in storage, except `retained`.

    Answered by CheckpointsRemoved, also if something could not be deleted.
    """

    job_id: str
    directory: str
    retained: tuple[CompletedCheckpoint, ...]
    cause: int

    @property
    def key(self) -> str:
        return f"remove checkpoints/{self.job_id}"


Cleanup = DeleteChannels | DiscardCheckpoint | RemoveCheckpoints
"""What remains to be deleted of an ended job."""
