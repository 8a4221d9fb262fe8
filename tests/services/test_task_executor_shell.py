"""The TaskExecutor's shell: what it asks of the runtime."""

from __future__ import annotations

import pytest

from tailrace.pipelines.runtime.deployment import SubtaskDeployment, VertexDeployment
from tailrace.schemas.types import ExecutionState, JobGraph
from tailrace.services.configuration import Configuration
from tailrace.services.roles import Owed
from tailrace.services.task_executor.instructions import RunTasks
from tailrace.services.task_executor.shell import TaskExecutorShell
from tailrace.services.task_executor.state import Task


class RuntimeThatNotes:
    """Notes what is deployed."""

    def __init__(self) -> None:
        self.deployed: list[VertexDeployment] = []

    def jvm_heap_bytes(self) -> int:
        return 1 << 29

    def deploy(self, deployment: VertexDeployment) -> None:
        self.deployed.append(deployment)

    def cancel(self, execution_attempt_id: str) -> None: ...

    def close(self) -> None: ...


def say(_address: str, _owed: Owed) -> None: ...


@pytest.mark.parametrize(
    ("state", "resumes"),
    [
        (ExecutionState.DEPLOYING, False),
        (ExecutionState.INITIALIZING, True),
        (ExecutionState.RUNNING, True),
    ],
)
def test_a_task_that_ran_before_the_process_was_started_again_resumes(
    state: ExecutionState, resumes: bool
) -> None:
    runtime = RuntimeThatNotes()
    shell = TaskExecutorShell(say, "taskexecutor/te", "cluster")
    shell.register(
        runtime,
        Configuration({"taskmanager.numberOfTaskSlots": "1"}),
        resource_id="te",
        process_address="here",
    )
    task = Task(
        execution_attempt_id="a", job_id="job", vertex_id="v", subtask_index=3, attempt_number=0,
        allocation_id="slot", deployment_id="deployment", deployment_size=1, cause=7, state=state,
    )  # fmt: skip
    graph = JobGraph(name="job", vertices=(), edges=(), configuration={})
    shell.obey("taskexecutor/te", [RunTasks("deployment", "job", graph, "v", (task,))], None)
    assert [each.subtasks for each in runtime.deployed] == [(SubtaskDeployment("a", 3, 0, resumes),)]
