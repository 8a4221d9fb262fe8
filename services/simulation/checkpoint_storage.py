"""Simulated checkpoint storage: directories of named files, and the checkpoint effects of JobMasters.

A directory can be damaged; a reader notices it only at the restore. The storage can also reject writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...pipelines.checkpoint.layout import METADATA
from ...schemas import dispatcher, job_master
from ...schemas.body import Body
from ...schemas.types import (
    CheckpointFailureReason,
    CompletedCheckpoint,
    RestoredCheckpoint,
    SnapshotType,
)
from ..dispatcher.checkpoints import DisposeSavepoint
from ..job_master.checkpoints.completed_checkpoint_store import is_foreign
from ..job_master.instructions import (
    DiscardCheckpoint,
    FindCheckpoint,
    RemoveCheckpoints,
    WriteMetadata,
)

CHECKPOINT_INSTRUCTIONS = (
    WriteMetadata | DiscardCheckpoint | FindCheckpoint | RemoveCheckpoints | DisposeSavepoint
)
DIRECTORIES = {"state.checkpoints.dir": "memory://checkpoints", "state.savepoints.dir": "memory://savepoints"}


@dataclass(frozen=True)
class StatePart:
    """The state of a subtask: how many records it has counted."""

    attempt: str
    count: int


@dataclass(frozen=True)
class CheckpointMetadata:
    """The metadata that makes a directory a checkpoint."""

    checkpoint: CompletedCheckpoint
    parts: frozenset[str]
    finished: dict[str, tuple[int, ...]]
    tenant: str = ""


@dataclass
class SimulatedStorage:
    """URI of a directory -> its parts by name. `late`: directories that were written to after their removal."""

    parts: dict[str, dict[str, StatePart]] = field(default_factory=dict)
    metadata: dict[str, CheckpointMetadata] = field(default_factory=dict)
    removed_uris: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    corrupt_uris: set[str] = field(default_factory=set)

    def write(self, directory: str, name: str, part: StatePart) -> None:
        """Writes the part of a subtask."""
        self._touched(directory)
        self.parts.setdefault(directory, {})[name] = part

    def find_fault(self, directory: str) -> str | None:
        """Returns why a directory can't be restored; None if it can."""
        metadata = self.metadata.get(directory)
        if metadata is None:
            return f"{directory} has no {METADATA}"
        if directory in self.corrupt_uris or not metadata.parts <= set(self.parts.get(directory, ())):
            return f"a file of {directory} is truncated"
        return None

    def add_candidates(self, instruction: FindCheckpoint) -> None:
        """Marks the checkpoints that a client named, and those from before the simulation, as complete."""
        for candidate in instruction.candidates:
            self.add_existing(
                CompletedCheckpoint(
                    checkpoint_id=max(1, candidate.checkpoint_id),
                    snapshot_type=SnapshotType.SAVEPOINT,
                    uri=candidate.uri,
                    generation=candidate.generation,
                )
            )

    def add_existing(self, checkpoint: CompletedCheckpoint) -> None:
        """Adds a checkpoint from before the simulation, without its parts."""
        if checkpoint.uri not in self.metadata and checkpoint.uri not in self.removed_uris:
            self.metadata[checkpoint.uri] = CheckpointMetadata(checkpoint, frozenset(), {})

    def directories(self) -> set[str]:
        """Returns all directories."""
        return self.parts.keys() | self.metadata.keys()

    def remove(self, directory: str) -> None:
        """Removes a directory."""
        self.parts.pop(directory, None)
        self.metadata.pop(directory, None)
        self.removed_uris.add(directory)

    def perform(self, instruction: CHECKPOINT_INSTRUCTIONS, *, fails: bool = False) -> Body:
        """Performs an instruction; returns its result. `fails`: the storage rejects the write."""
        match instruction:
            case WriteMetadata():
                return self._write_metadata(instruction, fails=fails)
            case DiscardCheckpoint(
                job_id=job_id, checkpoint_id=checkpoint_id, directory=directory, kept=kept
            ):
                assert directory not in kept, f"{directory} would be both retained and discarded"
                self.remove(directory)
                return job_master.CheckpointDiscarded(job_id=job_id, checkpoint_id=checkpoint_id)
            case FindCheckpoint():
                return self._find(instruction)
            case RemoveCheckpoints(job_id=job_id, directory=directory, retained=retained):
                stay = {each.uri for each in retained}
                for each in [each for each in self.directories() if each.startswith(f"{directory}/")]:
                    if each not in stay:
                        self.remove(each)
                return job_master.CheckpointsRemoved(job_id=job_id)
            case DisposeSavepoint(path=path, request=request, tenant=tenant):
                metadata = self.metadata.get(path)
                failure = None
                if metadata is None:
                    failure = f"{path} is not a savepoint"
                elif tenant and metadata.tenant != tenant:
                    failure = f"{path} is no savepoint of tenant {tenant}"
                else:
                    self.remove(path)
                return dispatcher.SavepointDisposed(path=path, request=request, failure=failure)

    def _write_metadata(self, instruction: WriteMetadata, *, fails: bool) -> Body:
        pending = instruction.pending
        directory, job_id = pending.options.directory, instruction.job_id
        if fails:
            return job_master.CheckpointAborted(
                job_id=job_id,
                checkpoint_id=pending.checkpoint_id,
                failure=CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
                reason="the disk is full",
            )
        checkpoint = CompletedCheckpoint(
            checkpoint_id=pending.checkpoint_id,
            snapshot_type=pending.options.snapshot_type,
            uri=directory,
            generation=pending.generation,
        )
        named, finished = set(), dict[str, tuple[int, ...]]()
        for subtask in pending.subtasks():
            if subtask.finished:
                finished[subtask.vertex_id] = (*finished.get(subtask.vertex_id, ()), subtask.subtask_index)
            else:
                named.add(part_name(subtask.vertex_id, subtask.subtask_index))
        self._touched(directory)
        self.metadata[directory] = CheckpointMetadata(
            checkpoint, frozenset(named), finished, instruction.tenant
        )
        return job_master.CheckpointCompleted(job_id=job_id, checkpoint=checkpoint)

    def _find(self, instruction: FindCheckpoint) -> Body:
        passed_over = {}
        for candidate in instruction.candidates:
            fault, metadata = self.find_fault(candidate.uri), self.metadata.get(candidate.uri)
            if metadata is not None and is_foreign(metadata.tenant, instruction.tenant):
                fault = f"{candidate.uri} belongs to another tenant"
            if fault is not None or metadata is None:
                passed_over[candidate.uri] = fault or ""
                continue
            return job_master.CheckpointRestored(
                job_id=instruction.job_id,
                checkpoint=RestoredCheckpoint(
                    checkpoint_id=metadata.checkpoint.checkpoint_id,
                    uri=candidate.uri,
                    generation=candidate.generation,
                ),
                passed_over=passed_over,
                finished=metadata.finished if candidate.generation >= 0 else {},
            )
        return job_master.RestoreFailed(job_id=instruction.job_id, reason=", ".join(passed_over.values()))

    def _touched(self, directory: str) -> None:
        if directory in self.removed_uris:
            self.late.add(directory)


def part_name(vertex_id: str, subtask_index: int) -> str:
    """Returns the file name of the part of a subtask."""
    return f"{vertex_id}/{subtask_index}"
