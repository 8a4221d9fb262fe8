"""The directories of attempts whose keyed state is on disk.

They hold copies of what is in Kafka and in checkpoints. The runtime removes the directory of an attempt when its
process has ended, however it ended, and at its start all that a predecessor has left.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ....infra import threads
from ..common.deployment import VertexDeployment
from ..common.local_state import DEFAULT_SLOT_MEMORY, LocalState, has_keyed_state, share_of_slot
from ..common.settings import StateBackendType, TaskSettings


class StateDirectories:
    """The directories below `root`, which is emptied first. For one thread."""

    def __init__(self, root: Path, slot_memory: int) -> None:
        """`slot_memory`: the managed memory of a slot in bytes; 0: the default."""
        self._root = root
        self._slot_memory = slot_memory or DEFAULT_SLOT_MEMORY
        self._numbers = 0
        shutil.rmtree(root, ignore_errors=True)

    def assign(self, deployment: VertexDeployment) -> LocalState | None:
        """Returns the directory and the memory of another attempt; None if its state is in memory."""
        vertex, graph = deployment.vertex, deployment.job_graph
        backend = TaskSettings.from_configuration(graph.configuration).state_backend
        if backend is not StateBackendType.ROCKSDB or not has_keyed_state(vertex):
            return None
        self._numbers += 1
        directory = self._root / f"{deployment.job_id}-{self._numbers}"
        return LocalState(str(directory), share_of_slot(graph, vertex, self._slot_memory))

    def remove(self, state: LocalState | None) -> None:
        """Removes the directory of an attempt whose process has ended. Does not wait."""
        if state is not None:
            # Large files take a while.
            threads.Thread(
                target=shutil.rmtree, args=(state.directory, True), name="remove-state", daemon=True
            ).start()

    def close(self) -> None:
        """Removes all directories."""
        shutil.rmtree(self._root, ignore_errors=True)
