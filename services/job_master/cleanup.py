"""The cleanup of a job whose JobMaster cannot decide any more.

Such a JobMaster keeps no state of its job (termination.py). The cleanup outlives it: topics and checkpoint files stay
in the instructions until a shell reports their deletion, under every leader, whatever else fails.
"""

from __future__ import annotations

from ...schemas.states import JOB_ENDS
from .checkpoints import subsumption
from .checkpoints.directory import job_directory
from .checkpoints.state import Discard
from .instructions import Cleanup, DeleteChannels, DiscardCheckpoint, RemoveCheckpoints
from .state import ChannelsState, StartedJob, TerminatedJob


def cleanup_of(state: StartedJob) -> tuple[Cleanup, ...]:
    """Returns everything to delete of a job that has ended."""
    job_id, checkpoints = state.job_id, state.checkpoints
    found: list[Cleanup] = []
    if state.channels is not ChannelsState.DELETED:
        found.append(DeleteChannels(job_id, state.graph, state.cause))
    aborted = {
        number: Discard(number, each.options.directory, completed=False, cause=state.cause)
        for number, each in checkpoints.pending.items()
    }
    kept = subsumption.retained_directories(checkpoints)
    for number, each in sorted(checkpoints.discarding.update(aborted).items()):
        found.append(DiscardCheckpoint(job_id, number, each.directory, each.completed, kept, each.cause))
    if checkpoints.removal is not None:
        directory = job_directory(state)
        found.append(RemoveCheckpoints(job_id, directory, checkpoints.retained, checkpoints.removal))
    return tuple(found)


def demanded_cleanup(cleanup: tuple[Cleanup, ...]) -> tuple[Cleanup, ...]:
    """Returns the instructions that are possible now: a job's directory is removed after all deletions in it."""
    if any(isinstance(each, DiscardCheckpoint) for each in cleanup):
        return tuple(each for each in cleanup if not isinstance(each, RemoveCheckpoints))
    return cleanup


def needs_cleanup(state: object) -> bool:
    """Returns whether the state is of a job that has ended, and has something left to delete."""
    if isinstance(state, TerminatedJob):
        return bool(state.cleanup)
    if not isinstance(state, StartedJob) or state.status not in JOB_ENDS:
        return False
    return state.channels is not ChannelsState.DELETED or state.checkpoints.removal is not None
