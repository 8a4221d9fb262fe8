"""Directories of attempts with state on disk, and the part of the slot's memory that each has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pipelines.runtime.state_backend.fill_state import VALUE_BYTES
from polling import wait_until

from pipelines.runtime.state_backend import fill_state
from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.runtime.common.deployment import VertexDeployment
from tailrace.pipelines.runtime.common.local_state import DEFAULT_SLOT_MEMORY
from tailrace.pipelines.runtime.task_runtime.state_directories import StateDirectories

MIB = 1 << 20
RESERVE = 6 * MIB
"""What libraries and the allocator take beside a budget, however large that is."""
FILL_STATE = Path(fill_state.__file__)


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


@pytest.mark.parametrize("slots", [1, pytest.param(4, marks=pytest.mark.soak)])
def test_tasks_of_slot_stay_within_managed_memory(tmp_path: Path, slots: int) -> None:
    """Measured in processes like those of tasks: two for each slot, and one with its state in memory."""
    slot_memory, keys = 16 * MIB, 25_000
    directories = StateDirectories(tmp_path / "state", slot_memory)
    states = [directories.assign(each) for _ in range(slots) for each in deployments("rocksdb")]
    budgets = [(state.directory, state.memory) for state in states if state is not None]
    assert sum(memory for _, memory in budgets) == slots * slot_memory
    processes = [
        subprocess.Popen(
            [sys.executable, str(FILL_STATE), directory, str(memory), str(keys)], stdout=subprocess.PIPE
        )
        for directory, memory in [*budgets, ("-", 0)]
    ]
    *grown, in_memory = (int(process.communicate()[0]) for process in processes)
    assert in_memory > keys * VALUE_BYTES
    for (_, memory), growth in zip(budgets, grown, strict=True):
        assert growth < memory + RESERVE < in_memory
    assert not any(Path(directory).exists() for directory, _ in budgets)


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
