"""What an attempt begins with, at the edges: what is not known is never taken for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.pipelines.checkpoint.metadata import (
    CheckpointMetadata,
    SubtaskSnapshot,
    outline_of,
    write_metadata,
)
from tailrace.pipelines.runtime.deployment import SubtaskDeployment, VertexDeployment
from tailrace.pipelines.runtime.failures import ProgressLost
from tailrace.pipelines.runtime.stream_task.beginning import Beginning, beginning_of
from tailrace.pipelines.runtime.stream_task.progress import of_generation
from tailrace.pipelines.runtime.stream_task.transaction import ConsumedOffset
from tailrace.schemas.types import (
    CompletedCheckpoint,
    JobGraph,
    OperatorState,
    RestoredCheckpoint,
    SnapshotType,
    SubtaskState,
)

from ...graphs import edge, job_graph, source, vertex

GRAPH: JobGraph = job_graph(source(parallelism=2), vertex("sink", parallelism=2), edge("source", "sink"))


def begin(
    directory: Path, vertex_id: str, committed: Sequence[ConsumedOffset] = (), inline: bytes | None = None
) -> Beginning:
    """Of subtask 1 in generation 2, behind a checkpoint of generation 1."""
    uri = str(directory / "chk-3")
    checkpoint = CompletedCheckpoint(
        checkpoint_id=3, snapshot_type=SnapshotType.CHECKPOINT, uri=uri, generation=1, size=0
    )
    head = next(each for each in GRAPH.vertices if each.vertex_id == vertex_id).operators[0].operator_id
    state = SubtaskState(operators={} if inline is None else {head: OperatorState(inline=inline)})
    parts = tuple(SubtaskSnapshot(vertex_id, i, state) for i in range(2))
    write_metadata(CheckpointMetadata("j", GRAPH.name, checkpoint, 0, outline_of(GRAPH), parts))
    return beginning_of(
        VertexDeployment("c", "j", GRAPH, vertex_id, (SubtaskDeployment("", 1, 0),)),
        1,
        generation=2,
        restore=RestoredCheckpoint(checkpoint_id=3, uri=uri, generation=1),
        committed=committed,
        changelog="changelog",
    )


def test_a_source_that_had_nothing_to_read_has_positions_and_none_in_them(tmp_path: Path) -> None:
    head = GRAPH.vertices[0].operators[0].operator_id
    vertex_id = GRAPH.vertices[0].vertex_id
    assert begin(tmp_path / "a", vertex_id, inline=b"{}").kafka_positions(head) == {}
    assert begin(tmp_path / "b", vertex_id).kafka_positions(head) is None


def test_a_generation_s_begin_in_the_changelog_that_was_forgotten_is_lost_progress(tmp_path: Path) -> None:
    vertex_id, note = GRAPH.vertices[1].vertex_id, of_generation(2, "")
    position = ConsumedOffset("channel", 1, 7, note)
    known = begin(tmp_path / "a", vertex_id, [position, ConsumedOffset("changelog", 1, 5, note)])
    assert (known.begins, known.changelog_from) == (False, 5)
    with pytest.raises(ProgressLost, match="generation 2"):
        begin(tmp_path / "b", vertex_id, [position])
    older = ConsumedOffset("changelog", 1, 5, of_generation(1, ""))
    with pytest.raises(ProgressLost, match="generation 2"):
        begin(tmp_path / "c", vertex_id, [position, older])
