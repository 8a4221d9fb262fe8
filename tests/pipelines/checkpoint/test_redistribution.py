"""Redistribution: at any old and new parallelism each piece of state, key group and record goes to one subtask."""

from __future__ import annotations

from collections import Counter

import pytest
from checkpoint_files import metadata_of, pipeline
from graphs import edge, job_graph, operator, source, vertex
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.checkpoint.compatibility import ALIGNED, incompatibilities
from tailrace.pipelines.checkpoint.metadata import CheckpointMetadata
from tailrace.pipelines.checkpoint.redistribution import InFlightFilter, RestoredSubtask, redistribute_state
from tailrace.pipelines.graph.key_groups import key_group_of, key_groups_of_subtask, subtask_of
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.schemas.types import (
    InFlightState,
    JobGraph,
    OperatorState,
    Partitioner,
    StateFile,
    SubtaskState,
)

PARALLELISM = st.integers(1, 9)
MAX_PARALLELISM = st.integers(9, 40)
SECTION = 4
"""Key groups in a section of a full file."""


def file(name: str, groups: range | None = None) -> StateFile:
    first, last = (-1, -1) if groups is None else (groups.start, groups.stop - 1)
    return StateFile(path=f"shared/{name}", length=1, crc=0, first_key_group=first, last_key_group=last)


def checkpoint(
    sources: int, parallelism: int, max_parallelism: int, partitioner: Partitioner = Partitioner.HASH
) -> CheckpointMetadata:
    """Returns a checkpoint where every subtask has state of each operator, and in-flight records."""
    graph = pipeline(sources, parallelism, max_parallelism, partitioner)
    states = {}
    for i in range(sources):
        states["source", i] = SubtaskState(
            operators={
                "source": OperatorState(inline=b"%d" % i),
                "accumulators": OperatorState(files=(file(f"counted-{i}"),)),
            }
        )
    for i in range(parallelism):
        own = key_groups_of_subtask(i, max_parallelism, parallelism)
        full = [file(f"full-{i}", own[at : at + SECTION]) for at in range(0, len(own), SECTION)]
        states["reduce", i] = SubtaskState(
            operators={
                "reduce": OperatorState(files=(*full, file(f"delta-{i}"))),
                "sink": OperatorState(files=(file(f"pending-{i}"),)),
                "accumulators": OperatorState(files=(file(f"counted-{i}"),)),
            },
            in_flight=(
                InFlightState(operator_id="reduce", input=0, partition=i, files=(file(f"flight-{i}"),)),
            ),
        )
    return metadata_of(graph, states)


def all_restored(
    taken: CheckpointMetadata,
    vertex_id: str,
    sources: int,
    parallelism: int,
    max_parallelism: int,
    **to: Partitioner,
) -> list[RestoredSubtask]:
    """Returns what each subtask of a vertex restores after the change."""
    graph = pipeline(sources, parallelism, max_parallelism, **to)
    assert incompatibilities(taken, graph) == []
    count = {"source": sources, "reduce": parallelism}[vertex_id]
    return [redistribute_state(taken, graph, vertex_id, i) for i in range(count)]


@given(old=PARALLELISM, new=PARALLELISM, max_parallelism=MAX_PARALLELISM)
def test_each_key_group_goes_to_subtask_that_owns_it(old: int, new: int, max_parallelism: int) -> None:
    subtasks = all_restored(checkpoint(1, old, max_parallelism), "reduce", 1, new, max_parallelism)
    counts: Counter[int] = Counter()
    for subtask, restored_subtask in enumerate(subtasks):
        own = key_groups_of_subtask(subtask, max_parallelism, new)
        for piece in restored_subtask.operators["reduce"]:
            assert (piece.parallelism, piece.max_parallelism) == (old, max_parallelism)
            theirs = key_groups_of_subtask(piece.subtask_index, max_parallelism, old)
            groups = (
                theirs
                if piece.first_key_group < 0
                else range(piece.first_key_group, piece.last_key_group + 1)
            )
            assert set(groups) <= set(own) & set(theirs)
            counts.update(groups)
            read = [f for f in piece.state.files if f.first_key_group >= 0]
            covered = {g for f in read for g in range(f.first_key_group, f.last_key_group + 1)}
            assert set(groups) <= covered
            # Whoever takes a part reads no sections beside it.
            assert all(set(range(f.first_key_group, f.last_key_group + 1)) & set(groups) for f in read)
            assert piece.state.files[-1].path == f"shared/delta-{piece.subtask_index}"
    assert counts == Counter(range(max_parallelism))


@given(old=PARALLELISM, new=PARALLELISM)
def test_each_other_piece_goes_to_one_subtask_except_for_sources_that_choose(old: int, new: int) -> None:
    checkpoint_metadata = checkpoint(old, old, 40)
    reduced = all_restored(checkpoint_metadata, "reduce", new, new, 40)
    for key in ("sink", "accumulators"):
        pieces = [
            (piece.subtask_index, at)
            for at, subtask in enumerate(reduced)
            for piece in subtask.operators.get(key, ())
        ]
        assert sorted(index for index, _ in pieces) == list(range(old))
        if old == new:
            assert all(index == at for index, at in pieces)
        elif key == "sink":
            assert all(index % new == at for index, at in pieces)
        else:
            assert {at for _, at in pieces} == {0}
    for at, restored_subtask in enumerate(all_restored(checkpoint_metadata, "source", new, new, 40)):
        seen = [piece.state.inline for piece in restored_subtask.operators["source"]]
        assert seen == ([b"%d" % at] if old == new else [b"%d" % i for i in range(old)])


@pytest.mark.parametrize("kind", [OperatorKind.BROADCAST_PROCESS, OperatorKind.KEYED_BROADCAST_PROCESS])
@given(old=PARALLELISM, new=PARALLELISM)
def test_each_subtask_gets_full_copy_of_broadcast_state(kind: OperatorKind, old: int, new: int) -> None:
    def graph(parallelism: int) -> JobGraph:
        first = Partitioner.HASH if kind is OperatorKind.KEYED_BROADCAST_PROCESS else Partitioner.REBALANCE
        return job_graph(
            source(),
            vertex("v", operator("rules", kind), parallelism=parallelism),
            edge("source", "v", first),
            edge("source", "v", Partitioner.BROADCAST, data_set_id="rules", input_index=1),
        )

    copies = {
        ("v", i): SubtaskState(operators={"rules": OperatorState(files=(file(f"copy-{i}"),))})
        for i in range(old)
    }
    checkpoint_metadata = metadata_of(graph(old), copies)
    assert incompatibilities(checkpoint_metadata, graph(new)) == []
    for subtask in range(new):
        pieces = redistribute_state(checkpoint_metadata, graph(new), "v", subtask).operators["rules"]
        assert pieces[0].state == copies["v", pieces[0].subtask_index].operators["rules"]
        if old == new:
            assert [piece.subtask_index for piece in pieces] == [subtask]
        if kind is OperatorKind.BROADCAST_PROCESS:
            assert len(pieces) == 1


@given(old=PARALLELISM, new=PARALLELISM)
def test_each_subtask_sees_operator_state_of_all_at_another_parallelism(old: int, new: int) -> None:
    def graph(parallelism: int) -> JobGraph:
        return job_graph(
            source(),
            vertex("v", operator("map", OperatorKind.MAP), parallelism=parallelism),
            edge("source", "v", Partitioner.REBALANCE),
        )

    states = {
        ("v", i): SubtaskState(operators={"map": OperatorState(files=(file(f"lists-{i}"),))})
        for i in range(old)
    }
    checkpoint_metadata = metadata_of(graph(old), states)
    for subtask in range(new):
        pieces = redistribute_state(checkpoint_metadata, graph(new), "v", subtask).operators["map"]
        assert [piece.subtask_index for piece in pieces] == ([subtask] if old == new else list(range(old)))


@given(
    old=PARALLELISM,
    new=PARALLELISM,
    max_parallelism=MAX_PARALLELISM,
    keys=st.lists(st.integers(), max_size=20),
)
def test_each_keyed_in_flight_record_is_processed_once_by_owner_of_its_key(
    old: int, new: int, max_parallelism: int, keys: list[int]
) -> None:
    subtasks = all_restored(checkpoint(1, old, max_parallelism), "reduce", 1, new, max_parallelism)
    for key in keys:
        partition = subtask_of(key, max_parallelism, old)
        group = key_group_of(key, max_parallelism)
        takers = [
            subtask
            for subtask, restored_subtask in enumerate(subtasks)
            for channel in restored_subtask.in_flight
            if channel.partition == partition
            and (
                channel.filter is InFlightFilter.ALL
                or group in key_groups_of_subtask(subtask, max_parallelism, new)
            )
        ]
        assert takers == [subtask_of(key, max_parallelism, new)]


@pytest.mark.parametrize("partitioner", Partitioner)
@given(old=PARALLELISM, new=PARALLELISM)
def test_each_in_flight_channel_is_taken_once_or_rejected(
    partitioner: Partitioner, old: int, new: int
) -> None:
    checkpoint_metadata = checkpoint(1, old, 40, partitioner)
    if partitioner in ALIGNED and old != new:
        (fault,) = incompatibilities(checkpoint_metadata, pipeline(1, new, 40, partitioner))
        assert f"its parallelism was {old} and is {new}" in fault
        assert partitioner.value in fault
        return
    group = [
        [(channel.partition, channel.filter) for channel in subtask.in_flight]
        for subtask in all_restored(checkpoint_metadata, "reduce", 1, new, 40, partitioner=partitioner)
    ]
    if old == new:
        assert group == [[(i, InFlightFilter.ALL)] for i in range(old)]
        return
    match partitioner:
        case Partitioner.HASH:
            assert {partition for channels in group for partition, _ in channels} == set(range(old))
        case _:
            whole = sorted((partition, at) for at, channels in enumerate(group) for partition, _ in channels)
            assert whole == [(i, i % new) for i in range(old)]


def test_finished_subtask_takes_nothing() -> None:
    graph = pipeline(2, 1)
    checkpoint_metadata = metadata_of(graph, {}, finished=[("source", 1)])
    assert [redistribute_state(checkpoint_metadata, graph, "source", i).finished for i in range(2)] == [
        False,
        True,
    ]
    assert redistribute_state(checkpoint_metadata, graph, "source", 1) == RestoredSubtask({}, (), True)


def test_operators_unknown_to_checkpoint_start_empty() -> None:
    graph = pipeline(1, 2)
    assert redistribute_state(metadata_of(graph, {}), graph, "reduce", 0) == RestoredSubtask({}, (), False)
    with pytest.raises(ValueError, match="no vertex nothing"):
        redistribute_state(metadata_of(graph, {}), graph, "nothing", 0)
