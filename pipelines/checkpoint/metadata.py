"""The `_metadata` file of a checkpoint's directory: with it, the checkpoint can be found, inspected, and restored
into a job.

It is written last, so a directory without it is no checkpoint. It names files with their lengths and checksums, so a
restore detects a missing or truncated file at once.

The file has a head (magic, version, length and checksum of the rest) and a CheckpointMetadata in MessagePack. A new
field with a default does not need a new version.
"""

from __future__ import annotations

import json
import posixpath
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from ...infra.storage.errors import CheckpointError, CorruptFile, MissingFile, NoCheckpoint, StorageError
from ...infra.storage.storage import Storage
from ...schemas.types import (
    CheckpointMetrics,
    CompletedCheckpoint,
    JobGraph,
    OperatorConfig,
    Partitioner,
    StateFile,
    SubtaskState,
)
from ..graph.operators import OperatorKind
from .layout import METADATA, base_of, metadata_path
from .state_files import check

VERSION: Final = 1
_MAGIC: Final = b"tailrace"
_READ_AT_ONCE: Final = 8
"""Number of files; most of the time of remote ones is spent waiting."""
_HEAD: Final = struct.Struct("<8sHQI")


class OperatorOutline(msgspec.Struct, frozen=True):
    """An operator of the checkpointed job. `uid` is None if its id follows from its position."""

    operator_id: str
    kind: str
    name: str
    uid: str | None = None
    other_kafka: str | None = None
    """The bootstrap servers that a Kafka source reads, if it does not read the cluster's own Kafka."""


class VertexOutline(msgspec.Struct, frozen=True):
    """A JobVertex as it was, its operators in pre-order."""

    vertex_id: str
    name: str
    parallelism: int
    max_parallelism: int
    operators: tuple[OperatorOutline, ...]


class EdgeOutline(msgspec.Struct, frozen=True):
    """An edge between vertices as it was; those into a vertex are in the order of its inputs."""

    source_vertex_id: str
    source_operator_id: str | None
    output_tag: str | None
    target_vertex_id: str
    partitioner: Partitioner


class SubtaskSnapshot(msgspec.Struct, frozen=True):
    """The snapshot of one subtask. A `finished` subtask has no state except its accumulators."""

    vertex_id: str
    subtask_index: int
    state: SubtaskState = SubtaskState()
    metrics: CheckpointMetrics = CheckpointMetrics()
    finished: bool = False


class CheckpointMetadata(msgspec.Struct, frozen=True):
    """The content of the file. `triggered`: microseconds since the epoch. `tenant`: that of the job; empty: none."""

    job_id: str
    job_name: str
    checkpoint: CompletedCheckpoint
    triggered: int
    vertices: tuple[VertexOutline, ...]
    subtasks: tuple[SubtaskSnapshot, ...]
    edges: tuple[EdgeOutline, ...] = ()
    tenant: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CheckpointMetadata).decode


def outline_of(graph: JobGraph) -> tuple[VertexOutline, ...]:
    """Returns the outlines of a job's vertices."""
    return tuple(
        VertexOutline(
            vertex.vertex_id,
            vertex.name,
            vertex.parallelism,
            vertex.max_parallelism,
            tuple(
                OperatorOutline(
                    operator.operator_id, operator.kind, operator.name, operator.uid, _other_kafka(operator)
                )
                for operator in vertex.operators
            ),
        )
        for vertex in graph.vertices
    )


def _other_kafka(operator: OperatorConfig) -> str | None:
    if operator.kind != OperatorKind.KAFKA_SOURCE:
        return None
    connection = json.loads(operator.parameters).get("connection")
    return None if connection is None else connection["bootstrap_servers"]


def edges_of(graph: JobGraph) -> tuple[EdgeOutline, ...]:
    """Returns the outlines of a job's edges."""
    return tuple(
        EdgeOutline(
            edge.source_vertex_id,
            edge.source_operator_id,
            edge.output_tag,
            edge.target_vertex_id,
            edge.partitioner,
        )
        for edge in graph.edges
    )


def write_metadata(metadata: CheckpointMetadata) -> int:
    """Writes the `_metadata` of the checkpoint's directory atomically. Returns its size in bytes. Raises
    StorageError."""
    body = _encode(metadata)
    data = _HEAD.pack(_MAGIC, VERSION, len(body), _checksum(VERSION, body)) + body
    directory = metadata.checkpoint.uri
    Storage.open(directory).write_atomically(METADATA, data)
    return len(data)


def directory_of(path: str) -> str:
    """Returns the directory of a checkpoint from its directory or its `_metadata`."""
    named = path.rstrip("/")
    return posixpath.dirname(named) if posixpath.basename(named) == METADATA else path


def read_metadata(directory: str) -> CheckpointMetadata:
    """Reads the metadata of a checkpoint's or savepoint's directory, or of its `_metadata`; `uri` is its present
    location.

    Raises NoCheckpoint, CorruptFile, StorageError.
    """
    storage = Storage.open(directory_of(directory))
    path = metadata_path(storage.uri)
    try:
        data = storage.read(METADATA)
    except MissingFile:
        there = storage.exists("")
        what = f"has no {METADATA}" if there else "does not exist"
        inside = [name for name in storage.directories() if storage.exists(metadata_path(name))]
        hint = f"; it contains {', '.join(inside[-3:])}: name one" if inside else ""
        raise NoCheckpoint(f"{storage.uri} is not a checkpoint or savepoint: it {what}{hint}") from None
    metadata = _parse(path, data)
    checkpoint = msgspec.structs.replace(metadata.checkpoint, uri=storage.uri)
    return msgspec.structs.replace(metadata, checkpoint=checkpoint)


def files_of(metadata: CheckpointMetadata) -> Iterator[StateFile]:
    """Yields every range of a file that a checkpoint refers to."""
    for subtask in metadata.subtasks:
        for state in subtask.state.operators.values():
            yield from state.files
        for channel in subtask.state.in_flight:
            yield from channel.files


def verify(metadata: CheckpointMetadata, *, checksums: bool = False) -> list[str]:
    """Returns what is wrong with a checkpoint's files, a line each; empty if all are there and long enough.

    `checksums`: also reads them all. Raises StorageError if storage does not answer.
    """
    storage = Storage.open(base_of(metadata.checkpoint.uri))
    needed: dict[str, int] = {}
    for file in files_of(metadata):
        needed[file.path] = max(needed.get(file.path, 0), file.offset + file.length)
    there = {
        directory: storage.sizes(directory) for directory in {posixpath.dirname(path) for path in needed}
    }
    faults = []
    sound = set()
    for path, length in needed.items():
        size = there[posixpath.dirname(path)].get(posixpath.basename(path))
        if size is None:
            faults.append(f"{storage.absolute(path)} does not exist")
        elif size < length:
            faults.append(f"{storage.absolute(path)} is truncated: it has {size} of {length} bytes")
        else:
            sound.add(path)
    if checksums:
        faults += _wrong_checksums(storage, [file for file in files_of(metadata) if file.path in sound])
    return faults


def _checksum(version: int, body: bytes) -> int:
    return zlib.crc32(body, version)


def _wrong_checksums(storage: Storage, files: list[StateFile]) -> Iterator[str]:
    def fault(file: StateFile) -> str | None:
        try:
            check(storage, file)
        except StorageError:
            raise
        except CheckpointError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
        yield from filter(None, pool.map(fault, files))


def _parse(path: str, data: bytes) -> CheckpointMetadata:
    if not _MAGIC.startswith(data[: len(_MAGIC)]):
        raise NoCheckpoint(f"{path} was not written by tailrace: it begins {data[:8].hex()}")
    if len(data) < _HEAD.size:
        raise CorruptFile(f"{path} is truncated: it has {len(data)} bytes")
    _, version, length, crc = _HEAD.unpack_from(data)
    if version > VERSION:
        raise NoCheckpoint(
            f"{path} has version {version} and this tailrace reads up to {VERSION}: use the newer one"
        )
    body = data[_HEAD.size :]
    if len(body) != length:
        raise CorruptFile(f"{path} is truncated: {length} bytes should follow its head, but {len(body)} do")
    if _checksum(version, body) != crc:
        raise CorruptFile(f"{path} is corrupt: its checksum differs")
    try:
        return _decode(body)
    except msgspec.MsgspecError as error:
        raise NoCheckpoint(f"{path} is invalid: {error}") from error
