"""The cut of a rescale: when it is due, and what follows when it is complete or aborted."""

from __future__ import annotations

from msgspec.structs import replace

from ....pipelines.graph.parallelism import changed_vertices, changing_vertices, origins_of
from ....schemas.event import Record
from ....schemas.types import JobGraph
from ...core.role import Time
from .. import job_status, restore
from ..checkpoints.pending_checkpoint import PendingCheckpoint
from ..state import StartedJob
from .finished_subtasks import find_finished
from .reserved_slots import has_all_slots
from .state import MOST_CUTS, Rescale, RescalePhase


def wants_cut(state: StartedJob) -> bool:
    """Whether the cut is due as soon as all tasks run and no other checkpoint is in progress."""
    current = state.rescaling.current
    return (
        current is not None
        and current.phase is RescalePhase.WAITING
        and current.failure is None
        and has_all_slots(state)
    )


def is_late(state: StartedJob, now: Time) -> bool:
    """Whether the rescale has waited for its cut for too long."""
    current = state.rescaling.current
    return current is not None and now >= timeout(state, current)


def timeout(state: StartedJob, rescale: Rescale) -> Time:
    """Returns when a rescale that waits fails."""
    return rescale.request.time + state.options.checkpointing.timeout


def on_cut_completed(state: StartedJob, cut: PendingCheckpoint, record: Record) -> StartedJob:
    """Handles a complete cut: the tasks end, and restart from it."""
    current = state.rescaling.current
    if current is None:
        return state
    if state.status not in job_status.ACTIVE:
        return _wait_again(state)
    if state.counts.finished == state.topology.subtasks:
        return _with_failure(_wait_again(state), "all its tasks have finished")
    why = f"rescaled: {describe(state.graph, current.graph)}"
    finished = find_finished(state, changing_vertices(state.graph, current.graph))
    if finished is not None:
        # The other tasks stand still: they go on from the cut, as they were.
        state = _with_failure(_wait_again(state), finished)
        why = f"not rescaled: {finished}"
    else:
        state = replace(state, rescaling=state.rescaling.with_phase(RescalePhase.RESTARTING))
    return restore.start_rollback(state, why, record.offset, record.header.time)


def on_cut_aborted(state: StartedJob, cut: PendingCheckpoint, why: str) -> StartedJob:
    """Handles an aborted cut: it is taken again when all tasks run."""
    current = state.rescaling.current
    if current is None or not state.rescaling.is_taking(cut.checkpoint_id):
        return state
    aborted = replace(
        current.transition(RescalePhase.WAITING),
        aborted_cuts=current.aborted_cuts + 1,
        failure=why if current.aborted_cuts + 1 >= MOST_CUTS else None,
    )
    return replace(state, rescaling=replace(state.rescaling, current=aborted))


def _wait_again(state: StartedJob) -> StartedJob:
    return replace(state, rescaling=state.rescaling.with_phase(RescalePhase.WAITING))


def _with_failure(state: StartedJob, reason: str) -> StartedJob:
    return replace(state, rescaling=state.rescaling.with_failure(reason))


def describe(before: JobGraph, after: JobGraph) -> str:
    """Returns the change for people, such as `Map from parallelism 2 to 4`; vertices with the same change are
    counted."""
    counts = {vertex.vertex_id: vertex.parallelism for vertex in before.vertices}
    changed, origins = changed_vertices(before, after), origins_of(before, after)
    changes: dict[tuple[int, int], list[str]] = {}
    for vertex in after.vertices:
        if vertex.vertex_id in changed:
            change = counts[origins[vertex.vertex_id]], vertex.parallelism
            changes.setdefault(change, []).append(vertex.name)
    return "; ".join(
        f"{names[0] if len(names) == 1 else f'{len(names)} vertices'} from parallelism {number} to {new}"
        for (number, new), names in changes.items()
    )
