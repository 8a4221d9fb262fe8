"""The last failures of a job's tasks are kept, with their stacks, and the root cause outlives the job."""

from __future__ import annotations

from tailrace.schemas import job_master
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.job_master.exception_history import MAX_EXCEPTIONS

from .checkpointed import ON_REQUEST, running
from .driver import JOB

FAILED = ExecutionState.FAILED
STACK = "ZeroDivisionError: division by zero\n  at job.py:3 in divide\n  at stream_task.py:9 in run"


def test_a_failure_is_kept_with_its_stack_its_time_its_task_and_where_it_ran() -> None:
    job = running(ON_REQUEST)
    assert job.state.root_cause is None
    offset = job.report(job.execution("sink", 1), FAILED, STACK)
    found = job.state.root_cause
    assert found is not None
    assert (found.text, found.task, found.resource_id) == (STACK, "sink (2)", "te-1")
    assert (found.time, found.offset) == (job.now, offset)


def test_a_task_executor_that_is_lost_is_one_failure_of_all_that_ran_there() -> None:
    job = running(ON_REQUEST)
    job.lose("te-1", "its process has exited with status 1")
    (found,) = job.state.exceptions
    assert (found.task, found.resource_id) == ("source (1) and 3 more", "te-1")
    assert found.text == "its process has exited with status 1"


def test_only_so_many_are_kept_and_long_stacks_are_cut_in_their_middle() -> None:
    job = running({**ON_REQUEST, "restart-strategy.fixed-delay.attempts": "99"})
    for number in range(MAX_EXCEPTIONS + 3):
        job.report(job.execution("sink"), FAILED, f"{number}: {'x' * 100_000} the end")
        job.tick(2)
        job.runs()
    assert len(job.state.exceptions) == MAX_EXCEPTIONS
    last = job.state.exceptions[-1].text
    assert last.startswith(f"{MAX_EXCEPTIONS + 2}: ")
    assert last.endswith("the end")
    assert len(last) < 9_000


def test_the_root_cause_of_a_job_that_failed_is_known_when_all_else_of_it_is_forgotten() -> None:
    job = running({"restart-strategy.type": "none"})
    job.report(job.execution("sink"), FAILED, STACK)
    job.say()
    job.ends(*[each for each in job.executions() if each.state is ExecutionState.CANCELING], state=FAILED)
    job.tell(JOB, job_master.ChannelsDeleted(job_id="j"))
    assert job.state.status is JobStatus.FAILED
    assert job.role.is_quiescent(job.state)
    assert job.state.root_cause is not None
    assert job.state.root_cause.text == STACK
