"""The transitions between the states of an Execution."""

from __future__ import annotations

from tailrace.schemas.states import EXECUTION_ENDS, EXECUTION_TRANSITIONS
from tailrace.schemas.types import ExecutionState


def test_every_state_has_transitions() -> None:
    assert set(EXECUTION_TRANSITIONS) == set(ExecutionState)


def test_terminal_state_has_no_transitions_and_every_other_state_may_fail() -> None:
    for state, following in EXECUTION_TRANSITIONS.items():
        assert (not following) == (state in EXECUTION_ENDS)
        assert (ExecutionState.FAILED in following) == (state not in EXECUTION_ENDS)


def test_no_state_transitions_to_itself_or_to_before_deployment() -> None:
    early = {ExecutionState.CREATED, ExecutionState.SCHEDULED, ExecutionState.DEPLOYING}
    for state, following in EXECUTION_TRANSITIONS.items():
        assert state not in following
        if state not in early:
            assert not following & early


def test_canceling_cannot_be_revoked() -> None:
    assert EXECUTION_TRANSITIONS[ExecutionState.CANCELING] == EXECUTION_ENDS
