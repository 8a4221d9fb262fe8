"""The cleanup of a job whose JobMaster can't decide any more.

Such a JobMaster keeps no state of its job (termination.py). The cleanup outlives it: topics and checkpoint files stay
instructed until a shell reports their deletion, under every leader, whatever else fails.
"""

from __future__ import annotations

from ...schemas.types import CompletedCheckpoint
from .checkpoints import subsumption, trigger
from .checkpoints.state import Discard
from .instructions import Cleanup, DeleteChannels, DiscardCheckpoint, RemoveCheckpoints
from .state import Handshake, JobMasterState


def cleanup_of(state: JobMasterState) -> tuple[Cleanup, ...]:
    """All that is to be deleted of a job that ends now, or has ended."""
    if state.terminated is not None:
        return state.terminated.cleanup
    job_id, graph, checkpoints = state.job_id, state.graph, state.checkpoints
    found: list[Cleanup] = []
    if state.deletion is Handshake.OWED and graph is not None:
        found.append(DeleteChannels(job_id, graph, state.cause))
    aborted = {
        number: Discard(number, each.options.directory, completed=False, cause=state.cause)
        for number, each in checkpoints.pending.items()
    }
    kept = subsumption.retained_directories(checkpoints)
    for number, each in sorted(checkpoints.discarding.update(aborted).items()):
        found.append(DiscardCheckpoint(job_id, number, each.directory, each.completed, kept, each.cause))
    if checkpoints.removal is not None:
        directory = trigger.job_directory(state)
        found.append(RemoveCheckpoints(job_id, directory, retained_of(state), checkpoints.removal))
    return tuple(found)


def retained_of(state: JobMasterState) -> tuple[CompletedCheckpoint, ...]:
    """The checkpoints of an ended job that stay in storage."""
    checkpoints = state.checkpoints
    if checkpoints.removal is None:
        return checkpoints.completed
    return subsumption.retained_checkpoints(checkpoints, state.options.checkpointing, state.status)


def demanded_cleanup(cleanup: tuple[Cleanup, ...]) -> tuple[Cleanup, ...]:
    """What can be done now: a job's directory is removed when nothing in it is being deleted."""
    if any(isinstance(each, DiscardCheckpoint) for each in cleanup):
        return tuple(each for each in cleanup if not isinstance(each, RemoveCheckpoints))
    return cleanup
