"""The states of a ZooKeeper session: their table holds all that can happen, and its head says the same."""

from __future__ import annotations

import pytest
from state_tables import read_table

from tailrace.services.election import session_state
from tailrace.services.election.session_state import NEXT, SessionEvent, SessionState, transition


def test_table_of_module_head_is_that_of_the_code() -> None:
    assert read_table(session_state, SessionState, list(SessionEvent)) == {
        state: tuple(NEXT[state].get(event) for event in SessionEvent) for state in SessionState
    }


def test_lease_cannot_lapse_where_nothing_is_held() -> None:
    with pytest.raises(ValueError, match="NEW"):
        transition(SessionState.NEW, SessionEvent.LEASE_LAPSED)


@pytest.mark.parametrize("event", SessionEvent)
def test_only_a_proof_makes_a_session_usable(event: SessionEvent) -> None:
    assert all(
        (transition(state, event) is SessionState.HELD) is (event is SessionEvent.PROVED)
        for state in SessionState
        if event in NEXT[state]
    )
