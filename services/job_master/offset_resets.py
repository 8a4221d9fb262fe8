"""The positions of Kafka sources that a client has reset while the job was paused.

A resumed job continues from its last commits, with all its state. A subtask that starts replaces its committed
positions by those of the resets that it has not committed yet (pipelines/runtime/stream_task/restore/offset_resets.py).
So resets stay in the state, and every SubmitTask of the source's vertex has them: a subtask may not have run since the
reset, and a rollback may go to a checkpoint from before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from ...pipelines.graph.limits import MAX_RESET_OFFSETS
from ...schemas import job_master
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import OffsetsReset, PartitionOffset
from ..core.role import IllegalEvent, Step
from . import termination
from .state import StartedJob

Place = tuple[str, str, int]
"""(operator id, topic, partition)"""


def on_reset_offsets(state: StartedJob, record: Record, body: job_master.ResetOffsets) -> StartedJob:
    if not termination.can_resume(state):
        raise IllegalEvent(record, state.status.value, f"job {state.job_id} is not suspended")
    sources = {vertex.operators[0].operator_id for vertex in state.graph.vertices}
    offsets = {_place(each): each for each in body.offsets if each.operator_id in sources}
    if not offsets:
        return state
    reset = OffsetsReset(
        reset_id=record.offset, checkpoint_id=state.checkpoints.counter, offsets=tuple(offsets.values())
    )
    return replace(state, offset_resets=_newest(_with_reset(state.offset_resets, reset)))


def offset_resets_of(state: StartedJob, vertex_id: str) -> tuple[OffsetsReset, ...]:
    """Returns the resets of the vertex's source, oldest first."""
    if not state.offset_resets:
        return ()
    (vertex,) = (each for each in state.graph.vertices if each.vertex_id == vertex_id)
    source = vertex.operators[0].operator_id
    return _filter_offsets(state.offset_resets, lambda each: each.operator_id == source)


def positions_after_resets(state: StartedJob) -> dict[Place, int]:
    """Returns the positions that were reset since the job was paused: it continues from them."""
    return {
        _place(each): each.offset
        for reset in state.offset_resets
        if reset.reset_id > state.start_offset
        for each in reset.offsets
    }


def _with_reset(resets: Sequence[OffsetsReset], reset: OffsetsReset) -> tuple[OffsetsReset, ...]:
    """Adds a reset. Of several resets of a partition the last one counts."""
    places = {_place(each) for each in reset.offsets}
    return (*_filter_offsets(resets, lambda each: _place(each) not in places), reset)


def _newest(resets: tuple[OffsetsReset, ...]) -> tuple[OffsetsReset, ...]:
    """Drops the oldest resets while they have more offsets than the limit."""
    left, newest = MAX_RESET_OFFSETS, []
    for reset in reversed(resets):
        if (left := left - len(reset.offsets)) < 0:
            break
        newest.append(reset)
    return tuple(reversed(newest))


def _place(offset: PartitionOffset) -> Place:
    return offset.operator_id, offset.topic, offset.partition


def _filter_offsets(
    resets: Sequence[OffsetsReset], is_wanted: Callable[[PartitionOffset], bool]
) -> tuple[OffsetsReset, ...]:
    filtered = (replace(each, offsets=tuple(filter(is_wanted, each.offsets))) for each in resets)
    return tuple(each for each in filtered if each.offsets)


STEPS: Mapping[type[Body], Step[StartedJob]] = {job_master.ResetOffsets: on_reset_offsets}
