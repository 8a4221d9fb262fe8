"""What an attempt restores in edge cases: unknown state is never taken for empty state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.checkpoint.compatibility import incompatibilities
from tailrace.pipelines.checkpoint.metadata import (
    CheckpointMetadata,
    SubtaskSnapshot,
    edges_of,
    outline_of,
    write_metadata,
)
from tailrace.pipelines.checkpoint.state_files import Sections, in_flight_key, in_flight_message
from tailrace.pipelines.graph.chain import edge_type
from tailrace.pipelines.runtime.common.deployment import SubtaskDeployment, VertexDeployment
from tailrace.pipelines.runtime.common.failures import ProgressLostError, TaskError
from tailrace.pipelines.runtime.common.vertex_parts import split_vertex
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import BufferCodec, BufferHeader
from tailrace.pipelines.runtime.stream_task.restore.changelog_reader import ChangelogTail
from tailrace.pipelines.runtime.stream_task.restore.in_flight import in_flight
from tailrace.pipelines.runtime.stream_task.restore.restore_plan import RestorePlan, plan_restore
from tailrace.pipelines.runtime.stream_task.state.progress_entry import InputProgress, ProgressEntry
from tailrace.schemas.types import (
    CompletedCheckpoint,
    InFlightState,
    JobGraph,
    OffsetsReset,
    OperatorState,
    PartitionOffset,
    RestoredCheckpoint,
    SnapshotType,
    SubtaskState,
)

from ...graphs import edge, job_graph, source, vertex

GRAPH: JobGraph = job_graph(source(parallelism=2), vertex("sink", parallelism=2), edge("source", "sink"))

NOTHING = ChangelogTail(None, -1, 0)


def begin(
    directory: Path,
    vertex_id: str,
    tail: ChangelogTail = NOTHING,
    inline: bytes | None = None,
    generation: int = 1,
    resets: Sequence[OffsetsReset] = (),
) -> RestorePlan:
    """Starts subtask 1 in generation 2, after a checkpoint of that generation."""
    uri = str(directory / "chk-3")
    checkpoint = CompletedCheckpoint(
        checkpoint_id=3, snapshot_type=SnapshotType.CHECKPOINT, uri=uri, generation=generation, size=0
    )
    head = next(vertex for vertex in GRAPH.vertices if vertex.vertex_id == vertex_id).operators[0].operator_id
    operators = {} if inline is None else {head: OperatorState(inline=inline)}
    state = SubtaskState(operators=operators, changelog_offset=9)
    parts = tuple(SubtaskSnapshot(vertex_id, i, state) for i in range(2))
    write_metadata(CheckpointMetadata("j", GRAPH.name, checkpoint, 0, outline_of(GRAPH), parts))
    return plan_restore(
        VertexDeployment("c", "j", GRAPH, vertex_id, (SubtaskDeployment("", 1, 0),)),
        1,
        generation=2,
        restore=RestoredCheckpoint(checkpoint_id=3, uri=uri, generation=generation),
        tail=tail,
        changelog="changelog",
        resets=resets,
    )


def test_source_without_partitions_has_empty_positions(tmp_path: Path) -> None:
    head = GRAPH.vertices[0].operators[0].operator_id
    vertex_id = GRAPH.vertices[0].vertex_id
    assert begin(tmp_path / "a", vertex_id, inline=b"{}").kafka_positions(head) == {}
    assert begin(tmp_path / "b", vertex_id).kafka_positions(head) is None


def tail(generation: int, offset: int, position: int = 7) -> ChangelogTail:
    inputs = (InputProgress("lines", None, {1: position}),)
    return ChangelogTail(ProgressEntry(generation, None, 5, inputs), offset, offset + 2)


def test_generation_continues_from_its_start_in_changelog(tmp_path: Path) -> None:
    vertex_id = GRAPH.vertices[1].vertex_id
    known = begin(tmp_path / "a", vertex_id, tail(2, 8))
    assert (known.begins, known.changelog_from) == (False, 5)
    for number, older in enumerate((tail(1, 8), NOTHING)):
        known = begin(tmp_path / f"b{number}", vertex_id, older)
        assert (known.begins, known.changelog_from) == (True, None)
    with pytest.raises(TaskError, match="superseded"):
        begin(tmp_path / "c", vertex_id, tail(3, 8))


def test_only_new_generation_skips_damaged_changelog(tmp_path: Path) -> None:
    vertex_id = GRAPH.vertices[1].vertex_id
    damaged = [
        replace(changelog_tail, damage="damaged") for changelog_tail in (tail(1, 8), NOTHING, tail(2, 8))
    ]
    assert begin(tmp_path / "a", vertex_id, damaged[0]).begins
    assert begin(tmp_path / "b", vertex_id, damaged[1]).begins
    with pytest.raises(ProgressLostError, match="damaged"):
        begin(tmp_path / "c", vertex_id, damaged[2])


def test_checkpoint_of_generation_is_before_last_progress_entry(tmp_path: Path) -> None:
    vertex_id, read = GRAPH.vertices[0].vertex_id, b'{"lines": {"1": 6}}'
    known = begin(tmp_path / "a", vertex_id, tail(2, 10, position=6), read, generation=2)
    assert (known.begins, known.changelog_from) == (False, 9)
    for number, lower in enumerate((tail(2, 8), tail(1, 10), NOTHING)):
        with pytest.raises(ProgressLostError, match="a checkpoint ends at 9"):
            begin(tmp_path / f"b{number}", vertex_id, lower, read, generation=2)
    with pytest.raises(ProgressLostError, match=r"lines-1 is to be read on from offset 5 .* to 6"):
        begin(tmp_path / "c", vertex_id, tail(2, 10, position=5), read, generation=2)


def test_positions_in_checkpoint_before_reset_prove_no_progress(tmp_path: Path) -> None:
    vertex, read = GRAPH.vertices[0], b'{"lines": {"1": 6}}'
    place = PartitionOffset(operator_id=vertex.operators[0].operator_id, topic="lines", partition=1, offset=2)
    lower = tail(2, 10, position=2)
    for number, newest in enumerate((2, 3, 4)):
        reset = OffsetsReset(reset_id=100, checkpoint_id=newest, offsets=(place,))
        directory = tmp_path / str(number)
        if newest >= 3:
            assert not begin(directory, vertex.vertex_id, lower, read, 2, [reset]).begins
        else:
            with pytest.raises(ProgressLostError, match="from offset 2"):
                begin(directory, vertex.vertex_id, lower, read, 2, [reset])


def with_maps(*uids: str, isolation: str = "vertex") -> JobGraph:
    env = StreamExecutionEnvironment(configuration={"execution.isolation": isolation})
    stream = env.from_collection([1], int).uid("numbers").rebalance()
    for uid in uids:
        stream = stream.map(lambda number: number + 10, int).uid(uid)
    stream.print("out").uid("out")
    return env.get_job_graph("maps")


def test_records_in_flight_continue_behind_operator_that_they_have_passed(tmp_path: Path) -> None:
    uri, before = str(tmp_path / "chk-1"), with_maps("one", "two")
    head = before.vertices[1]
    deployment = VertexDeployment("c", "j", before, head.vertex_id, (SubtaskDeployment("", 0, 0),))
    prefix = split_vertex(head, deployment.outputs).prefix
    assert [config.operator_id for config in prefix] == [
        operator.operator_id for operator in head.operators[:2]
    ]
    codec = BufferCodec(edge_type(before, deployment.inputs[0]))
    receiver, passed = (operator.operator_id for operator in head.operators[:2])
    key = in_flight_key(receiver, 0, 0)
    with Sections(Storage.open(str(tmp_path)), f"{uri}/flying") as file:
        buffer = codec.encode(BufferHeader(0, 0, 0), Batch([1, 2], [3, 4]))
        files = (file.add(key, [in_flight_message(0, buffer)]),)
    flying = InFlightState(operator_id=receiver, input=0, partition=0, files=files, passed=passed)
    part = SubtaskSnapshot(head.vertex_id, 0, SubtaskState(in_flight=(flying,)))
    checkpoint = CompletedCheckpoint(
        checkpoint_id=1, snapshot_type=SnapshotType.CHECKPOINT, uri=uri, generation=0, size=0
    )
    metadata = CheckpointMetadata(
        "j", before.name, checkpoint, 0, outline_of(before), (part,), edges_of(before)
    )
    write_metadata(metadata)
    restore = RestoredCheckpoint(checkpoint_id=1, uri=uri, generation=-1)
    for isolation in ("vertex", "slot"):
        assert incompatibilities(metadata, with_maps("one", isolation=isolation))
        for uids in (("one", "two"), ("one", "two", "three")):
            graph = with_maps(*uids, isolation=isolation)
            vertex = graph.vertices[-1]
            again = VertexDeployment("c", "again", graph, vertex.vertex_id, (SubtaskDeployment("", 0, 0),))
            plan = plan_restore(again, 0, generation=0, restore=restore, tail=NOTHING, changelog="changelog")
            (records,) = in_flight(plan, again, 0)
            # The StreamTask's operators begin behind the whole prefix.
            is_applied = isolation == "vertex" and "three" in uids
            last = vertex.operators[2].operator_id if is_applied else passed
            assert (records.operator_id, records.is_output) == (last, True)
            assert records.batch.values == ([13, 14] if is_applied else [3, 4])
