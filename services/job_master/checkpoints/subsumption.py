"""Retention of completed checkpoints: the newest few, and at the job's end what the job is configured to retain
(Flink's CheckpointRetentionPolicy).

A subsumed checkpoint is discarded only when all tasks run and know their restore point: while one is being deployed, it
may be about to start from an older checkpoint.
"""

from __future__ import annotations

from msgspec.structs import replace

from ....pipelines.graph.job_options import ExternalizedCheckpointRetention
from ....schemas.types import CompletedCheckpoint, JobStatus
from ...configuration.role_options import CheckpointingOptions
from ..owed_events import OwedConfirmCheckpoint
from ..state import StartedJob
from .state import Checkpoints, Discard, restored_state


def add_completed(
    checkpoints: Checkpoints, checkpoint: CompletedCheckpoint, retained: int, cause: int
) -> Checkpoints:
    """Adds a completed checkpoint; the oldest ones above the retention limit are subsumed."""
    completed = tuple(sorted((*checkpoints.completed, checkpoint), key=lambda each: each.checkpoint_id))
    left = replace(checkpoints, completed=completed, latest=restored_state(completed[-1]))
    return subsume(left, completed[: max(0, len(completed) - retained)], cause)


def subsume(checkpoints: Checkpoints, gone: tuple[CompletedCheckpoint, ...], cause: int) -> Checkpoints:
    """Marks checkpoints that the job will not roll back to any more."""
    if not gone:
        return checkpoints
    discards = tuple(Discard(each.checkpoint_id, each.uri, completed=True, cause=cause) for each in gone)
    completed = tuple(each for each in checkpoints.completed if each not in gone)
    return replace(checkpoints, completed=completed, subsumed=(*checkpoints.subsumed, *discards))


def release_checkpoints(checkpoints: Checkpoints) -> Checkpoints:
    """Discards subsumed checkpoints, if no Execution may be about to start from them."""
    if not checkpoints.subsumed or checkpoints.since is None:
        return checkpoints
    if any(isinstance(owed, OwedConfirmCheckpoint) for owed in checkpoints.notifications):
        return checkpoints
    discards = {each.checkpoint_id: each for each in checkpoints.subsumed}
    return replace(checkpoints, subsumed=(), discarding=checkpoints.discarding.update(discards))


def retained_directories(checkpoints: Checkpoints) -> tuple[str, ...]:
    """Returns the directories of all checkpoints that stay, sorted."""
    own = {each.uri for each in (*checkpoints.completed, *checkpoints.savepoints)}
    latest = set() if checkpoints.latest is None else {checkpoints.latest.uri}
    return tuple(sorted(own | latest))


def on_job_end(state: StartedJob, cause: int) -> Checkpoints:
    """Handles the terminal end of the job: its files in storage are removed, if it has written any."""
    reason = f"job {state.job_id} is {state.status.value}"
    checkpoints = state.checkpoints.begin_termination(reason, cause, suspends=False)
    checkpoints = replace(checkpoints, subsumed=(), since=None)
    if not checkpoints.counter:
        return checkpoints
    return replace(checkpoints, removal=cause)


def are_retained(checkpoints: Checkpoints, options: CheckpointingOptions, end: JobStatus) -> bool:
    """Returns whether the completed checkpoints remain after this end of a job."""
    keeps = {
        ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION: {JobStatus.FAILED},
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION: {JobStatus.FAILED, JobStatus.CANCELED},
        ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS: set[JobStatus](),
    }
    return end in keeps[options.retention] or (checkpoints.keep_on_cancellation and end is JobStatus.CANCELED)
