"""Directories of attempts with state on disk, and the part of the slot's memory that each has."""

from __future__ import annotations

from pathlib import Path

import pytest
from polling import wait_until

from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.runtime.common.deployment import VertexDeployment
from tailrace.pipelines.runtime.common.local_state import DEFAULT_SLOT_MEMORY
from tailrace.pipelines.runtime.task_runtime.state_directories import StateDirectories

MIB = 1 << 20


def deployments(backend: str) -> list[VertexDeployment]:
    """Returns those of a job whose slots run a source and two vertices with keyed state."""
    env = StreamExecutionEnvironment().configure("execution.isolation", "vertex")
    env.configure("state.backend.type", backend)
    pairs = env.from_collection([("a", 1)], tuple[str, int]).key_by(0).sum(1)
    pairs.key_by(1).sum(1).print()
    graph = env.get_job_graph("sums")
    return [VertexDeployment("c", "job", graph, vertex.vertex_id, ()) for vertex in graph.vertices]


def test_vertices_with_keyed_state_share_managed_memory_of_slot(tmp_path: Path) -> None:
    directories = StateDirectories(tmp_path / "state", 100 * MIB)
    found = [directories.assign(each) for each in deployments("rocksdb")]
    assert [None if each is None else each.memory // MIB for each in found] == [None, 50, 50]
    assert len({each.directory for each in found if each is not None}) == 2
    unset = StateDirectories(tmp_path / "state", 0).assign(deployments("rocksdb")[-1])
    assert unset is not None
    assert unset.memory == DEFAULT_SLOT_MEMORY // 2
    assert not any(map(directories.assign, deployments("hashmap")))


@pytest.mark.parametrize("is_closed", [False, True])
def test_directory_of_ended_attempt_is_removed(tmp_path: Path, is_closed: bool) -> None:
    root = tmp_path / "state"
    (root / "of a killed TaskExecutor").mkdir(parents=True)
    directories = StateDirectories(root, 0)
    assert not root.exists()
    state = directories.assign(deployments("rocksdb")[-1])
    assert state is not None
    Path(state.directory, "db").mkdir(parents=True)
    if is_closed:
        directories.close()
    else:
        directories.remove(state)
    wait_until(lambda: not Path(state.directory).exists())
