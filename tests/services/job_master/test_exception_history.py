"""The exception history keeps a job's last task failures with their stack traces; the root cause outlives the job."""

from __future__ import annotations

from tailrace.schemas import job_master
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.job_master.exception_history import MAX_EXCEPTIONS

from .checkpointed import ON_REQUEST, running
from .driver import JOB

FAILED = ExecutionState.FAILED
STACK = "ZeroDivisionError: division by zero\n  at job.py:3 in divide\n  at stream_task.py:9 in run"


def test_failure_has_stack_trace_time_task_and_location() -> None:
    job = running(ON_REQUEST)
    assert job.state.root_cause is None
    offset = job.report(job.execution("sink", 1), FAILED, STACK)
    result = job.state.root_cause
    assert result is not None
    assert (result.text, result.task, result.resource_id) == (STACK, "sink (2)", "te-1")
    assert (result.time, result.offset) == (job.now, offset)


def test_lost_task_executor_is_one_failure_of_all_its_tasks() -> None:
    job = running(ON_REQUEST)
    job.lose("te-1", "its process has exited with status 1")
    (exception,) = job.state.exceptions
    assert (exception.task, exception.resource_id) == ("source (1) and 3 more", "te-1")
    assert exception.text == "its process has exited with status 1"


def test_history_is_bounded_and_long_stack_traces_are_cut_in_middle() -> None:
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


def test_root_cause_of_failed_job_survives_compaction() -> None:
    job = running({"restart-strategy.type": "none"})
    job.report(job.execution("sink"), FAILED, STACK)
    job.send()
    job.ends(
        *[execution for execution in job.executions() if execution.state is ExecutionState.CANCELING],
        state=FAILED,
    )
    job.receive(JOB, job_master.ChannelsDeleted(job_id="j"))
    assert job.state.status is JobStatus.FAILED
    assert job.role.is_quiescent(job.state)
    assert job.state.root_cause is not None
    assert job.state.root_cause.text == STACK
