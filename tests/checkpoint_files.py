"""Writes checkpoints for tests, as a job of any parallelism writes them. The state identifies the subtask that wrote
it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphs import edge, job_graph, operator, vertex

from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint import layout
from tailrace.pipelines.checkpoint.metadata import (
    CheckpointMetadata,
    SubtaskSnapshot,
    edges_of,
    outline_of,
    write_metadata,
)
from tailrace.pipelines.checkpoint.state_files import Sections
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.schemas.types import (
    CompletedCheckpoint,
    JobGraph,
    OperatorState,
    Partitioner,
    SnapshotType,
    StateFile,
    SubtaskState,
)


def pipeline(
    source_parallelism: int = 1,
    parallelism: int = 1,
    max_parallelism: int = 128,
    partitioner: Partitioner = Partitioner.HASH,
    **changes: Any,
) -> JobGraph:
    """Returns the graph generator -> (reduce -> file sink)."""
    source = vertex(
        "source", operator("source", OperatorKind.GENERATOR), parallelism=source_parallelism, **changes
    )
    counts = vertex(
        "reduce",
        operator("reduce", OperatorKind.REDUCE),
        operator("sink", OperatorKind.FILE_SINK),
        parallelism=parallelism,
        max_parallelism=max_parallelism,
    )
    return job_graph(source, counts, edge("source", "reduce", partitioner))


def metadata_of(
    graph: JobGraph,
    states: Mapping[tuple[str, int], SubtaskState],
    uri: str = "/checkpoints/job/chk-1",
    finished: Iterable[tuple[str, int]] = (),
    checkpoint_id: int = 1,
) -> CheckpointMetadata:
    """Returns the metadata of a checkpoint that has a part of every subtask of the graph."""
    ended = set(finished)
    parts = [
        SubtaskSnapshot(v.vertex_id, i, states.get((v.vertex_id, i), SubtaskState()))
        if (v.vertex_id, i) not in ended
        else SubtaskSnapshot(v.vertex_id, i, finished=True)
        for v in graph.vertices
        for i in range(v.parallelism)
    ]
    kind = SnapshotType.CHECKPOINT if layout.checkpoint_id_of(uri) else SnapshotType.SAVEPOINT
    completed = CompletedCheckpoint(checkpoint_id=checkpoint_id, snapshot_type=kind, uri=uri)
    return CheckpointMetadata(
        "job", graph.name, completed, 0, outline_of(graph), tuple(parts), edges_of(graph)
    )


def keyed(storage: Storage, path: str, key: str, sections: Sequence[tuple[range, bytes]]) -> OperatorState:
    """Writes keyed state: a file with one section per range of key groups."""
    with Sections(storage, path) as file:
        files = [file.add(key, [data], groups.start, groups.stop - 1) for groups, data in sections]
    return OperatorState(files=tuple(files))


def plain(storage: Storage, path: str, key: str, *messages: bytes) -> StateFile:
    """Writes a file with one section."""
    with Sections(storage, path) as file:
        return file.add(key, messages)


def write_checkpoint(
    job: str, number: int, *, shared: Iterable[str] = (), own: Iterable[str] = ()
) -> CheckpointMetadata:
    """Writes chk-N into a job's directory, with its own files and the shared files, which are created if they are
    missing."""
    storage = Storage.open(job)
    directory = layout.checkpoint_directory(storage.uri, number)
    files = []
    for name in shared:
        files.append(StateFile(path=f"shared/{name}", length=0, crc=0))
        if not storage.exists(f"shared/{name}"):
            plain(storage, f"shared/{name}", "reduce", name.encode())
    for name in own:
        files.append(plain(storage, f"chk-{number}/{name}", "reduce", name.encode()))
    state = SubtaskState(operators={"reduce": OperatorState(files=tuple(files))})
    metadata = metadata_of(pipeline(), {("reduce", 0): state}, directory, checkpoint_id=number)
    write_metadata(metadata)
    return metadata
