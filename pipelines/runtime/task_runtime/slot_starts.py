"""The attempts that wait for the other attempts of their process: those of one job in one slot, and of one subtask
index. Subtasks of two indexes are in one slot if the adaptive scheduler has lost the other one.

They are deployed vertex by vertex. The process starts with the last of them. A newer attempt of a subtask replaces an
older one that waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ....schemas.types import JobGraph
from ..common.deployment import SubtaskDeployment
from .runtime_state import RunningDeployment


class WaitingTask(NamedTuple):
    """An attempt that is deployed and not started."""

    deployment: RunningDeployment
    subtask: SubtaskDeployment


class SlotStarts:
    """The waiting attempts of one TaskRuntime."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str, int], dict[str, WaitingTask]] = {}
        """Job, slot and subtask index -> vertex -> its attempt."""

    def add(self, task: WaitingTask) -> list[WaitingTask]:
        """Adds an attempt. Returns those of its process, senders first, if all are there now; otherwise none."""
        deployment, subtask = task
        if subtask.slot_tasks <= 1:
            return [task]
        spec = deployment.spec
        process = spec.job_id, subtask.slot, subtask.subtask_index
        tasks = self._waiting.setdefault(process, {})
        older = tasks.pop(spec.vertex_id, None)
        if older is not None:
            older.deployment.waiting.remove(older.subtask)
        tasks[spec.vertex_id] = task
        deployment.waiting.append(subtask)
        if len(tasks) < subtask.slot_tasks:
            return []
        del self._waiting[process]
        for each in tasks.values():
            each.deployment.waiting.remove(each.subtask)
        return [tasks[vertex.vertex_id] for vertex in spec.job_graph.vertices if vertex.vertex_id in tasks]

    def remove(self, execution_attempt_id: str) -> None:
        """Removes an attempt, if it waits."""
        for process, tasks in self._waiting.items():
            for vertex_id, (deployment, subtask) in tasks.items():
                if subtask.execution_attempt_id == execution_attempt_id:
                    deployment.waiting.remove(subtask)
                    del tasks[vertex_id]
                    if not tasks:
                        del self._waiting[process]
                    return


def graph_of_process(tasks: Sequence[WaitingTask]) -> JobGraph:
    """Returns the graph for the process of these tasks. Each deployment has the code of its own vertex only.

    Shipped files are not sent through the socket: the process reads them from disk.
    """
    vertices = {task.deployment.spec.vertex_id: task.deployment.spec.vertex for task in tasks}
    graph = tasks[0].deployment.spec.job_graph
    return replace(
        graph,
        vertices=tuple(vertices.get(vertex.vertex_id, vertex) for vertex in graph.vertices),
        python_files=(),
    )
