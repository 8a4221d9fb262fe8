"""The tasks that a TaskExecutor reports as running: those of its runtime, and those that the runtime still has to
get."""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map

from tailrace.pipelines.runtime.common.deployment import VertexDeployment
from tailrace.schemas.types import JobGraph
from tailrace.services.configuration import Configuration
from tailrace.services.task_executor.instructions import RunTasks
from tailrace.services.task_executor.resources import Task
from tailrace.services.task_executor.shell import TaskExecutorShell
from tailrace.services.task_executor.state import TaskExecutorState

GRAPH = JobGraph(name="job", vertices=(), edges=())


class Runtime:
    """A runtime that has each given task until it ends."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, float]] = {}

    def jvm_heap_bytes(self) -> int:
        return 1 << 29

    def deploy(self, deployment: VertexDeployment) -> None:
        for subtask in deployment.subtasks:
            self.counts[subtask.execution_attempt_id] = {"n": 1.0}

    def cancel(self, execution_attempt_id: str) -> None: ...

    def attempts(self) -> Mapping[str, Mapping[str, float]]:
        return {}

    def accumulators(self) -> Mapping[str, Mapping[str, float]]:
        return dict(self.counts)

    def close(self) -> None: ...


def task(attempt: str) -> Task:
    return Task(
        execution_attempt_id=attempt, job_id="job", vertex_id="v", subtask_index=0, attempt_number=0,
        allocation_id="slot", deployment_id="d", cause=7,
    )  # fmt: skip


def test_submitted_task_is_reported_until_runtime_has_ended_it() -> None:
    shell = TaskExecutorShell(lambda *_: None, "task_executor/te", "c")
    tasks = Map({"a": task("a"), "b": task("b")})
    state = TaskExecutorState(resource_id="te", tasks=tasks)

    def reported() -> dict[str, Mapping[str, float]]:
        snapshots = list(shell.running(state))
        assert {snapshot.job_id for snapshot in snapshots} <= {"job"}
        return {snapshot.execution_attempt_id: snapshot.user_accumulators for snapshot in snapshots}

    assert reported() == {"a": {}, "b": {}}, "a process that is starting has given nothing up"
    runtime = Runtime()
    shell.register(runtime, Configuration(), resource_id="te", process_address="here")
    run = RunTasks("d", "job", GRAPH, "v", frozenset({"a"}), tasks)
    shell.perform("task_executor/te", [run], state)
    assert reported() == {"a": {"n": 1.0}, "b": {}}, "b waits for its deployment"
    del runtime.counts["a"]
    assert reported() == {"b": {}}
