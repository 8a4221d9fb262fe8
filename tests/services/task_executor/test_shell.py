"""The TaskExecutor's shell: its calls of the runtime, and its events."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from immutables import Map
from polling import wait_until

from tailrace.infra.processes import ProcessIdentity, find_marked
from tailrace.pipelines.runtime.common.deployment import (
    CheckpointTrigger,
    SubtaskDeployment,
    VertexDeployment,
)
from tailrace.schemas import job_master, resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.types import (
    CheckpointMetrics,
    CheckpointOptions,
    ExecutionState,
    JobGraph,
    RestoredCheckpoint,
    SnapshotType,
    SubtaskAcknowledgement,
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
from tailrace.services.task_executor.resources import Task
from tailrace.services.task_executor.shell import TaskExecutorShell

ADDRESS = "task_executor/te"
GRAPH = JobGraph(name="job", vertices=(), edges=(), configuration={})


class RuntimeThatNotes:
    """Records deployments, cancellations and checkpoint commands."""

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
    """Returns a shell whose runtime is up, and the events that it sends."""
    events: list[OutgoingEvent] = []
    shell, runtime = (
        TaskExecutorShell(lambda _, owed: events.append(owed), ADDRESS, "cluster"),
        RuntimeThatNotes(),
    )
    shell.register(runtime, Configuration(values or {}), resource_id="te", process_address="here")
    return shell, runtime, events


def task(attempt: str = "a", state: ExecutionState = ExecutionState.DEPLOYING, cause: int = 7) -> Task:
    return Task(
        execution_attempt_id=attempt, job_id="job", vertex_id="v", subtask_index=3, attempt_number=0,
        allocation_id="slot", deployment_id="deployment", cause=cause, state=state,
    )  # fmt: skip


def run(*tasks: Task) -> RunTasks:
    known = {task.execution_attempt_id: task for task in tasks}
    return RunTasks("deployment", "job", GRAPH, "v", frozenset(known), Map(known))


@pytest.mark.parametrize(
    ("state", "resumes"),
    [
        (ExecutionState.DEPLOYING, False),
        (ExecutionState.INITIALIZING, True),
        (ExecutionState.RUNNING, True),
    ],
)
def test_task_of_restarted_process_resumes(state: ExecutionState, resumes: bool) -> None:
    shell, runtime, _ = shell_of()
    shell.perform(ADDRESS, [run(task(state=state))], None)
    assert [deployment.subtasks for deployment in runtime.deployed] == [
        (SubtaskDeployment("a", 3, 0, resumes, slot="slot"),)
    ]


def test_process_of_slot_has_tasks_that_were_submitted_together_or_are_left_after_restart() -> None:
    def tasks(state: ExecutionState, others: ExecutionState = ExecutionState.DEPLOYING) -> list[Task]:
        """Returns those of a slot whose process had 4 tasks: one has finished or is to come."""
        here = [task("a", state), task("b", others), task("c", others)]
        return [msgspec.structs.replace(each, slot_tasks=4) for each in here]

    def deployed(*known: Task) -> list[int]:
        shell, runtime, _ = shell_of()
        elsewhere = msgspec.structs.replace(task("d"), allocation_id="other")
        shell.perform(ADDRESS, [run(*known, elsewhere)], None)
        (deployment,) = runtime.deployed
        return [subtask.slot_tasks for subtask in deployment.subtasks]

    new, resumed = ExecutionState.DEPLOYING, ExecutionState.RUNNING
    assert deployed(*tasks(new)) == [4, 4, 4, 1]
    assert deployed(*tasks(resumed, resumed)) == [3, 3, 3, 1]
    assert deployed(*tasks(resumed, ExecutionState.CANCELING))[0] == 1


def test_shell_registers_with_its_options_and_configured_slots() -> None:
    _, _, events = shell_of(
        {
            "taskmanager.numberOfTaskSlots": "4",
            "taskmanager.slot.timeout": "3 s",
            "taskmanager.cpu.cores": "8",
            "taskmanager.memory.managed.size": "64 mb",
        }
    )
    body = events[0].body
    assert isinstance(body, resource_manager.RegisterTaskExecutor)
    assert body.number_of_slots == 4
    assert (body.default_slot_profile.cpu_cores, body.default_slot_profile.managed_memory_mb) == (2.0, 16)
    assert body.default_slot_profile.heap_memory_mb == 128
    options = TaskExecutorOptions.from_configuration(body.configuration)
    assert options.slot_timeout == 3_000_000
    assert find_marked(body.process_mark) == ProcessIdentity.from_pid(os.getpid())


def test_instruction_is_performed_once_per_demand() -> None:
    shell, runtime, _ = shell_of()
    for _ in range(3):
        shell.perform(ADDRESS, [run(task("a"), task("b", cause=8))], None)
    stop = StopTask("b", "job", 9)
    for _ in range(3):
        shell.perform(ADDRESS, [run(task("a")), stop], None)
    assert [[subtask.execution_attempt_id for subtask in one.subtasks] for one in runtime.deployed] == [
        ["a", "b"]
    ]
    assert runtime.cancelled == ["b"]


def test_report_has_start_or_stop_of_task_as_cause() -> None:
    shell, _, events = shell_of()
    shell.perform(ADDRESS, [run(task("a"), task("b", cause=8))], None)
    shell.reported("a", ExecutionState.RUNNING, None)
    shell.perform(ADDRESS, [run(task("a"), task("b", cause=8)), StopTask("b", "job", 9)], None)
    shell.reported("b", ExecutionState.CANCELED, None)
    assert [(event.recipient, event.cause) for event in events[1:]] == [
        ("job_master/job", 7),
        ("job_master/job", 9),
    ]


def test_registration_has_claim_of_process_as_cause() -> None:
    events: list[OutgoingEvent] = []
    shell = TaskExecutorShell(lambda _, owed: events.append(owed), ADDRESS, "cluster")
    shell.register(RuntimeThatNotes(), Configuration({}), resource_id="te", process_address="here", cause=3)
    assert [event.cause for event in events] == [3]


def test_acknowledgement_has_trigger_or_submission_as_cause() -> None:
    """Barriers from other processes carry no offset."""
    shell, _, events = shell_of()
    shell.perform(ADDRESS, [run(task("a")), TriggerTasks("job", 3, ("a",), 5, OPTIONS, 9)], None)
    shell.acknowledged("a", 3, SubtaskState(), CheckpointMetrics())
    shell.declined("a", 4, "because")
    assert [event.cause for event in events[1:]] == [9, 7]


OPTIONS = CheckpointOptions(snapshot_type=SnapshotType.CHECKPOINT, directory="chk-3", shared="shared")


def test_runtime_gets_each_checkpoint_step_once() -> None:
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


def test_checkpoint_result_is_reported_before_end_of_its_task() -> None:
    shell, _, events = shell_of()
    shell.perform(ADDRESS, [run(task("a"))], None)
    state, metrics = SubtaskState(size=7), CheckpointMetrics(sync_duration=1)
    shell.acknowledged("a", 3, state, metrics)
    shell.declined("a", 4, "because")
    shell.reported("a", ExecutionState.FAILED, "gone", {}, True)
    shell.acknowledged("a", 5, state, metrics)
    shell.declined("a", 5, "because")
    assert {event.recipient for event in events[1:]} == {"job_master/job"}
    acknowledged, declined, failed = (event.body for event in events[1:])
    assert acknowledged == job_master.AcknowledgeCheckpoint(
        job_id="job",
        checkpoint_id=3,
        acknowledgements=(
            SubtaskAcknowledgement(execution_attempt_id="a", metrics=metrics, subtask_state=state),
        ),
    )
    assert declined == job_master.DeclineCheckpoint(
        job_id="job", execution_attempt_id="a", checkpoint_id=4, reason="because"
    )
    assert isinstance(failed, job_master.UpdateTaskExecutionState)
    assert failed.progress_lost


def test_tasks_of_job_acknowledge_checkpoint_in_one_event() -> None:
    shell, _, events = shell_of()
    shell.perform(ADDRESS, [run(task("a"), task("b"))], None)
    shell.acknowledged("a", 3, SubtaskState(), CheckpointMetrics())
    assert not events[1:]
    shell.acknowledged("b", 3, SubtaskState(), CheckpointMetrics())
    ((attempts, number),) = [acknowledgement(event.body) for event in events[1:]]
    assert (attempts, number) == (["a", "b"], 3)


def test_acknowledgement_is_sent_before_next_report_of_job() -> None:
    shell, _, events = shell_of()
    shell.perform(ADDRESS, [run(task("a"), task("b"))], None)
    shell.acknowledged("a", 3, SubtaskState(), CheckpointMetrics())
    shell.reported("b", ExecutionState.FAILED, "gone")
    first, second = events[1:]
    assert acknowledgement(first.body) == (["a"], 3)
    assert isinstance(second.body, job_master.UpdateTaskExecutionState)


def test_acknowledgement_does_not_wait_for_slow_task_for_long() -> None:
    shell, _, events = shell_of()
    shell.perform(ADDRESS, [run(task("a"), task("b"))], None)
    shell.acknowledged("a", 3, SubtaskState(), CheckpointMetrics())
    wait_until(lambda: events[1:])
    assert acknowledgement(events[1].body) == (["a"], 3)
    shell.acknowledged("b", 3, SubtaskState(), CheckpointMetrics())
    shell.close()
    assert acknowledgement(events[2].body) == (["b"], 3)


@pytest.mark.parametrize("has_run", [True, False])
def test_acknowledgement_does_not_wait_for_task_that_is_stopped_after_its_end(has_run: bool) -> None:
    """Tasks of one slot end together, and each of them is cancelled."""
    shell, runtime, events = shell_of()
    tasks = run(task("a"), task("b")) if has_run else run(task("a"))
    shell.perform(ADDRESS, [tasks], None)
    if has_run:
        shell.reported("b", ExecutionState.CANCELED, None)
    shell.perform(ADDRESS, [StopTask("b", "job", 9)], None)
    assert runtime.cancelled == ["b"]
    if not has_run:
        shell.reported("b", ExecutionState.CANCELED, None)
        assert events[-1].cause == 9
    shell.acknowledged("a", 3, SubtaskState(), CheckpointMetrics())
    assert acknowledgement(events[-1].body) == (["a"], 3)


def acknowledgement(body: Body) -> tuple[list[str], int]:
    """Returns the Executions in an AcknowledgeCheckpoint, and the checkpoint."""
    assert isinstance(body, job_master.AcknowledgeCheckpoint)
    return [part.execution_attempt_id for part in body.acknowledgements], body.checkpoint_id


def test_task_restores_checkpoint_of_its_submission() -> None:
    shell, runtime, _ = shell_of()
    restore = RestoredCheckpoint(checkpoint_id=3, uri="chk-3", generation=1)
    submitted = msgspec.structs.replace(task(), generation=2, restore=restore, finished=True)
    shell.perform(ADDRESS, [run(submitted)], None)
    (deployed,) = runtime.deployed[0].subtasks
    assert (deployed.generation, deployed.restore, deployed.finished) == (2, restore, True)
