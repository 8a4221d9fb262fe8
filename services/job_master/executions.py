"""The Executions of a job: each is one attempt to run an ExecutionVertex (Flink's Execution).

A retry is a new Execution of the same ExecutionVertex. Two are kept: the current one, and the previous one, which has
ended. Reports about any other are ignored. Attempts are numbered by their submissions: an Execution that was never
submitted keeps its number when it moves to another slot.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ...schemas.states import EXECUTION_ENDS
from ...schemas.types import ExecutionState
from ..core.role import derive_id
from . import execution_states
from .state import Execution, JobMasterState
from .topology import VertexKey

# Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md): these are asked for all the time.
_CREATED: Final = ExecutionState.CREATED
_SCHEDULED: Final = ExecutionState.SCHEDULED
_FINISHED: Final = ExecutionState.FINISHED
_RUNNING: Final = ExecutionState.RUNNING


def new_attempt(
    job_id: str, vertex: VertexKey, attempt_number: int, cause: int, prior: str | None
) -> Execution:
    """A new attempt; its id is derived, so that whoever decides again decides the same."""
    vertex_id, index = vertex
    return Execution(
        execution_attempt_id=derive_id(job_id, "execution", vertex_id, index, attempt_number),
        vertex_id=vertex_id,
        subtask_index=index,
        attempt_number=attempt_number,
        state=_CREATED,
        cause=cause,
        prior=prior,
    )


def transition(state: JobMasterState, execution: Execution, to: ExecutionState, cause: int) -> JobMasterState:
    """An Execution is in another state. Raises ValueError where it can't be."""
    before = execution.state
    execution_states.check_transition(before, to)
    attempt = execution.execution_attempt_id
    executions = state.executions.set(attempt, replace(execution, state=to, cause=cause))
    counts, submissions, checkpoints = state.counts, state.submissions, state.checkpoints
    runs = (to is _RUNNING) - (before is _RUNNING)
    if runs:
        counts = replace(counts, running=counts.running + runs)
    if checkpoints.pending:
        checkpoints = checkpoints.with_attempt_started(
            attempt, execution_name(state, execution), before, to, cause
        )
    if to in EXECUTION_ENDS:
        if before in execution_states.DEPLOYED:
            counts = replace(
                counts,
                unfinished=counts.unfinished - 1,
                finished=counts.finished + (to is _FINISHED),
            )
        elif before is _SCHEDULED:
            counts = replace(counts, scheduled=counts.scheduled - 1)
        if attempt in submissions.cancellations:
            submissions = replace(submissions, cancellations=submissions.cancellations.delete(attempt))
    return replace(
        state, executions=executions, counts=counts, submissions=submissions, checkpoints=checkpoints
    )


def retry_execution(state: JobMasterState, vertex: VertexKey, cause: int) -> JobMasterState:
    """The ExecutionVertex gets its next attempt, SCHEDULED, in the tree in which the last one was."""
    last = state.executions[state.current[vertex]]
    new = new_attempt(state.job_id, vertex, last.attempt_number + 1, cause, prior=last.execution_attempt_id)
    new = replace(new, state=execution_states.check_transition(new.state, _SCHEDULED))
    slot = state.topology.slot_of(vertex)
    sharing = state.sharing
    if slot in sharing.trees:
        sharing = sharing.retry(slot, last.vertex_id, new.execution_attempt_id)
    state = forget_previous(state, last)
    return replace(
        state,
        executions=state.executions.set(new.execution_attempt_id, new),
        current=state.current.set(vertex, new.execution_attempt_id),
        sharing=sharing,
        counts=replace(state.counts, scheduled=state.counts.scheduled + 1),
    )


def forget_previous(state: JobMasterState, execution: Execution) -> JobMasterState:
    """The attempt before this one is forgotten, and what is owed about it."""
    prior = execution.prior
    if prior is None or prior not in state.executions:
        return state
    submissions = state.submissions
    if prior in submissions.cancellations:
        submissions = replace(submissions, cancellations=submissions.cancellations.delete(prior))
    if prior in submissions.ready:
        submissions = replace(submissions, ready=submissions.ready.remove(prior))
    return replace(state, executions=state.executions.delete(prior), submissions=submissions)


def execution_name(state: JobMasterState, execution: Execution) -> str:
    """The task for people: its vertex's name, and the subtask counted from 1."""
    vertex = state.topology.vertices.get(execution.vertex_id)
    return f"{vertex.name if vertex else execution.vertex_id} ({execution.subtask_index + 1})"


def executions_in_order(state: JobMasterState, execution: Execution) -> tuple[int, int]:
    """Sorts Executions by their vertex, sources first, and subtask."""
    vertex = state.topology.vertices.get(execution.vertex_id)
    return vertex.place if vertex else -1, execution.subtask_index
