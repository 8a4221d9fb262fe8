"""What a TaskExecutor makes of checkpoints: what its tasks are told, and what it says for those that are none."""

from __future__ import annotations

import pytest

from tailrace.schemas import job_master, task_executor
from tailrace.schemas.types import (
    CheckpointMetrics,
    CheckpointOptions,
    ExecutionState,
    RestoredCheckpoint,
    SnapshotType,
    SubtaskState,
)
from tailrace.services.core.role import Instruction
from tailrace.services.task_executor.instructions import AbortTasks, ConfirmTasks, RunTasks, TriggerTasks

from .log_builder import JM, OWN, Talk, names

OPTIONS = CheckpointOptions(
    snapshot_type=SnapshotType.CHECKPOINT, directory="file:///c/j/chk-1", shared="file:///c/j/shared"
)
FIRST = RestoredCheckpoint(checkpoint_id=1, uri="file:///c/j/chk-1", generation=0)


def running(*attempts: str) -> Talk:
    """Tasks of job j that run."""
    talk = Talk()
    talk.hold("a")
    for number, attempt in enumerate(attempts):
        talk.submit(attempt, subtask=number, deployment=f"d{number}")
        talk.report(attempt, ExecutionState.RUNNING)
    talk.settle()
    return talk


def trigger(talk: Talk, *attempts: str, number: int = 1) -> int:
    body = task_executor.TriggerCheckpoint(
        job_id="j", checkpoint_id=number, execution_attempt_ids=attempts, timestamp=5, options=OPTIONS
    )
    return talk.hear(body, JM)


def acknowledge(talk: Talk, attempt: str, number: int = 1, *, stops: bool = False) -> None:
    body = job_master.AcknowledgeCheckpoint(
        job_id="j",
        execution_attempt_id=attempt,
        checkpoint_id=number,
        metrics=CheckpointMetrics(),
        subtask_state=SubtaskState(stops=stops),
    )
    talk.hear(body, OWN, JM)


def confirm(talk: Talk, *attempts: str, number: int = 1, restore: RestoredCheckpoint | None = None) -> int:
    body = task_executor.ConfirmCheckpoint(
        job_id="j", checkpoint_id=number, execution_attempt_ids=attempts, restore=restore
    )
    return talk.hear(body, JM)


def abort(talk: Talk, *attempts: str, number: int = 1) -> int:
    body = task_executor.AbortCheckpoint(job_id="j", checkpoint_id=number, execution_attempt_ids=attempts)
    return talk.hear(body, JM)


def demanded(talk: Talk) -> list[Instruction]:
    """Of checkpoints."""
    told = talk.role.instructions(talk.state)
    return [each for each in told if isinstance(each, TriggerTasks | ConfirmTasks | AbortTasks)]


def test_tasks_begin_a_checkpoint_until_each_has_answered() -> None:
    talk = running("x", "y")
    offset = trigger(talk, "x", "y")
    instruction = TriggerTasks("j", 1, ("x", "y"), 5, OPTIONS, offset)
    assert demanded(talk) == [instruction]
    assert talk.settle() == []
    acknowledge(talk, "x")
    assert demanded(talk) == [instruction], "what is demanded does not change on its way"
    talk.hear(
        job_master.DeclineCheckpoint(job_id="j", execution_attempt_id="y", checkpoint_id=1, reason="full"),
        OWN,
        JM,
    )
    assert demanded(talk) == []


@pytest.mark.parametrize("end", [ExecutionState.FINISHED, ExecutionState.FAILED])
def test_a_task_that_has_ended_owes_no_answer(end: ExecutionState) -> None:
    talk = running("x")
    trigger(talk, "x")
    talk.report("x", end)
    assert demanded(talk) == []
    assert talk.settle() == []


@pytest.mark.parametrize("over", [confirm, abort])
def test_a_checkpoint_that_is_over_is_not_begun(over: object) -> None:
    talk = running("x")
    trigger(talk, "x")
    over(talk, "x")  # type: ignore[operator]
    assert not [each for each in demanded(talk) if isinstance(each, TriggerTasks)]


def test_what_does_not_run_is_declined_for_with_the_reason() -> None:
    talk = running("x", "ended", "stopping")
    talk.report("ended", ExecutionState.FINISHED)
    talk.hear(task_executor.CancelTask(job_id="j", execution_attempt_id="stopping"), JM)
    talk.submit("new", subtask=7, deployment="e")
    talk.settle()
    offset = trigger(talk, "x", "ended", "stopping", "new", "unknown")
    said = talk.settle()
    assert names(said) == ["DeclineCheckpoint"] * 4
    reasons = {each.body.execution_attempt_id: each.body.reason for each in said}  # type: ignore[attr-defined]
    assert reasons == {
        "ended": "it is unknown here, or has ended, on TaskExecutor te",
        "unknown": "it is unknown here, or has ended, on TaskExecutor te",
        "stopping": "it is CANCELING, on TaskExecutor te",
        "new": "it is DEPLOYING, on TaskExecutor te",
    }
    assert {each.cause for each in said} == {offset}
    assert talk.settle() == []
    (instruction,) = demanded(talk)
    assert isinstance(instruction, TriggerTasks)
    assert instruction.attempts == ("x",)


def test_tasks_are_told_of_the_ends_of_checkpoints_in_order_and_of_the_last_few_only() -> None:
    talk = running("x")
    first = confirm(talk, "x", "unknown", number=1)
    second = abort(talk, "x", number=2)
    assert demanded(talk) == [ConfirmTasks("j", 1, ("x",), first), AbortTasks("j", 2, ("x",), second)]
    for number in range(3, 40):
        confirm(talk, "x", number=number)
    assert len(demanded(talk)) == 8
    assert len({each.key for each in demanded(talk)}) == 8
    confirm(talk, "unknown", number=41)
    assert len(demanded(talk)) == 8, "nobody here is concerned"


def test_a_process_that_starts_again_begins_with_the_last_checkpoint_that_was_confirmed() -> None:
    talk = running("x", "y")
    confirm(talk, "x", restore=FIRST)
    confirm(talk, "x", number=2)
    trigger(talk, "x", number=3)
    talk.start()
    assert demanded(talk) == [], "it knows nothing of what its predecessor had begun"
    runs = [each for each in talk.role.instructions(talk.state) if isinstance(each, RunTasks)]
    begins = {task.execution_attempt_id: task.restore for each in runs for task in each.tasks}
    assert begins == {"x": FIRST, "y": None}


@pytest.mark.parametrize("savepoint", ["open", "complete"])
def test_a_task_that_has_acknowledged_what_stops_it_is_run_in_no_other_process(savepoint: str) -> None:
    talk = running("x", "y")
    acknowledge(talk, "x", stops=True)
    acknowledge(talk, "y")
    if savepoint == "complete":
        confirm(talk, "x")
    talk.start()
    assert talk.demands() == ({"d1": ["y"]}, ["x"])
    talk.report("x", ExecutionState.CANCELED)
    talk.start()
    assert talk.demands() == ({"d1": ["y"]}, [])


def test_a_task_whose_stop_was_given_up_goes_on_in_another_process() -> None:
    talk = running("x")
    acknowledge(talk, "x", stops=True)
    abort(talk, "x")
    acknowledge(talk, "x", stops=True)
    talk.start()
    assert talk.demands() == ({"d0": ["x"]}, []), "what is said of a checkpoint that is over changes nothing"


def test_a_process_that_starts_again_knows_what_is_over() -> None:
    talk = running("e1", "e2")
    trigger(talk, "e1", number=4)
    abort(talk, "e1", number=4)
    assert {each: task.checkpoints_over for each, task in talk.state.tasks.items()} == {"e1": 4, "e2": 0}


def test_a_task_is_run_in_its_generation_with_what_it_begins_with() -> None:
    talk = Talk()
    talk.hold("a")
    body = task_executor.SubmitTask(
        job_id="j",
        vertex_id="v",
        subtask_index=0,
        attempt_number=3,
        execution_attempt_id="x",
        allocation_id="a",
        deployment_id="d",
        deployment_size=1,
        generation=2,
        restore=FIRST,
        finished=True,
    )
    talk.hear(body, JM)
    (run,) = [each for each in talk.role.instructions(talk.state) if isinstance(each, RunTasks)]
    (task,) = run.tasks
    assert (task.generation, task.restore, task.finished) == (2, FIRST, True)


def test_nothing_of_checkpoints_is_kept_of_a_job_that_has_nothing_here_any_more() -> None:
    talk = running("x")
    confirm(talk, "x")
    talk.report("x", ExecutionState.FINISHED)
    talk.free("a")
    talk.settle()
    assert "j" not in talk.state.jobs
    assert not talk.state.triggers
    assert not talk.state.checkpoint_ends
    assert demanded(talk) == []


def test_a_task_executor_that_is_lost_owes_nothing_about_checkpoints() -> None:
    talk = running("x")
    trigger(talk, "x", "unknown")
    talk.lose()
    assert "DeclineCheckpoint" not in names(talk.settle())
    assert demanded(talk) == []
