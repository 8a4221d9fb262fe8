"""A copy of a savepoint with other positions has these and all state of the first one, and needs nothing of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from checkpoint_files import keyed, metadata_of, plain
from example_count import example_count
from graphs import edge, job_graph, operator, vertex
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.infra.storage.errors import MissingFile
from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint.disposal import dispose
from tailrace.pipelines.checkpoint.metadata import (
    CheckpointMetadata,
    files_of,
    read_metadata,
    verify,
    write_metadata,
)
from tailrace.pipelines.checkpoint.source_positions import Place, copy_with_positions, positions_of
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.schemas.types import OperatorState, SubtaskState

SOURCES = ("clicks", "orders")
offsets = st.integers(0, 2**60)
positions = st.dictionaries(
    st.tuples(st.sampled_from(SOURCES), st.sampled_from("abc"), st.integers(0, 3)), offsets, min_size=1
)


def savepoint(storage: Storage, held: dict[Place, int]) -> CheckpointMetadata:
    """Writes a savepoint: each source has two subtasks, which read the even and the odd partitions."""
    graph = job_graph(
        *(vertex(name, operator(name, OperatorKind.KAFKA_SOURCE), parallelism=2) for name in SOURCES),
        vertex("reduce", operator("reduce", OperatorKind.REDUCE)),
        *(edge(name, "reduce") for name in SOURCES),
    )
    states = {
        ("reduce", 0): SubtaskState(operators={"reduce": keyed(storage, "r", "reduce", [(range(128), b"x")])})
    }
    for name in SOURCES:
        for subtask in range(2):
            own: dict[str, dict[str, int]] = {}
            for (source, topic, partition), offset in held.items():
                if source == name and partition % 2 == subtask:
                    own.setdefault(topic, {})[str(partition)] = offset
            buffers = plain(storage, f"{name}-{subtask}", name, b"y")
            state = OperatorState(inline=json.dumps(own).encode(), files=(buffers,))
            states[name, subtask] = SubtaskState(operators={name: state})
    metadata = metadata_of(graph, states, storage.uri)
    write_metadata(metadata)
    return metadata


def held_in(metadata: CheckpointMetadata) -> dict[Place, int]:
    return {each.place: each.position for each in positions_of(metadata)}


@settings(max_examples=example_count(25))
@given(held=positions, data=st.data())
def test_copy_has_new_positions_and_stays_whole_when_first_savepoint_is_disposed_of(
    fresh: Callable[[], Storage], held: dict[Place, int], data: st.DataObject
) -> None:
    storage = fresh()
    first = savepoint(storage, held)
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(held)), offsets))
    target = f"{storage.uri}-reset"
    copy_with_positions(first, target, changed)
    assert held_in(read_metadata(storage.uri)) == held
    dispose(first)
    copy = read_metadata(target)
    assert held_in(copy) == held | changed
    assert verify(copy, checksums=True) == []
    assert list(files_of(copy)) == list(files_of(first))
    dispose(copy)


def test_copy_of_damaged_savepoint_leaves_nothing(fresh: Callable[[], Storage]) -> None:
    storage = fresh()
    first = savepoint(storage, {("clicks", "a", 0): 7})
    storage.delete("r")
    target = Storage.open(f"{storage.uri}-reset")
    with pytest.raises(MissingFile):
        copy_with_positions(first, target.uri, {})
    assert not target.exists("")
