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
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from .....infra.storage.errors import CheckpointError, StorageError
from .....infra.storage.storage import Storage
from .....schemas.types import JobVertex, OperatorState, RestoredCheckpoint, SnapshotType
from ....checkpoint.layout import base_of
from ....checkpoint.metadata import CheckpointMetadata, SubtaskSnapshot, read_metadata
from ....checkpoint.redistribution import (
    InFlightChannel,
    InFlightFilter,
    RestoredSubtask,
    StateAssignment,
    redistribute_state,
)
from ....checkpoint.state_files import in_flight_key, read_in_flight, read_section
from ....graph.chain import edge_type
from ....graph.key_groups import key_groups_of_subtask
from ...common.deployment import VertexDeployment, vertex_of
from ...common.failures import ProgressLostError, StateTypeError, TaskError
from ...common.vertex_parts import split_vertex
from ...records.batch import Batch
from ...records.buffers import HEADER_BYTES, BufferCodec
from ...records.older_records import OlderRecordReader
from ...records.type_evolution import TypeMismatch, from_layout, to_layout
from ..output.partitioners import Partition, create_partitioner
from ..state.progress_entry import ProgressEntry
from .changelog_reader import ChangelogTail
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
    parallelism_before: int
    """The parallelism of the vertex in the checkpoint."""
    continued: Mapping[str, OperatorState] | None
    """The files of the subtask's own last checkpoint, on which the next one can build; None: it cannot."""

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
) -> RestorePlan:
    """Creates the plan. `tail`: the end of the subtask's partition of the changelog.

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
        return RestorePlan(generation, False, 0, None, _NOTHING, deployment.vertex.parallelism, {})
    try:
        metadata = read_metadata(restore.uri)
    except StorageError as error:
        raise TaskError(f"checkpoint {restore.checkpoint_id} cannot be restored: {error}") from error
    except CheckpointError as error:
        raise ProgressLostError(f"checkpoint {restore.checkpoint_id} cannot be restored: {error}") from error
    if metadata.checkpoint.generation == generation and metadata.job_id == deployment.job_id:
        _require_checkpoint(metadata, deployment, subtask, tail, changelog)
    return RestorePlan(
        generation,
        begins,
        None if begins else _changelog_from(metadata, deployment, subtask, generation, entry),
        metadata.checkpoint.uri,
        redistribute_state(metadata, deployment.job_graph, deployment.vertex_id, subtask),
        _parallelism_before(metadata, deployment),
        _continued(metadata, deployment, subtask, restore),
    )


def in_flight(
    beginning: RestorePlan, deployment: VertexDeployment, subtask: int, codecs: Sequence[BufferCodec]
) -> Iterator[tuple[int, Batch]]:
    """Yields the input and its records in flight to the subtask, for Subtask.begin_generation.

    `codecs`: by input, for the data that Spark forwards. Raises ProgressLost; TaskError if another prefix has processed
    the records; StateTypeError if they were written as another type.
    """
    storage = beginning.storage
    if storage is None or not beginning.begins:
        return
    head = deployment.vertex.operators[0]
    behind = split_vertex(deployment.vertex, deployment.outputs).behind
    for channel in beginning.restored.in_flight:
        select = _selection(deployment, channel, subtask, beginning.parallelism_before)
        if select is None:
            continue
        reader: BufferCodec | OlderRecordReader = codecs[channel.input]
        key = in_flight_key(head.operator_id, channel.input, channel.partition, behind)
        try:
            for file in channel.files:
                if read_section(storage, file).key != key:
                    raise TaskError(
                        f"records in flight to operator {head.name!r} had passed other operators than those that are"
                        " chained to it now: take a savepoint instead, which contains none"
                    )
                for sender, data in read_in_flight(storage, file):
                    if sender is None:
                        reader = _reader(data, codecs[channel.input])
                        continue
                    batch = reader.read_payload(data, HEADER_BYTES)
                    yield from ((channel.input, part) for part in select(batch))
        except TypeMismatch as error:
            raise StateTypeError(
                f"records in flight to operator {head.name!r} were written as another type: {error}; go back to that"
                " type, or take a savepoint instead, which holds no records in flight"
            ) from None
        except StorageError as error:
            raise TaskError(f"records in flight cannot be restored: {error}") from error
        except CheckpointError as error:
            raise ProgressLostError(f"records in flight cannot be restored: {error}") from error


def _reader(layout: bytes, codec: BufferCodec) -> BufferCodec | OlderRecordReader:
    written = from_layout(msgspec.json.decode(layout))
    return (
        codec
        if to_layout(codec.record_type) == to_layout(written)
        else OlderRecordReader(written, codec.record_type)
    )


class _Selection:
    """Selects, of records that were in flight, those that a partitioner gives to this subtask."""

    def __init__(self, partition: Partition | None, subtask: int) -> None:
        self._partition = partition
        self._subtask = subtask

    def __call__(self, batch: Batch) -> Iterable[Batch]:
        if self._partition is None:
            return [batch]
        return [part for place, part in self._partition(batch) if place == self._subtask]


def _selection(
    deployment: VertexDeployment, channel: InFlightChannel, subtask: int, parallelism_before: int
) -> _Selection | None:
    if channel.filter is InFlightFilter.ALL:
        return _Selection(None, subtask)
    graph, edge = deployment.job_graph, deployment.inputs[channel.input]
    vertex = vertex_of(graph, edge.target_vertex_id)
    if split_vertex(vertex, deployment.outputs).prefix:
        # Records in flight have passed the prefix: they have no key any more, and none is needed.
        taker = _taker(channel, vertex, parallelism_before)
        return _Selection(None, subtask) if subtask == taker else None
    partition = create_partitioner(
        edge,
        edge_type(graph, edge),
        reachable=range(vertex.parallelism),
        partitions=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        subtask=subtask,
    )
    return _Selection(partition, subtask)


def _taker(channel: InFlightChannel, vertex: JobVertex, parallelism_before: int) -> int:
    """Returns the subtask that takes a whole channel, of those that are assigned a part of it."""
    groups = key_groups_of_subtask(channel.partition, vertex.max_parallelism, parallelism_before)
    return next(
        index
        for index in range(vertex.parallelism)
        if groups.start in key_groups_of_subtask(index, vertex.max_parallelism, vertex.parallelism)
    )


def _parallelism_before(metadata: CheckpointMetadata, deployment: VertexDeployment) -> int:
    head = deployment.vertex.operators[0].operator_id
    for vertex in metadata.vertices:
        if any(operator.operator_id == head for operator in vertex.operators):
            return vertex.parallelism
    return deployment.vertex.parallelism


def _require_checkpoint(
    metadata: CheckpointMetadata,
    deployment: VertexDeployment,
    subtask: int,
    tail: ChangelogTail,
    changelog: str,
) -> None:
    part = _snapshot_for(metadata, deployment, subtask)
    if part is None or part.state.changelog_offset < 0:
        return
    positions = [
        _source_positions(operator.inline)
        for operator in part.state.operators.values()
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


def _continued(
    metadata: CheckpointMetadata, deployment: VertexDeployment, subtask: int, restore: RestoredCheckpoint
) -> Mapping[str, OperatorState] | None:
    """Returns the files to build incremental checkpoints on. A savepoint belongs to the user and may be deleted:
    nothing is built on it."""
    if restore.generation < 0 or metadata.checkpoint.snapshot_type is not SnapshotType.CHECKPOINT:
        return None
    part = _snapshot_for(metadata, deployment, subtask)
    return None if part is None else part.state.operators
