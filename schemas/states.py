"""Which states are ends: nothing follows them."""

from __future__ import annotations

from .types import ExecutionState, JobStatus

JOB_ENDS = frozenset({JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED})
EXECUTION_ENDS = frozenset({ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED})
