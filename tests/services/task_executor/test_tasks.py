"""Tasks: submitted, run together, stopped, and removed when they have ended."""

from __future__ import annotations

from itertools import product

import pytest

from tailrace.schemas import job_master, task_executor
from tailrace.schemas.states import EXECUTION_ENDS, EXECUTION_TRANSITIONS
from tailrace.schemas.types import ExecutionState
from tailrace.services.core.role import IllegalEvent
from tailrace.services.task_executor.task_slot_table import TaskSlotState

from .log_builder import JM, Driver, descriptor, names

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


def held(slots: int = 2) -> Driver:
    """Returns a TaskExecutor where job j has accepted slots a, b, ..."""
    driver = Driver(slots)
    driver.hold(*"abcdefgh"[:slots])
    driver.settle()
    return driver


def cancel(driver: Driver, attempt: str) -> None:
    driver.receive(task_executor.CancelTask(job_id="j", execution_attempt_id=attempt), JM)


# States


def with_task(state: ExecutionState) -> Driver:
    """Returns a TaskExecutor with task t in a state."""
    driver = held(1)
    driver.submit("t")
    driver.settle()
    if state is CANCELING:
        cancel(driver, "t")
    elif state is not DEPLOYING:
        driver.report("t", state)
    return driver


@pytest.mark.parametrize(("before", "after"), list(product(HERE, ExecutionState)))
def test_task_transitions_follow_table(before: ExecutionState, after: ExecutionState) -> None:
    driver = with_task(before)
    assert driver.state.tasks["t"].state is before
    allowed = after in EXECUTION_TRANSITIONS[before]
    if allowed or after is before or before is CANCELING:
        driver.report("t", after)
        state = after if allowed else before
        assert ("t" in driver.state.tasks) == (state not in EXECUTION_ENDS)
        if "t" in driver.state.tasks:
            assert driver.state.tasks["t"].state is state
    else:
        unchanged = driver.state
        with pytest.raises(IllegalEvent, match=f"can't become {after.value}"):
            driver.report("t", after)
        assert driver.state is unchanged


# Deployments


def both(driver: Driver) -> None:
    """Returns one SubmitTask for t0 in slot a and t1 in slot b."""
    driver.submit_all("d", (descriptor("t0", "a"), descriptor("t1", "b", 1)))


def test_tasks_of_one_event_run_together() -> None:
    driver = held()
    both(driver)
    assert driver.demands() == ({"d": ["t0", "t1"]}, [])
    assert names(driver.settle()) == ["TaskAcknowledged", "TaskAcknowledged"]


def test_repeated_event_runs_nothing_again() -> None:
    driver = held()
    both(driver)
    driver.settle()
    driver.report("t0", RUNNING, FINISHED)
    before = driver.state
    both(driver)
    assert driver.state is before


@pytest.mark.parametrize("refused", [0, 1])
def test_task_without_slot_is_rejected_and_does_not_delay_others(refused: int) -> None:
    driver = held()
    driver.free("ab"[refused])
    driver.settle()
    both(driver)
    assert driver.demands() == ({"d": [f"t{1 - refused}"]}, [])
    owed = {name: event for event in driver.settle() for name in names([event])}
    outgoing_event = owed["UpdateTaskExecutionState"]
    assert isinstance(outgoing_event.body, job_master.UpdateTaskExecutionState)
    assert (outgoing_event.recipient, outgoing_event.body.execution_state) == (JM, FAILED)
    assert outgoing_event.body.execution_attempt_id == f"t{refused}"
    assert "is not held under allocation" in (outgoing_event.body.failure or "")
    assert driver.settle() == []


def test_task_is_rejected_in_slot_being_released_and_in_slot_of_other_job() -> None:
    driver = held(1)
    driver.submit("t")
    driver.free("a")
    driver.submit("t2", number=1, deployment="d2")
    other = Driver()
    other.hold("x", job_id="other")
    other.submit("t", "x")
    for item in (driver, other):
        assert "UpdateTaskExecutionState" in names(item.settle())


def test_query_continues_for_tasks_that_have_not_ended() -> None:
    driver = held()
    both(driver)
    driver.report("t0", RUNNING, FINISHED)
    assert driver.demands() == ({"d": ["t1"]}, [])
    cancel(driver, "t1")
    assert driver.demands() == ({}, ["t1"])
    driver.report("t1", CANCELED)
    assert driver.demands() == ({}, [])
    assert not driver.state.jobs["j"].deployments


def test_restarted_process_finds_its_tasks() -> None:
    driver = held()
    both(driver)
    driver.report("t0", RUNNING)
    driver.report("t1", RUNNING)
    cancel(driver, "t1")
    before = driver.demands()
    driver.start()
    assert driver.demands() == before == ({"d": ["t0"]}, ["t1"])
    assert driver.slot() is TaskSlotState.ACTIVE


# Memory


def test_ended_task_is_removed_and_does_not_run_again() -> None:
    driver = held(1)
    sizes = set()
    for number in range(50):
        driver.submit(f"t{number}", number=number, deployment=f"d{number}")
        driver.settle()
        driver.report(f"t{number}", RUNNING, FAILED)
        connection = driver.state.jobs["j"]
        sizes.add((len(driver.state.tasks), len(connection.attempts), len(connection.deployments)))
        for again in range(0, number + 1, 7):
            driver.submit(f"t{again}", number=again, deployment=f"d{again}")
            assert driver.demands() == ({}, [])
            assert driver.settle() == []
    assert sizes == {(0, 1, 0)}


def test_nothing_is_left_of_departed_job() -> None:
    driver = Driver()
    empty = driver.state
    driver.hold("a", "b")
    driver.submit("t0", "a")
    cancel(driver, "t0")
    driver.report("t0", CANCELED)
    driver.free("a")
    driver.free("b")
    driver.settle()
    assert driver.state.slots_changed > empty.slots_changed
    assert driver.state.slots == empty.slots
    assert (driver.state.jobs, driver.state.tasks, driver.state.outbox) == (
        empty.jobs,
        empty.tasks,
        empty.outbox,
    )


def test_tasks_are_stopped_before_others_are_started() -> None:
    """A process would start with the task that has to end."""
    driver = with_task(CANCELING)
    driver.submit("next", number=1, deployment="next")
    kinds = [type(instruction).__name__ for instruction in driver.role.instructions(driver.state)]
    assert kinds == ["StopTask", "RunTasks"]
