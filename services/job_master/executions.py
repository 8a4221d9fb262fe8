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
from ..core.outbox import owe, remove_owed
from ..core.role import derive_id
from . import execution_states
from .owed_events import OwedCancelTask
from .state import Execution, StartedJob
from .topology import VertexKey

# Cached members: Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md), and these are
# needed often.
_CREATED: Final = ExecutionState.CREATED
_SCHEDULED: Final = ExecutionState.SCHEDULED
_FINISHED: Final = ExecutionState.FINISHED
_RUNNING: Final = ExecutionState.RUNNING


def new_attempt(
    job_id: str, vertex: VertexKey, attempt_number: int, cause: int, prior: str | None
) -> Execution:
    """Returns a new attempt. Its id is derived, so that a recomputed decision has the same id. It ends with the subtask
    and the attempt, as Flink's ExecutionAttemptID does: so ids that stand together in an event take little space."""
    vertex_id, index = vertex
    return Execution(
        execution_attempt_id=f"{derive_id(job_id, vertex_id)[:16]}-{index}-{attempt_number}",
        vertex_id=vertex_id,
        subtask_index=index,
        attempt_number=attempt_number,
        state=_CREATED,
        cause=cause,
        prior=prior,
    )


def transition(state: StartedJob, execution: Execution, to: ExecutionState, cause: int) -> StartedJob:
    """Changes the state of an Execution. Raises ValueError if the transition is illegal."""
    before = execution.state
    execution_states.check_transition(before, to)
    attempt = execution.execution_attempt_id
    executions = state.executions.set(attempt, replace(execution, state=to, cause=cause))
    counts, checkpoints = state.counts, state.checkpoints
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
        state = remove_owed(state, OwedCancelTask, attempt)
    return replace(state, executions=executions, counts=counts, checkpoints=checkpoints)


def retry_execution(state: StartedJob, vertex: VertexKey, cause: int) -> StartedJob:
    """Creates the next attempt of the ExecutionVertex, SCHEDULED, in the slot tree of the last one."""
    last = state.executions[state.current_attempts[vertex]]
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
        current_attempts=state.current_attempts.set(vertex, new.execution_attempt_id),
        sharing=sharing,
        counts=replace(state.counts, scheduled=state.counts.scheduled + 1),
    )


def request_cancel(state: StartedJob, execution: Execution, cause: int) -> StartedJob:
    """Owes CancelTask to the TaskExecutor of an Execution."""
    return owe(state, OwedCancelTask(cause, execution.execution_attempt_id, execution.resource_id or ""))


def forget_previous(state: StartedJob, execution: Execution) -> StartedJob:
    """Forgets the previous attempt, and the events owed about it."""
    prior = execution.prior
    if prior is None or prior not in state.executions:
        return state
    state = remove_owed(state, OwedCancelTask, prior)
    return replace(state, executions=state.executions.delete(prior))


def execution_name(state: StartedJob, execution: Execution) -> str:
    """Returns the name of a task for messages: its vertex's name, and the subtask counted from 1."""
    vertex = state.topology.vertices.get(execution.vertex_id)
    return f"{vertex.name if vertex else execution.vertex_id} ({execution.subtask_index + 1})"


def executions_in_order(state: StartedJob, execution: Execution) -> tuple[int, int]:
    """Sorts Executions by their vertex, sources first, and subtask."""
    vertex = state.topology.vertices.get(execution.vertex_id)
    return vertex.place if vertex else -1, execution.subtask_index
