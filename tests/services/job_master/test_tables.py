"""The state machines of a JobMaster, every pair of states: a transition outside the table raises and changes
nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest

from tailrace.schemas import job_master
from tailrace.schemas.event import Record
from tailrace.schemas.states import EXECUTION_ENDS, JOB_ENDS
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.core.role import IllegalEvent, IllegalTransition
from tailrace.services.job_master import JobMaster, execution_states, job_status, slot_pool
from tailrace.services.job_master.checkpoints import stop_phase
from tailrace.services.job_master.checkpoints.stop_phase import StopEvent, StopPhase
from tailrace.services.job_master.slot_pool import SlotStep

from ...graphs import job_graph, source
from ..simulated_cluster.cluster import header
from .driver import Job, running

MACHINES: dict[
    str, tuple[type[Any], Mapping[Any, frozenset[Any]], Callable[[Any, Any], Any], frozenset[Any]]
] = {
    "Execution": (ExecutionState, execution_states.NEXT, execution_states.check_transition, EXECUTION_ENDS),
    "job": (JobStatus, job_status.NEXT, job_status.check_transition, JOB_ENDS),
    "slot": (SlotStep, slot_pool.NEXT, slot_pool.check_transition, frozenset({SlotStep.GONE})),
}
PAIRS = [
    (name, before, after)
    for name, (states, _, _, _) in MACHINES.items()
    for before in states
    for after in states
]


@pytest.mark.parametrize(("name", "before", "after"), PAIRS)
def test_transition_is_in_table_or_rejected(name: str, before: Any, after: Any) -> None:
    _, table, check, _ = MACHINES[name]
    if after in table[before]:
        assert check(before, after) is after
    else:
        with pytest.raises(IllegalTransition, match=f"that is {before.value} can't become {after.value}"):
            check(before, after)


@pytest.mark.parametrize("name", MACHINES)
def test_every_state_has_row_and_terminal_states_have_none(name: str) -> None:
    states, table, _, ends = MACHINES[name]
    assert set(table) == set(states)
    assert {state for state, after in table.items() if not after} == ends


@pytest.mark.parametrize("name", MACHINES)
def test_every_state_is_reachable_and_leads_to_end(name: str) -> None:
    states, table, _, ends = MACHINES[name]
    first = next(iter(states))
    reached = {first}
    while more := {after for state in reached for after in table[state]} - reached:
        reached |= more
    assert reached == set(states)
    for state in reached:
        on = {state}
        while more := {after for item in on for after in table[item]} - on:
            on |= more
        assert on & ends


@pytest.mark.parametrize("job_id", ["", "../other", "a/b", "j.k", "j\n", "\N{SNOWMAN}", "x" * 65])
def test_job_id_rejected_by_dispatcher_starts_no_job(job_id: str) -> None:
    role = JobMaster()
    address = f"job_master/{job_id}"
    output = header("dispatcher", address, epoch=1)
    start = job_master.StartJob(job_id=job_id, job_graph=job_graph(source()), configuration={})
    with pytest.raises(IllegalEvent, match="is no id of a job"):
        role.evolve(role.initial(address), Record(0, output, start))


def test_reported_transitions_of_task_executor_are_in_table() -> None:
    for state in ExecutionState:
        assert execution_states.REPORTED[state] <= execution_states.NEXT[state]
        assert (state in execution_states.DEPLOYED) == bool(execution_states.REPORTED[state])


# The table in the role: what a TaskExecutor reports of an Execution in each state.

HOW: dict[ExecutionState, tuple[ExecutionState, ...]] = {
    ExecutionState.DEPLOYING: (),
    ExecutionState.INITIALIZING: (ExecutionState.INITIALIZING,),
    ExecutionState.RUNNING: (ExecutionState.RUNNING,),
    ExecutionState.CANCELING: (ExecutionState.CANCELING,),
    ExecutionState.FINISHED: (ExecutionState.FINISHED,),
    ExecutionState.CANCELED: (ExecutionState.CANCELED,),
    ExecutionState.FAILED: (ExecutionState.FAILED,),
}


def job_with(state: ExecutionState) -> Job:
    """Returns a job of two subtasks; the first one's Execution is in a state, and current or the one before."""
    job = Job(job_graph(source(parallelism=2)))
    if state is ExecutionState.SCHEDULED:
        return job
    job.assemble()
    job.report(job.execution("source", 1), ExecutionState.RUNNING)
    if state is ExecutionState.CANCELING:
        job.receive("dispatcher", job_master.CancelJob(job_id="j"))
        job.send()
        return job
    for execution_state in HOW[state]:
        job.report(job.execution("source"), execution_state)
    return job


@pytest.mark.parametrize("before", [ExecutionState.SCHEDULED, *HOW])
@pytest.mark.parametrize("after", list(ExecutionState))
def test_report_is_transition_or_illegal(before: ExecutionState, after: ExecutionState) -> None:
    job = job_with(before)
    attempt = min(
        (execution for execution in job.state.executions.values() if execution.subtask_index == 0),
        key=lambda item: item.attempt_number,
    )
    assert attempt.state is before
    known = job.state
    if after in execution_states.REPORTED[before]:
        job.report(attempt, after)
        assert job.state.executions[attempt.execution_attempt_id].state is after
    elif before is ExecutionState.CANCELING and after in execution_states.TOO_LATE:
        job.report(attempt, after)
        assert job.state == known
    else:
        with pytest.raises(IllegalEvent, match=attempt.execution_attempt_id):
            job.report(attempt, after)
        assert job.state is known


def test_report_of_attempt_before_previous_one_is_unknown() -> None:
    job = running(
        job_graph(source()),
        {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "9"},
    )
    first = job.execution("source")
    for _ in range(2):
        job.report(job.execution("source"), ExecutionState.FAILED, "broken")
        job.tick(60)
    assert len(job.state.executions) == 2
    with pytest.raises(IllegalEvent, match="there is no Execution"):
        job.report(first, ExecutionState.FINISHED)


@pytest.mark.parametrize(("phase", "event"), list(product(StopPhase, StopEvent)))
def test_stop_with_savepoint_follows_its_table(phase: StopPhase, event: StopEvent) -> None:
    after = stop_phase.NEXT[phase].get(event)
    if after is not None:
        assert stop_phase.transition(phase, event) is after
    else:
        with pytest.raises(IllegalTransition, match=f"that is {phase.value} can't be {event.value}"):
            stop_phase.transition(phase, event)
