"""The tasks of a slot are one process: they are submitted together, and restart together after one failure."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas import job_master, task_executor
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master.state import Execution

from ...graphs import edge, job_graph, source, vertex
from .driver import Job, bodies, running, submissions

FAILED, RUNNING, FINISHED = ExecutionState.FAILED, ExecutionState.RUNNING, ExecutionState.FINISHED
GRAPH = job_graph(
    source(parallelism=2),
    vertex("middle", parallelism=2),
    vertex("sink", parallelism=2),
    edge("source", "middle"),
    edge("middle", "sink"),
)
MEMBERS = 3
SLOT = {"execution.isolation": "slot"}
AT_ONCE = {
    **SLOT,
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "5",
    "restart-strategy.fixed-delay.delay": "0 s",
}


def members(job: Job, index: int = 0) -> list[Execution]:
    return [execution for execution in job.executions() if execution.subtask_index == index]


def report_failure(job: Job, tasks: list[Execution]) -> None:
    """Reports the failure of a process: the first task has failed, and the others with it."""
    for number, task in enumerate(tasks):
        job.report(task, FAILED, "in the same slot" if number else "broken")


@given(
    data=st.data(),
    failures=st.lists(st.permutations(range(MEMBERS)), min_size=1, max_size=7),
)
@settings(deadline=None, max_examples=60)
def test_failures_of_process_use_one_attempt_each_however_reports_are_cut(
    data: st.DataObject, failures: list[list[int]]
) -> None:
    job = running(GRAPH, AT_ONCE, ("te-1", "te-2"))
    others = members(job, 1)
    for count, order in enumerate(failures, 1):
        tasks = members(job)
        for number in order:
            job.report(tasks[number], FAILED, "broken")
            if data.draw(st.booleans()):
                job.send()
        job.send()
        assert job.state.failures.counted == count
        assert len(job.state.exceptions) == count
        if count > 5:
            assert job.state.status is JobStatus.FAILING
            return
        assert {each.attempt_number for each in members(job)} == {count}
        job.runs()
        assert members(job, 1) == others, "other slots do not notice"
    assert job.state.status is JobStatus.RUNNING


@given(appended=st.integers(0, 6))
def test_number_of_tasks_is_the_same_after_leader_fails_between_submissions(appended: int) -> None:
    job = Job(GRAPH, SLOT)
    job.receive("job_master/j", job_master.ChannelsCreated(job_id="j"))
    job.send()
    job.receive("resource_manager", job_master.JobManagerRegistrationSuccess(job_id="j"))
    job.send()
    job.receive("task_executor/te-1", job_master.RegisterTaskManager(job_id="j", resource_id="te-1"))
    job.send()
    job.offer("te-1", *sorted(job.state.slots.requests))
    first = job.owed()[:appended]
    for event in first:
        job.receive("job_master/j", event.body, recipient=event.recipient, cause=event.cause)
    submitted = [*submissions(first), *submissions(job.send())]
    assert [task.slot_tasks for task in submitted] == [MEMBERS] * 2 * MEMBERS


@pytest.mark.parametrize(
    "configuration",
    [{"execution.isolation": "vertex"}, {**SLOT, "execution.schedule-mode": "LAZY_FROM_SOURCES"}],
)
def test_each_task_has_its_process_and_restarts_alone_without_slot_processes(
    configuration: dict[str, str],
) -> None:
    job = Job(GRAPH, {**AT_ONCE, **configuration})
    submitted = submissions(job.assemble())
    while len(submitted) < 2 * MEMBERS:
        job.runs()
        submitted += submissions(job.send())
    job.runs()
    assert {task.slot_tasks for task in submitted} == {1}
    job.report(job.execution("sink"), FAILED, "broken")
    (again,) = submissions(job.send())
    assert (again.vertex_id, again.slot_tasks) == ("sink", 1)


def test_finished_task_does_not_restart_with_its_process() -> None:
    job = running(GRAPH, AT_ONCE)
    done, *rest = members(job)
    job.report(done, FINISHED)
    report_failure(job, rest)
    again = submissions(job.send())
    assert [task.slot_tasks for task in again] == [2, 2]
    assert {task.vertex_id for task in again} == {each.vertex_id for each in rest}


def test_failed_task_is_named_alone_in_history_of_exceptions() -> None:
    job = running(GRAPH, AT_ONCE)
    first, *rest = reversed(members(job))
    report_failure(job, [first, *rest])
    (exception,) = job.state.exceptions
    assert (exception.task, exception.text) == (f"{first.vertex_id} (1)", "broken")


def cancelled(events: list[OutgoingEvent]) -> set[str]:
    return {body.execution_attempt_id for body in bodies(events, task_executor.CancelTask)}


def test_task_that_is_not_reported_with_its_process_is_cancelled() -> None:
    """Its TaskExecutor has failed between the reports, and goes on with it."""
    job = running(GRAPH, AT_ONCE)
    first, second, third = members(job)
    job.report(first, FAILED, "broken")
    job.report(second, FAILED, "in the same slot")
    events = job.send()
    assert cancelled(events) == {third.execution_attempt_id}
    assert {task.slot_tasks for task in submissions(events)} == {MEMBERS}
    job.report(third, ExecutionState.INITIALIZING)
    job.report(third, ExecutionState.CANCELED)
    assert job.send() == []
    assert {each.attempt_number for each in members(job)} == {1}


def test_slot_restarts_whole_if_one_of_its_tasks_is_not_there() -> None:
    job = running(GRAPH, AT_ONCE)
    first, *_ = members(job)
    missing = job_master.TasksContradicted(
        resource_id="te-1",
        execution_attempt_ids=(first.execution_attempt_id,),
        reason="the TaskExecutor does not run it",
    )
    before = {each.execution_attempt_id for each in members(job)}
    job.receive("job_master/j", missing)
    events = job.send()
    assert cancelled(events) == before
    assert [task.slot_tasks for task in submissions(events)] == [MEMBERS] * MEMBERS
    assert job.state.failures.counted == 1


def test_task_that_was_not_submitted_yet_restarts_with_its_process() -> None:
    """A TaskExecutor refuses a task before the next leader submits the rest of the slot."""
    job = Job(job_graph(source(), vertex("sink"), edge("source", "sink")), AT_ONCE)
    job.assemble(())
    job.receive("task_executor/te-1", job_master.RegisterTaskManager(job_id="j", resource_id="te-1"))
    job.send()
    job.offer("te-1", *job.state.slots.requests)
    submit = next(event for event in job.owed() if submissions([event]))
    job.receive("job_master/j", submit.body, recipient=submit.recipient, cause=submit.cause)
    job.report(job.execution("source"), FAILED, "its files are gone")
    again = submissions(job.send())
    assert [(task.vertex_id, task.attempt_number, task.slot_tasks) for task in again] == [
        ("source", 1, 2),
        ("sink", 0, 2),
    ]
