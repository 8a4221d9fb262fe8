"""The positions of Kafka sources in a savepoint, and a copy of a savepoint with other positions.

The copy has all state in files of its own, so both savepoints can be moved, used and disposed of on their own.
`_metadata` is written last: a copy that was interrupted is no savepoint.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from ...infra.storage.errors import StorageError
from ...infra.storage.storage import Storage
from ...schemas.types import OperatorState
from ..graph.operators import OperatorKind
from .disposal import discard_incomplete
from .metadata import CheckpointMetadata, OperatorOutline, SubtaskSnapshot, files_of, write_metadata

_CHUNK: Final = 8 << 20


class SourcePosition(msgspec.Struct, frozen=True):
    """The position of one partition in a savepoint, or of a paused job."""

    operator_id: str
    source: str
    """The name of the operator."""
    topic: str
    partition: int
    position: int | None
    """The next offset to read; None: it is not known, which may be of a paused job only."""

    @property
    def place(self) -> Place:
        return self.operator_id, self.topic, self.partition


Place = tuple[str, str, int]
"""(operator id, topic, partition)"""


def kafka_sources(metadata: CheckpointMetadata) -> list[OperatorOutline]:
    """Returns the Kafka sources of a savepoint or checkpoint."""
    return [
        operator
        for vertex in metadata.vertices
        for operator in vertex.operators
        if operator.kind == OperatorKind.KAFKA_SOURCE
    ]


def positions_of(metadata: CheckpointMetadata) -> list[SourcePosition]:
    """Returns the positions of the sources in order of operator, topic and partition."""
    return [
        SourcePosition(operator.operator_id, operator.name, topic, partition, position)
        for operator in kafka_sources(metadata)
        for (topic, partition), position in sorted(_positions(metadata, operator.operator_id))
    ]


def copy_with_positions(metadata: CheckpointMetadata, uri: str, changed: Mapping[Place, int]) -> None:
    """Writes a savepoint to the directory `uri`: all state of another one, with these positions changed.

    Raises MissingFile, StorageError; then nothing of it stays.
    """
    try:
        _copy_files(metadata, uri)
        write_metadata(
            msgspec.structs.replace(
                metadata,
                checkpoint=msgspec.structs.replace(metadata.checkpoint, uri=uri),
                subtasks=tuple(_with_positions(subtask, changed) for subtask in metadata.subtasks),
            )
        )
    except BaseException:
        with suppress(StorageError):
            discard_incomplete(uri)
        raise


def _positions(metadata: CheckpointMetadata, operator_id: str) -> Iterator[tuple[tuple[str, int], int]]:
    for subtask in metadata.subtasks:
        state = subtask.state.operators.get(operator_id)
        if state is not None and state.inline:
            for topic, partitions in json.loads(state.inline).items():
                for partition, position in partitions.items():
                    yield (topic, int(partition)), position


def _with_positions(subtask: SubtaskSnapshot, changed: Mapping[Place, int]) -> SubtaskSnapshot:
    known = {operator_id for operator_id, _, _ in changed}
    operators = {
        key: _state_with_positions(key, state, changed) if key in known and state.inline else state
        for key, state in subtask.state.operators.items()
    }
    return msgspec.structs.replace(subtask, state=msgspec.structs.replace(subtask.state, operators=operators))


def _state_with_positions(
    operator_id: str, state: OperatorState, changed: Mapping[Place, int]
) -> OperatorState:
    positions = {
        topic: {
            partition: changed.get((operator_id, topic, int(partition)), position)
            for partition, position in partitions.items()
        }
        for topic, partitions in json.loads(state.inline or b"{}").items()
    }
    return msgspec.structs.replace(state, inline=json.dumps(positions).encode())


def _copy_files(metadata: CheckpointMetadata, uri: str) -> None:
    source, target = Storage.open(metadata.checkpoint.uri), Storage.open(uri)
    # A file outside of the savepoint's directory is named by its absolute location, and stays where it is.
    for path in sorted({file.path for file in files_of(metadata)}):
        if source.absolute(path) == path:
            continue
        with target.create(posixpath.normpath(path)) as file:
            while data := source.read(path, file.length, _CHUNK):
                file.write(data)
