"""The positions of a Kafka source that a client has reset while the job was paused.

A reset changes positions, and no state: the subtask continues from its last commit, and reads from other offsets. The
progress entry names the last reset that its positions include, so each reset is applied once. It is committed before
the first record. A generation that begins from a checkpoint has the checkpoint's positions, and applies the resets that
came after that checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .....schemas.types import OffsetsReset, RestoredCheckpoint
from ..state.progress_entry import ProgressEntry

TopicPlace = tuple[str, int]
"""(topic, partition)"""


def resets_to_apply(
    resets: Sequence[OffsetsReset],
    entry: ProgressEntry | None,
    generation: int,
    restored: RestoredCheckpoint | None,
) -> tuple[OffsetsReset, ...]:
    """Returns the resets that an attempt applies. `restored`: the checkpoint from which it begins the generation; None:
    it continues from the entry, if that is of the generation."""
    if restored is not None:
        is_of_other_job = restored.generation < 0
        return tuple(
            each for each in resets if is_of_other_job or each.checkpoint_id >= restored.checkpoint_id
        )
    is_committed = entry is not None and entry.generation == generation
    return tuple(each for each in resets if not is_committed or each.reset_id > last_reset_of(entry))


def last_reset_of(entry: ProgressEntry | None) -> int:
    """Returns the last reset that the positions of an entry include; -1 if there is none."""
    return -1 if entry is None else entry.reset_id


def last_reset(resets: Iterable[OffsetsReset], entry: ProgressEntry | None) -> int:
    """Returns what the entries of an attempt name, after it has applied all resets."""
    return max((each.reset_id for each in resets), default=last_reset_of(entry))


def positions_of(resets: Iterable[OffsetsReset], operator_id: str) -> Mapping[TopicPlace, int]:
    """Returns the new positions of a source."""
    return {
        (each.topic, each.partition): each.offset
        for reset in resets
        for each in reset.offsets
        if each.operator_id == operator_id
    }
