"""What a JobMaster demands of the world: the topics that its tasks need."""

from __future__ import annotations

from ...schemas.types import JobGraph
from ..roles import (
    Instruction,
)


class CreateChannels(Instruction, frozen=True):
    """Create the topics of the job's channels, changelogs and output."""

    job_id: str
    job_graph: JobGraph
    cause: int

    @property
    def key(self) -> str:
        return f"create channels/{self.job_id}/{self.cause}"


class DeleteChannels(Instruction, frozen=True):
    """Delete the topics that end with the job."""

    job_id: str
    job_graph: JobGraph
    cause: int

    @property
    def key(self) -> str:
        return f"delete channels/{self.job_id}"
