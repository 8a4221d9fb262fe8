"""Which state of an Execution follows which, and who may say so (document 003; Flink's ExecutionState).

CREATED and SCHEDULED are the JobMaster's alone: nobody else knows of the Execution yet. From SubmitTask on its
TaskExecutor reports, and what it reports last is an end. A TaskExecutor that restarted goes on with its tasks: they
initialise once more.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas.types import ExecutionState

CREATED, SCHEDULED = ExecutionState.CREATED, ExecutionState.SCHEDULED
DEPLOYING, INITIALIZING = ExecutionState.DEPLOYING, ExecutionState.INITIALIZING
RUNNING, FINISHED = ExecutionState.RUNNING, ExecutionState.FINISHED
CANCELING, CANCELED, FAILED = ExecutionState.CANCELING, ExecutionState.CANCELED, ExecutionState.FAILED

_ENDS = frozenset({FINISHED, CANCELED, FAILED})
_NONE: frozenset[ExecutionState] = frozenset()

REPORTED: Mapping[ExecutionState, frozenset[ExecutionState]] = {
    CREATED: _NONE,
    SCHEDULED: _NONE,
    DEPLOYING: _ENDS | {INITIALIZING, RUNNING},
    INITIALIZING: _ENDS | {INITIALIZING, RUNNING},
    RUNNING: _ENDS | {INITIALIZING, RUNNING},
    CANCELING: _ENDS,
    FINISHED: _NONE,
    CANCELED: _NONE,
    FAILED: _NONE,
}
"""What a TaskExecutor may report of an Execution in a state."""

NEXT: Mapping[ExecutionState, frozenset[ExecutionState]] = {
    CREATED: frozenset({SCHEDULED, CANCELED}),
    SCHEDULED: frozenset({DEPLOYING, CANCELED, FAILED}),
    DEPLOYING: REPORTED[DEPLOYING] | {CANCELING},
    INITIALIZING: REPORTED[INITIALIZING] | {CANCELING},
    RUNNING: REPORTED[RUNNING] | {CANCELING},
    CANCELING: REPORTED[CANCELING],
    FINISHED: _NONE,
    CANCELED: _NONE,
    FAILED: _NONE,
}
"""What may follow at all."""

TOO_LATE = frozenset({INITIALIZING, RUNNING})
"""What may be reported of an Execution that is being cancelled without meaning anything: it crossed with CancelTask."""

DEPLOYED = frozenset({DEPLOYING, INITIALIZING, RUNNING, CANCELING})
"""A TaskExecutor was told to run it, and has not said that it has ended."""


def check(before: ExecutionState, after: ExecutionState) -> ExecutionState:
    """The state after. Raises ValueError where it can't follow."""
    if after not in NEXT[before]:
        raise ValueError(f"an Execution that is {before.value} can't become {after.value}")
    return after
