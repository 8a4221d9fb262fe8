"""The plan of an attempt's start: from the last progress entry, a checkpoint, and the changelog after it.

| the last progress entry is of this generation | state | changelog | positions |
|---|---|---|---|
| yes; the last checkpoint is of it, too | of that checkpoint | from its marker on | of the entry |
| yes; the last checkpoint is what it began with | of that checkpoint | from where it began | of the entry |
| no; there is a checkpoint to roll back to | of that, with records in flight | none | of an older entry, or 0 |
| there is no checkpoint | none | all | of the entry, or 0 |

In the third case the attempt begins the generation (Subtask.begin_generation). This module decides from data that was
already read; stream_task.py reads Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from .....infra.storage.errors import CheckpointError, StorageError
from .....infra.storage.storage import Storage
from .....schemas.types import OffsetsReset, OperatorState, RestoredCheckpoint, SnapshotType
from ....checkpoint.layout import base_of
from ....checkpoint.metadata import CheckpointMetadata, SubtaskSnapshot, read_metadata
from ....checkpoint.redistribution import (
    RestoredSubtask,
    StateAssignment,
    redistribute_state,
)
from ...common.deployment import VertexDeployment
from ...common.failures import ProgressLostError, TaskError
from ..state.progress_entry import ProgressEntry
from .changelog_reader import ChangelogTail
from .offset_resets import TopicPlace, positions_of
from .progress_evidence import require_checkpoint, require_not_superseded

_NOTHING = RestoredSubtask({}, (), False)


class RestorePlan(msgspec.Struct, frozen=True):
    """The plan of one attempt."""

    generation: int
    begins: bool
    """Whether the attempt makes the first commit of its generation."""
    changelog_from: int | None
    """The offset to read the changelog from; None: the changelog is ignored."""
    uri: str | None
    """The directory of the checkpoint; None if there is none."""
    restored: RestoredSubtask
    """The part of it that the subtask restores."""
    continued: Mapping[str, OperatorState] | None
    """The files of the subtask's own last checkpoint, on which the next one can build; None: it cannot."""
    is_rescaled: bool = False
    """Whether the attempt begins its generation from a checkpoint in which its operators had another parallelism."""

    @property
    def storage(self) -> Storage | None:
        """The storage that the names of the checkpoint's files are relative to."""
        return None if self.uri is None else Storage.open(base_of(self.uri))

    @property
    def pieces(self) -> Mapping[str, Sequence[StateAssignment]]:
        """The state files, by operator id."""
        found = self.restored.operators.items()
        return {key: those for key, those in found if any(piece.state.files for piece in those)}

    def kafka_positions(self, operator_id: str) -> dict[str, dict[int, int]] | None:
        """Returns topic -> partition -> next offset of all subtasks of a Kafka source; None if nothing is restored.

        An empty result means: the subtasks had committed that there was nothing to read.
        """
        if self.uri is None or not self.begins:
            return None
        pieces = self.restored.operators.get(operator_id)
        if not pieces:
            return None
        found: dict[str, dict[int, int]] = {}
        for piece in pieces:
            for topic, offsets in _source_positions(piece.state.inline or b"{}").items():
                found.setdefault(topic, {}).update(offsets)
        return found


def plan_restore(
    deployment: VertexDeployment,
    subtask: int,
    *,
    generation: int,
    restore: RestoredCheckpoint | None,
    tail: ChangelogTail,
    changelog: str,
    resets: Sequence[OffsetsReset] = (),
) -> RestorePlan:
    """Creates the plan. `tail`: the end of the subtask's partition of the changelog. `resets`: of its Kafka source.

    Raises ProgressLost if the checkpoint is gone, corrupt or ahead of the changelog, TaskError if storage cannot be
    reached, and ValueError if the checkpoint does not fit the vertex.
    """
    require_not_superseded(tail, changelog, subtask, generation)
    entry = tail.entry
    begins = (
        restore is not None
        and restore.generation < generation
        and (entry is None or entry.generation < generation)
    )
    if tail.damage is not None and not begins:
        raise ProgressLostError(tail.damage)
    if restore is None:
        return RestorePlan(generation, False, 0, None, _NOTHING, {})
    try:
        metadata = read_metadata(restore.uri)
    except StorageError as error:
        raise TaskError(f"checkpoint {restore.checkpoint_id} cannot be restored: {error}") from error
    except CheckpointError as error:
        raise ProgressLostError(f"checkpoint {restore.checkpoint_id} cannot be restored: {error}") from error
    if metadata.checkpoint.generation == generation and metadata.job_id == deployment.job_id:
        later = [each for each in resets if each.checkpoint_id >= restore.checkpoint_id]
        _require_checkpoint(metadata, deployment, subtask, tail, changelog, later)
    is_rescaled = _is_rescaled(metadata, deployment)
    return RestorePlan(
        generation,
        begins,
        None if begins else _changelog_from(metadata, deployment, subtask, generation, entry),
        metadata.checkpoint.uri,
        redistribute_state(metadata, deployment.job_graph, deployment.vertex_id, subtask),
        None if is_rescaled else _continued(metadata, deployment, subtask, restore),
        begins and is_rescaled,
    )


def _is_rescaled(metadata: CheckpointMetadata, deployment: VertexDeployment) -> bool:
    vertex = deployment.vertex
    own = {operator.operator_id for operator in vertex.operators}
    return any(
        before.parallelism != vertex.parallelism
        and any(operator.operator_id in own for operator in before.operators)
        for before in metadata.vertices
    )


def _require_checkpoint(
    metadata: CheckpointMetadata,
    deployment: VertexDeployment,
    subtask: int,
    tail: ChangelogTail,
    changelog: str,
    later: Sequence[OffsetsReset],
) -> None:
    """`later`: the resets of positions since the checkpoint; its positions of these partitions prove nothing."""
    part = _snapshot_for(metadata, deployment, subtask)
    if part is None or part.state.changelog_offset < 0:
        return
    positions = [
        _without_reset(_source_positions(operator.inline), positions_of(later, operator_id))
        for operator_id, operator in part.state.operators.items()
        if operator.inline is not None
    ]
    require_checkpoint(
        tail,
        changelog,
        subtask,
        metadata.checkpoint.generation,
        offset=part.state.changelog_offset,
        positions=positions[0] if positions else {},
    )


def _changelog_from(
    metadata: CheckpointMetadata,
    deployment: VertexDeployment,
    subtask: int,
    generation: int,
    entry: ProgressEntry | None,
) -> int:
    if metadata.checkpoint.generation == generation and metadata.job_id == deployment.job_id:
        part = _snapshot_for(metadata, deployment, subtask)
        if part is not None:
            return max(0, part.state.changelog_offset)
    return 0 if entry is None or entry.generation != generation else entry.changelog_from


def _snapshot_for(
    metadata: CheckpointMetadata, deployment: VertexDeployment, subtask: int
) -> SubtaskSnapshot | None:
    for snapshot in metadata.subtasks:
        if (snapshot.vertex_id, snapshot.subtask_index) == (deployment.vertex_id, subtask):
            return snapshot
    return None


def _source_positions(inline: bytes) -> dict[str, dict[int, int]]:
    """Returns topic -> partition -> next offset from the acknowledgement of a Kafka source."""
    found: dict[str, dict[str, int]] = json.loads(inline or b"{}")
    return {topic: {int(p): offset for p, offset in offsets.items()} for topic, offsets in found.items()}


def _without_reset(
    positions: Mapping[str, Mapping[int, int]], reset: Mapping[TopicPlace, int]
) -> dict[str, dict[int, int]]:
    return {
        topic: {partition: offset for partition, offset in offsets.items() if (topic, partition) not in reset}
        for topic, offsets in positions.items()
    }


def _continued(
    metadata: CheckpointMetadata, deployment: VertexDeployment, subtask: int, restore: RestoredCheckpoint
) -> Mapping[str, OperatorState] | None:
    """Returns the files to build incremental checkpoints on. A savepoint belongs to the user and may be deleted:
    nothing is built on it."""
    if restore.generation < 0 or metadata.checkpoint.snapshot_type is not SnapshotType.CHECKPOINT:
        return None
    part = _snapshot_for(metadata, deployment, subtask)
    return None if part is None else part.state.operators
