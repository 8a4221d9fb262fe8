"""Tasks: submitted, run together, stopped, and forgotten when they have ended."""

from __future__ import annotations

from itertools import product

import pytest

from tailrace.schemas import job_master, task_executor
from tailrace.schemas.states import EXECUTION_ENDS, EXECUTION_TRANSITIONS
from tailrace.schemas.types import ExecutionState
from tailrace.services.core.role import IllegalEvent
from tailrace.services.task_executor.task_slot_table import TaskSlotState

from .log_builder import JM, Talk, names

DEPLOYING, INITIALIZING, RUNNING = (
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)
FINISHED, CANCELING, CANCELED, FAILED = (
    ExecutionState.FINISHED,
    ExecutionState.CANCELING,
    ExecutionState.CANCELED,
    ExecutionState.FAILED,
)
HERE = (DEPLOYING, INITIALIZING, RUNNING, CANCELING)


def held(slots: int = 2) -> Talk:
    """Job j has taken slots a, b, ..."""
    talk = Talk(slots)
    talk.hold(*"abcdefgh"[:slots])
    talk.settle()
    return talk


def cancel(talk: Talk, attempt: str) -> None:
    talk.hear(task_executor.CancelTask(job_id="j", execution_attempt_id=attempt), JM)


# States


def with_task(state: ExecutionState) -> Talk:
    """Task t in a state."""
    talk = held(1)
    talk.submit("t")
    talk.settle()
    if state is CANCELING:
        cancel(talk, "t")
    elif state is not DEPLOYING:
        talk.report("t", state)
    return talk


@pytest.mark.parametrize(("before", "after"), list(product(HERE, ExecutionState)))
def test_a_task_goes_from_state_to_state_as_the_table_says(
    before: ExecutionState, after: ExecutionState
) -> None:
    talk = with_task(before)
    assert talk.state.tasks["t"].state is before
    allowed = after in EXECUTION_TRANSITIONS[before]
    if allowed or after is before or before is CANCELING:
        talk.report("t", after)
        left = after if allowed else before
        assert ("t" in talk.state.tasks) == (left not in EXECUTION_ENDS)
        if "t" in talk.state.tasks:
            assert talk.state.tasks["t"].state is left
    else:
        unchanged = talk.state
        with pytest.raises(IllegalEvent, match=f"can't become {after.value}"):
            talk.report("t", after)
        assert talk.state is unchanged


# Deployments


def test_tasks_that_come_together_are_run_together() -> None:
    talk = held()
    talk.submit("t0", "a", subtask=0, size=2)
    assert talk.demands() == ({}, [])
    talk.submit("t1", "b", subtask=1, size=2)
    assert talk.demands() == ({"d": ["t0", "t1"]}, [])
    assert names(talk.settle()) == ["TaskAcknowledged", "TaskAcknowledged"]


def test_a_task_that_is_cancelled_before_the_others_come_does_not_keep_them_waiting() -> None:
    talk = held()
    talk.submit("t0", "a", subtask=0, size=2)
    cancel(talk, "t0")
    talk.report("t0", CANCELED)
    assert talk.demands() == ({}, [])
    talk.submit("t1", "b", subtask=1, size=2)
    assert talk.demands() == ({"d": ["t1"]}, [])


@pytest.mark.parametrize("refused", [0, 1])
def test_a_task_that_has_no_slot_is_refused_and_does_not_keep_the_others_waiting(refused: int) -> None:
    talk = held()
    talk.free("ab"[refused])
    talk.settle()
    for index in (0, 1):
        talk.submit(f"t{index}", "ab"[index], subtask=index, size=2)
    assert talk.demands() == ({"d": [f"t{1 - refused}"]}, [])
    owed = {name: each for each in talk.settle() for name in names([each])}
    said = owed["UpdateTaskExecutionState"]
    assert isinstance(said.body, job_master.UpdateTaskExecutionState)
    assert (said.recipient, said.body.execution_state) == (JM, FAILED)
    assert said.body.execution_attempt_id == f"t{refused}"
    assert "is not held under allocation" in (said.body.failure or "")
    assert talk.settle() == []


def test_a_task_is_refused_in_a_slot_that_is_being_released_and_in_one_of_another_job() -> None:
    talk = held(1)
    talk.submit("t")
    talk.free("a")
    talk.submit("t2", number=1, deployment="d2")
    other = Talk()
    other.hold("x", job_id="other")
    other.submit("t", "x")
    for each in (talk, other):
        assert "UpdateTaskExecutionState" in names(each.settle())


def test_a_query_goes_on_for_those_that_have_not_ended() -> None:
    talk = held()
    talk.submit("t0", "a", subtask=0, size=2)
    talk.submit("t1", "b", subtask=1, size=2)
    talk.report("t0", RUNNING, FINISHED)
    assert talk.demands() == ({"d": ["t1"]}, [])
    cancel(talk, "t1")
    assert talk.demands() == ({}, ["t1"])
    talk.report("t1", CANCELED)
    assert talk.demands() == ({}, [])
    assert not talk.state.jobs["j"].deployments


def test_a_process_that_starts_again_finds_its_tasks() -> None:
    talk = held()
    talk.submit("t0", "a", subtask=0, size=2)
    talk.submit("t1", "b", subtask=1, size=2)
    talk.report("t0", RUNNING)
    talk.report("t1", RUNNING)
    cancel(talk, "t1")
    before = talk.demands()
    talk.start()
    assert talk.demands() == before == ({"d": ["t0"]}, ["t1"])
    assert talk.slot() is TaskSlotState.ACTIVE


# Memory


def test_what_has_ended_is_forgotten_and_does_not_run_again() -> None:
    talk = held(1)
    sizes = set()
    for number in range(50):
        talk.submit(f"t{number}", number=number, deployment=f"d{number}")
        talk.settle()
        talk.report(f"t{number}", RUNNING, FAILED)
        connection = talk.state.jobs["j"]
        sizes.add((len(talk.state.tasks), len(connection.attempts), len(connection.deployments)))
        for again in range(0, number + 1, 7):
            talk.submit(f"t{again}", number=again, deployment=f"d{again}")
            assert talk.demands() == ({}, [])
            assert talk.settle() == []
    assert sizes == {(0, 1, 0)}


def test_nothing_is_left_of_a_job_that_has_gone() -> None:
    talk = Talk()
    empty = talk.state
    talk.hold("a", "b")
    talk.submit("t0", "a", subtask=0, size=2)
    cancel(talk, "t0")
    talk.report("t0", CANCELED)
    talk.free("a")
    talk.free("b")
    talk.settle()
    assert talk.state.slots_changed > empty.slots_changed
    assert talk.state.slots == empty.slots
    assert (talk.state.jobs, talk.state.tasks, talk.state.jobs_owing) == (
        empty.jobs,
        empty.tasks,
        empty.jobs_owing,
    )
