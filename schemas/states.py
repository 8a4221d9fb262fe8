"""The states of jobs and Executions: which are ends, and what may follow what."""

from __future__ import annotations

from collections.abc import Mapping

from .types import ExecutionState, JobStatus

JOB_ENDS = frozenset({JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED})
"""Nothing follows them. SUSPENDED is none of them: a job that is suspended goes on."""
EXECUTION_ENDS = frozenset({ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED})
"""Nothing follows them: a retry is another Execution."""

EXECUTION_TRANSITIONS: Mapping[ExecutionState, frozenset[ExecutionState]] = {
    ExecutionState.CREATED: frozenset(
        {
            ExecutionState.SCHEDULED,
            ExecutionState.DEPLOYING,
            ExecutionState.CANCELED,
            ExecutionState.FAILED,
        }
    ),
    ExecutionState.SCHEDULED: frozenset(
        {ExecutionState.DEPLOYING, ExecutionState.CANCELED, ExecutionState.FAILED}
    ),
    ExecutionState.DEPLOYING: frozenset(
        {ExecutionState.INITIALIZING, ExecutionState.RUNNING, ExecutionState.CANCELING} | EXECUTION_ENDS
    ),
    ExecutionState.INITIALIZING: frozenset(
        {ExecutionState.RUNNING, ExecutionState.CANCELING} | EXECUTION_ENDS
    ),
    ExecutionState.RUNNING: frozenset(
        {ExecutionState.INITIALIZING, ExecutionState.CANCELING} | EXECUTION_ENDS
    ),
    ExecutionState.CANCELING: EXECUTION_ENDS,
    ExecutionState.FINISHED: frozenset(),
    ExecutionState.CANCELED: frozenset(),
    ExecutionState.FAILED: frozenset(),
}
"""State of an Execution -> what may follow (Flink's Execution).

Two differ from Flink. RUNNING is followed by INITIALIZING where the TaskExecutor was started again under its old
resource id: the attempt goes on. CANCELING may be followed by FINISHED, which Flink counts as CANCELED: a task that had
committed all its output before it heard of the cancellation has finished, and a job that is resumed does not run it
again. A state that is reported once more is no transition.
"""
