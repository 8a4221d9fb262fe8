"""The TaskExecutor's shell: what it asks of the runtime, and what it says."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from immutables import Map

from tailrace.infra.process_marker import living
from tailrace.infra.processes import ProcessIdentity
from tailrace.pipelines.runtime.common.deployment import (
    CheckpointTrigger,
    SubtaskDeployment,
    VertexDeployment,
)
from tailrace.schemas import job_master, resource_manager
from tailrace.schemas.types import (
    CheckpointMetrics,
    CheckpointOptions,
    ExecutionState,
    JobGraph,
    RestoredCheckpoint,
    SnapshotType,
    SubtaskState,
)
from tailrace.services.configuration import Configuration
from tailrace.services.configuration.role_options import TaskExecutorOptions
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.task_executor.instructions import (
    AbortTasks,
    ConfirmTasks,
    RunTasks,
    StopTask,
    TriggerTasks,
)
from tailrace.services.task_executor.shell import TaskExecutorShell
from tailrace.services.task_executor.state import Task

ADDRESS = "task_executor/te"
GRAPH = JobGraph(name="job", vertices=(), edges=(), configuration={})


class RuntimeThatNotes:
    """Notes what is deployed and cancelled, and what is said of checkpoints."""

    def __init__(self) -> None:
        self.deployed: list[VertexDeployment] = []
        self.cancelled: list[str] = []
        self.checkpoints: list[tuple[str, tuple[str, ...], int]] = []
        self.triggered: list[CheckpointTrigger] = []

    def jvm_heap_bytes(self) -> int:
        return 1 << 29

    def deploy(self, deployment: VertexDeployment) -> None:
        self.deployed.append(deployment)

    def cancel(self, execution_attempt_id: str) -> None:
        self.cancelled.append(execution_attempt_id)

    def trigger_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint: CheckpointTrigger) -> None:
        self.checkpoints.append(("trigger", tuple(execution_attempt_ids), checkpoint.checkpoint_id))
        self.triggered.append(checkpoint)

    def confirm_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint_id: int) -> None:
        self.checkpoints.append(("confirm", tuple(execution_attempt_ids), checkpoint_id))

    def abort_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint_id: int) -> None:
        self.checkpoints.append(("abort", tuple(execution_attempt_ids), checkpoint_id))

    def attempts(self) -> Mapping[str, Mapping[str, float]]:
        return {}

    def accumulators(self) -> Mapping[str, Mapping[str, float]]:
        return {}

    def close(self) -> None: ...


def shell_of(
    values: dict[str, str] | None = None,
) -> tuple[TaskExecutorShell, RuntimeThatNotes, list[OutgoingEvent]]:
    """A shell whose runtime is up, and what it has said."""
    said: list[OutgoingEvent] = []
    shell, runtime = (
        TaskExecutorShell(lambda _, owed: said.append(owed), ADDRESS, "cluster"),
        RuntimeThatNotes(),
    )
    shell.register(runtime, Configuration(values or {}), resource_id="te", process_address="here")
    return shell, runtime, said


def task(attempt: str = "a", state: ExecutionState = ExecutionState.DEPLOYING, cause: int = 7) -> Task:
    return Task(
        execution_attempt_id=attempt, job_id="job", vertex_id="v", subtask_index=3, attempt_number=0,
        allocation_id="slot", deployment_id="deployment", cause=cause, state=state,
    )  # fmt: skip


def run(*tasks: Task) -> RunTasks:
    known = {each.execution_attempt_id: each for each in tasks}
    return RunTasks("deployment", "job", GRAPH, "v", frozenset(known), Map(known))


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
    shell, runtime, _ = shell_of()
    shell.perform(ADDRESS, [run(task(state=state))], None)
    assert [each.subtasks for each in runtime.deployed] == [(SubtaskDeployment("a", 3, 0, resumes),)]


def test_it_registers_with_its_options_and_with_slots_as_configured() -> None:
    _, _, said = shell_of(
        {
            "taskmanager.numberOfTaskSlots": "4",
            "taskmanager.slot.timeout": "3 s",
            "taskmanager.cpu.cores": "8",
            "taskmanager.memory.managed.size": "64 mb",
        }
    )
    body = said[0].body
    assert isinstance(body, resource_manager.RegisterTaskExecutor)
    assert body.number_of_slots == 4
    assert (body.default_slot_profile.cpu_cores, body.default_slot_profile.managed_memory_mb) == (2.0, 16)
    assert body.default_slot_profile.heap_memory_mb == 128
    options = TaskExecutorOptions.from_configuration(body.configuration)
    assert options.slot_timeout == 3_000_000
    assert living(body.process_mark) == ProcessIdentity.from_pid(os.getpid())


def test_what_is_demanded_is_begun_once_for_as_long_as_it_is_demanded() -> None:
    shell, runtime, _ = shell_of()
    for _ in range(3):
        shell.perform(ADDRESS, [run(task("a"), task("b", cause=8))], None)
    stop = StopTask("b", "job", 9)
    for _ in range(3):
        shell.perform(ADDRESS, [run(task("a")), stop], None)
    assert [[each.execution_attempt_id for each in one.subtasks] for one in runtime.deployed] == [["a", "b"]]
    assert runtime.cancelled == ["b"]


def test_a_report_says_what_the_task_was_begun_or_stopped_because_of() -> None:
    shell, _, said = shell_of()
    shell.perform(ADDRESS, [run(task("a"), task("b", cause=8))], None)
    shell.reported("a", ExecutionState.RUNNING, None)
    shell.perform(ADDRESS, [run(task("a"), task("b", cause=8)), StopTask("b", "job", 9)], None)
    shell.reported("b", ExecutionState.CANCELED, None)
    assert [(each.recipient, each.cause) for each in said[1:]] == [
        ("job_master/job", 7),
        ("job_master/job", 9),
    ]


def test_a_registration_is_said_because_of_the_claim_that_the_process_made() -> None:
    said: list[OutgoingEvent] = []
    shell = TaskExecutorShell(lambda _, owed: said.append(owed), ADDRESS, "cluster")
    shell.register(RuntimeThatNotes(), Configuration({}), resource_id="te", process_address="here", cause=3)
    assert [each.cause for each in said] == [3]


def test_an_acknowledgement_names_what_began_the_checkpoint_here_or_what_the_task_runs_by() -> None:
    """Barriers from elsewhere carry no offset."""
    shell, _, said = shell_of()
    shell.perform(ADDRESS, [run(task("a")), TriggerTasks("job", 3, ("a",), 5, OPTIONS, 9)], None)
    shell.acknowledged("a", 3, SubtaskState(), CheckpointMetrics())
    shell.declined("a", 4, "because")
    assert [each.cause for each in said[1:]] == [9, 7]


OPTIONS = CheckpointOptions(snapshot_type=SnapshotType.CHECKPOINT, directory="chk-3", shared="shared")


def test_the_runtime_hears_once_of_each_step_of_a_checkpoint() -> None:
    shell, runtime, _ = shell_of()
    demands = [
        run(task("a")),
        TriggerTasks("job", 3, ("a",), 5, OPTIONS, 9),
        ConfirmTasks("job", 2, ("a",), 10),
        AbortTasks("job", 1, ("a",), 11),
    ]
    for _ in range(3):
        shell.perform(ADDRESS, demands, None)
    assert runtime.checkpoints == [("trigger", ("a",), 3), ("confirm", ("a",), 2), ("abort", ("a",), 1)]
    assert runtime.triggered == [CheckpointTrigger(checkpoint_id=3, timestamp=5, options=OPTIONS)]


def test_what_becomes_of_a_checkpoint_is_said_before_the_end_of_its_task_and_not_after() -> None:
    shell, _, said = shell_of()
    shell.perform(ADDRESS, [run(task("a"))], None)
    state, metrics = SubtaskState(size=7), CheckpointMetrics(sync_duration=1)
    shell.acknowledged("a", 3, state, metrics)
    shell.declined("a", 4, "because")
    shell.reported("a", ExecutionState.FAILED, "gone", {}, True)
    shell.acknowledged("a", 5, state, metrics)
    shell.declined("a", 5, "because")
    assert {each.recipient for each in said[1:]} == {"job_master/job"}
    acknowledged, declined, failed = (each.body for each in said[1:])
    assert acknowledged == job_master.AcknowledgeCheckpoint(
        job_id="job", execution_attempt_id="a", checkpoint_id=3, metrics=metrics, subtask_state=state
    )
    assert declined == job_master.DeclineCheckpoint(
        job_id="job", execution_attempt_id="a", checkpoint_id=4, reason="because"
    )
    assert isinstance(failed, job_master.UpdateTaskExecutionState)
    assert failed.progress_lost


def test_a_task_begins_with_the_checkpoint_that_it_was_submitted_with() -> None:
    shell, runtime, _ = shell_of()
    restore = RestoredCheckpoint(checkpoint_id=3, uri="chk-3", generation=1)
    submitted = msgspec.structs.replace(task(), generation=2, restore=restore, finished=True)
    shell.perform(ADDRESS, [run(submitted)], None)
    (deployed,) = runtime.deployed[0].subtasks
    assert (deployed.generation, deployed.restore, deployed.finished) == (2, restore, True)
