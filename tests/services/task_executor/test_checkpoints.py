"""How a TaskExecutor handles checkpoints: the commands to its tasks, and its answers for missing ones."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tailrace.schemas import job_master, task_executor
from tailrace.schemas.types import (
    CheckpointMetrics,
    CheckpointOptions,
    ExecutionState,
    RestoredCheckpoint,
    SnapshotType,
    SubtaskAcknowledgement,
    SubtaskState,
)
from tailrace.services.core.role import Instruction
from tailrace.services.task_executor.instructions import AbortTasks, ConfirmTasks, RunTasks, TriggerTasks

from .log_builder import JM, OWN, Driver, descriptor, names

OPTIONS = CheckpointOptions(
    snapshot_type=SnapshotType.CHECKPOINT, directory="file:///c/j/chk-1", shared="file:///c/j/shared"
)
FIRST = RestoredCheckpoint(checkpoint_id=1, uri="file:///c/j/chk-1", generation=0)


def running(*attempts: str) -> Driver:
    """Returns a TaskExecutor with running tasks of job j."""
    driver = Driver()
    driver.hold("a")
    for number, attempt in enumerate(attempts):
        driver.submit(attempt, subtask=number, deployment=f"d{number}")
        driver.report(attempt, ExecutionState.RUNNING)
    driver.settle()
    return driver


def trigger(driver: Driver, *attempts: str, number: int = 1) -> int:
    body = task_executor.TriggerCheckpoint(
        job_id="j", checkpoint_id=number, execution_attempt_ids=attempts, timestamp=5, options=OPTIONS
    )
    return driver.receive(body, JM)


def acknowledge(driver: Driver, attempt: str, number: int = 1, *, stops: bool = False) -> None:
    body = job_master.AcknowledgeCheckpoint(
        job_id="j",
        checkpoint_id=number,
        acknowledgements=(
            SubtaskAcknowledgement(
                execution_attempt_id=attempt,
                metrics=CheckpointMetrics(),
                subtask_state=SubtaskState(stops=stops),
            ),
        ),
    )
    driver.receive(body, OWN, JM)


def confirm(
    driver: Driver, *attempts: str, number: int = 1, restore: RestoredCheckpoint | None = None
) -> int:
    body = task_executor.ConfirmCheckpoint(
        job_id="j", checkpoint_id=number, execution_attempt_ids=attempts, restore=restore
    )
    return driver.receive(body, JM)


def abort(driver: Driver, *attempts: str, number: int = 1) -> int:
    body = task_executor.AbortCheckpoint(job_id="j", checkpoint_id=number, execution_attempt_ids=attempts)
    return driver.receive(body, JM)


def demanded(driver: Driver) -> list[Instruction]:
    """Returns the demanded instructions about checkpoints."""
    instructions = driver.role.instructions(driver.state)
    return [
        instruction
        for instruction in instructions
        if isinstance(instruction, TriggerTasks | ConfirmTasks | AbortTasks)
    ]


def test_checkpoint_is_demanded_until_each_task_has_answered() -> None:
    driver = running("x", "y")
    offset = trigger(driver, "x", "y")
    instruction = TriggerTasks("j", 1, ("x", "y"), 5, OPTIONS, offset)
    assert demanded(driver) == [instruction]
    assert driver.settle() == []
    acknowledge(driver, "x")
    assert demanded(driver) == [instruction], "what is demanded does not change on its way"
    driver.receive(
        job_master.DeclineCheckpoint(job_id="j", execution_attempt_id="y", checkpoint_id=1, reason="full"),
        OWN,
        JM,
    )
    assert demanded(driver) == []


@pytest.mark.parametrize("end", [ExecutionState.FINISHED, ExecutionState.FAILED])
def test_ended_task_requires_no_answer(end: ExecutionState) -> None:
    driver = running("x")
    trigger(driver, "x")
    driver.report("x", end)
    assert demanded(driver) == []
    assert driver.settle() == []


@pytest.mark.parametrize("over", [confirm, abort])
def test_aborted_checkpoint_is_not_triggered(over: object) -> None:
    driver = running("x")
    trigger(driver, "x")
    over(driver, "x")  # type: ignore[operator]
    assert not [instruction for instruction in demanded(driver) if isinstance(instruction, TriggerTasks)]


def test_checkpoint_of_task_that_does_not_run_is_declined_with_reason() -> None:
    driver = running("x", "ended", "stopping")
    driver.report("ended", ExecutionState.FINISHED)
    driver.receive(task_executor.CancelTask(job_id="j", execution_attempt_id="stopping"), JM)
    driver.submit("new", subtask=7, deployment="e")
    driver.settle()
    offset = trigger(driver, "x", "ended", "stopping", "new", "unknown")
    events = driver.settle()
    assert names(events) == ["DeclineCheckpoint"] * 4
    reasons = {event.body.execution_attempt_id: event.body.reason for event in events}  # type: ignore[attr-defined]
    assert reasons == {
        "ended": "it is unknown here, or has ended, on TaskExecutor te",
        "unknown": "it is unknown here, or has ended, on TaskExecutor te",
        "stopping": "it is CANCELING, on TaskExecutor te",
        "new": "it is DEPLOYING, on TaskExecutor te",
    }
    assert {event.cause for event in events} == {offset}
    assert driver.settle() == []
    (instruction,) = demanded(driver)
    assert isinstance(instruction, TriggerTasks)
    assert instruction.attempts == ("x",)


def test_tasks_are_notified_of_last_checkpoint_results_in_order() -> None:
    driver = running("x")
    first = confirm(driver, "x", "unknown", number=1)
    second = abort(driver, "x", number=2)
    assert demanded(driver) == [ConfirmTasks("j", 1, ("x",), first), AbortTasks("j", 2, ("x",), second)]
    for number in range(3, 40):
        confirm(driver, "x", number=number)
    assert len(demanded(driver)) == 8
    assert len({instruction.key for instruction in demanded(driver)}) == 8
    confirm(driver, "unknown", number=41)
    assert len(demanded(driver)) == 8, "nobody here is concerned"


def test_restarted_process_restores_last_confirmed_checkpoint() -> None:
    driver = running("x", "y")
    confirm(driver, "x", restore=FIRST)
    confirm(driver, "x", number=2)
    trigger(driver, "x", number=3)
    driver.start()
    assert demanded(driver) == [], "it knows nothing of what its predecessor had begun"
    runs = [
        instruction
        for instruction in driver.role.instructions(driver.state)
        if isinstance(instruction, RunTasks)
    ]
    begins = {task.execution_attempt_id: task.restore for run in runs for task in run.tasks}
    assert begins == {"x": FIRST, "y": None}


@pytest.mark.parametrize("savepoint", ["open", "complete"])
def test_task_that_acknowledged_stopping_savepoint_is_run_in_no_other_process(savepoint: str) -> None:
    driver = running("x", "y")
    acknowledge(driver, "x", stops=True)
    acknowledge(driver, "y")
    if savepoint == "complete":
        confirm(driver, "x")
    driver.start()
    assert driver.demands() == ({"d1": ["y"]}, ["x"])
    driver.report("x", ExecutionState.CANCELED)
    driver.start()
    assert driver.demands() == ({"d1": ["y"]}, [])


def test_task_whose_stop_was_aborted_continues_in_other_process() -> None:
    driver = running("x")
    acknowledge(driver, "x", stops=True)
    abort(driver, "x")
    acknowledge(driver, "x", stops=True)
    driver.start()
    assert driver.demands() == ({"d0": ["x"]}, []), (
        "what is said of a checkpoint that is over changes nothing"
    )


def test_restarted_process_knows_finished_checkpoints() -> None:
    driver = running("e1", "e2")
    trigger(driver, "e1", number=4)
    abort(driver, "e1", number=4)
    assert {item: task.checkpoints_over for item, task in driver.state.tasks.items()} == {"e1": 4, "e2": 0}


def test_task_runs_in_its_generation_with_its_restored_state() -> None:
    driver = Driver()
    driver.hold("a")
    body = task_executor.SubmitTask(
        job_id="j",
        vertex_id="v",
        deployment_id="d",
        subtasks=(replace(descriptor("x", "a", number=3), finished=True),),
        generation=2,
        restore=FIRST,
    )
    driver.receive(body, JM)
    (run,) = [
        instruction
        for instruction in driver.role.instructions(driver.state)
        if isinstance(instruction, RunTasks)
    ]
    (task,) = run.tasks
    assert (task.generation, task.restore, task.finished) == (2, FIRST, True)


def test_checkpoint_state_of_departed_job_is_removed() -> None:
    driver = running("x")
    confirm(driver, "x")
    driver.report("x", ExecutionState.FINISHED)
    driver.free("a")
    driver.settle()
    assert "j" not in driver.state.jobs
    assert not driver.state.triggers
    assert not driver.state.checkpoint_ends
    assert demanded(driver) == []


def test_lost_task_executor_requires_no_checkpoint_event() -> None:
    driver = running("x")
    trigger(driver, "x", "unknown")
    driver.lose()
    assert "DeclineCheckpoint" not in names(driver.settle())
    assert demanded(driver) == []
