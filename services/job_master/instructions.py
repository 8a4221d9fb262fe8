"""The instructions of a JobMaster: topics for its tasks' channels, and checkpoints in storage.

Each docstring names the event that reports the result. After a change of leader an instruction may be performed again,
so performing it twice must have the same result.
"""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map

from ...schemas.types import CompletedCheckpoint, JobGraph, RestoredCheckpoint
from ..core.role import Instruction
from .checkpoints.pending_checkpoint import PendingCheckpoint
from .topology import VertexKey


class CreateChannels(Instruction, frozen=True):
    """Create the topics of the job's channels, changelogs and output, as far as they are not there: in each generation
    of the job, since a topic that is gone is why it goes back to a checkpoint."""

    job_id: str
    job_graph: JobGraph
    generation: int
    cause: int

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


class WriteMetadata(Instruction, frozen=True):
    """Write `_metadata` of a checkpoint that all have acknowledged into `pending.options.directory`.

    Answered by CheckpointCompleted, or by CheckpointAborted with FINALIZE_CHECKPOINT_FAILURE.
    `counted`: by subtasks that had finished.
    """

    job_id: str
    job_graph: JobGraph
    pending: PendingCheckpoint
    cause: int
    counted: Map[VertexKey, Mapping[str, float]] = Map()

    @property
    def key(self) -> str:
        return f"write metadata/{self.job_id}/{self.pending.checkpoint_id}"


class DiscardCheckpoint(Instruction, frozen=True):
    """Delete a checkpoint's directory and, where it was completed, what it alone refers to. Answered by
    CheckpointDiscarded, also where something could not be deleted.

    `kept`: the directories of completed checkpoints that stay, whose files are not to be touched.
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
    """Find the first of the candidates that is whole and fits the job: newest first. Answered by CheckpointRestored,
    with the subtasks that had finished in it, or by RestoreFailed; not at all while storage can't be reached.

    A candidate of generation -1 was given by a person: its `uri` may be a directory or a `_metadata` file, its
    `checkpoint_id` 0 stands for whatever its metadata says; only such a one may have to be fitted to another graph.
    """

    job_id: str
    job_graph: JobGraph
    candidates: tuple[RestoredCheckpoint, ...]
    allow_non_restored_state: bool
    cause: int

    @property
    def is_first(self) -> bool:
        """Whether the job has not begun yet, and is to begin with what a person named."""
        return all(each.checkpoint_id == 0 for each in self.candidates)

    @property
    def key(self) -> str:
        return f"find checkpoint/{self.job_id}/{self.cause}"


class RemoveCheckpoints(Instruction, frozen=True):
    """The job has ended: delete `directory`, all that its checkpoints left in storage, but for what is `retained`.

    Answered by CheckpointsRemoved, also where something could not be deleted.
    """

    job_id: str
    directory: str
    retained: tuple[CompletedCheckpoint, ...]
    cause: int

    @property
    def key(self) -> str:
        return f"remove checkpoints/{self.job_id}"


Cleanup = DeleteChannels | DiscardCheckpoint | RemoveCheckpoints
"""What an ended job leaves to be deleted."""
