"""The transitions of an Execution's state, and who may report them (Flink's ExecutionState).

CREATED and SCHEDULED are internal to the JobMaster. From SubmitTask on the TaskExecutor reports; its last report is a
terminal state. A restarted TaskExecutor continues with its tasks: they initialize once more.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas.states import EXECUTION_ENDS, EXECUTION_TRANSITIONS
from ...schemas.types import ExecutionState
from ..core.role import IllegalTransition

_GOING = frozenset({ExecutionState.INITIALIZING, ExecutionState.RUNNING})

DEPLOYED = frozenset({ExecutionState.DEPLOYING, ExecutionState.CANCELING}) | _GOING
"""A TaskExecutor was asked to run it, and has not reported its end."""

REPORTED: Mapping[ExecutionState, frozenset[ExecutionState]] = {
    state: (following | {state}) & (_GOING | EXECUTION_ENDS) if state in DEPLOYED else frozenset()
    for state, following in EXECUTION_TRANSITIONS.items()
}
"""The reports that a TaskExecutor may send in a state: the next states, or the same state again."""

TOO_LATE = _GOING
"""Reports about an Execution that is being cancelled that are ignored: they crossed with CancelTask."""


NEXT: Mapping[ExecutionState, frozenset[ExecutionState]] = {
    state: following | REPORTED[state] for state, following in EXECUTION_TRANSITIONS.items()
}
"""All legal next states of an Execution in a state."""


def check_transition(before: ExecutionState, after: ExecutionState) -> ExecutionState:
    """Returns the new state. Raises IllegalTransition if the transition is illegal."""
    if after not in NEXT[before]:
        raise IllegalTransition(f"an Execution that is {before.value} can't become {after.value}")
    return after
