"""The phases of a deployment's queries: their table holds all that can happen, and its head says the same."""

from __future__ import annotations

import pytest
from state_tables import read_table

from tailrace.pipelines.runtime.task_runtime import query_phase
from tailrace.pipelines.runtime.task_runtime.query_phase import NEXT, QueryEvent, QueryPhase, transition

COLUMNS = (
    QueryEvent.WATCH,
    QueryEvent.START,
    QueryEvent.CONNECT,
    QueryEvent.SWITCH,
    QueryEvent.NOTHING_TO_READ,
    QueryEvent.FAIL,
)


def test_table_of_module_head_is_that_of_the_code() -> None:
    rows = read_table(query_phase, QueryPhase, COLUMNS)
    for phase in set(QueryPhase) - {QueryPhase.STOPPED}:
        assert rows[phase] == tuple(NEXT[phase].get(event) for event in COLUMNS)
    assert not NEXT[QueryPhase.STOPPED]


@pytest.mark.parametrize("phase", QueryPhase)
@pytest.mark.parametrize("event", COLUMNS)
def test_event_that_is_not_in_the_table_is_refused(phase: QueryPhase, event: QueryEvent) -> None:
    if event in NEXT[phase]:
        assert transition(phase, event) is NEXT[phase][event]
    else:
        with pytest.raises(ValueError, match=phase):
            transition(phase, event)
    assert transition(phase, QueryEvent.STOP) is QueryPhase.STOPPED


def test_switch_begins_only_where_all_tasks_of_the_query_are_connected() -> None:
    # In the others no query runs.
    assert {phase for phase in QueryPhase if QueryEvent.SWITCH in NEXT[phase]} == {
        QueryPhase.RUNNING,
        QueryPhase.MEASURING,
        QueryPhase.PAUSED,
        QueryPhase.UNUSED,
    }
