"""The states of jobs and Executions: the terminal ones, and the allowed transitions."""

from __future__ import annotations

from collections.abc import Mapping

from .types import ExecutionState, JobStatus

JOB_ENDS = frozenset({JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED})
"""Terminal states. SUSPENDED is not one of them: a suspended job can resume."""
EXECUTION_ENDS = frozenset({ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED})
"""Terminal states: a retry is another Execution."""

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
"""State of an Execution -> the allowed next states (Flink's Execution). Two transitions differ from Flink. RUNNING
is followed by INITIALIZING if the TaskExecutor was restarted under its old resource id: the attempt continues.
CANCELING may be followed by FINISHED, which Flink counts as CANCELED: a task that had committed all its output
before it received the cancellation has finished, and a job that is resumed does not run it again. A repeated report
of a state is not a transition."""
