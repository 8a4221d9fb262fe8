"""The Executions of a job: one attempt each to run an ExecutionVertex, and how the job's status follows theirs."""

from __future__ import annotations

from msgspec.structs import replace

from ...schemas.event import Record
from ...schemas.states import EXECUTION_ENDS, JOB_ENDS
from ...schemas.types import ExecutionState, JobStatus
from ..roles import IllegalEvent
from . import slot_pool
from .state import Announcement, Execution, JobMasterState, Progress, SlotStep

_END_OF = {JobStatus.CANCELLING: JobStatus.CANCELED, JobStatus.FAILING: JobStatus.FAILED}


def deployed(state: JobMasterState, execution: Execution) -> JobMasterState:
    """SubmitTask has been said."""
    if execution.execution_attempt_id in state.executions:
        return state
    slot = state.slots.get(execution.allocation_id)
    if slot is None or slot.step is SlotStep.GONE:
        # The slot was lost while this was on its way into the log: the job fails, and nobody will answer.
        lost = replace(execution, state=ExecutionState.FAILED)
        return replace(state, executions=state.executions.set(lost.execution_attempt_id, lost))
    state = replace(
        state,
        executions=state.executions.set(execution.execution_attempt_id, execution),
        unfinished=state.unfinished + 1,
    )
    if state.status is JobStatus.CREATED and len(state.executions) == state.vertices:
        return with_status(state, JobStatus.RUNNING, execution.cause)
    if state.status is not JobStatus.CREATED:
        # The job was cancelled or failed while this was on its way into the log.
        return _cancel(state, execution, execution.cause)
    return state


def changed(
    state: JobMasterState, record: Record, execution_attempt_id: str, to: ExecutionState, failure: str | None
) -> JobMasterState:
    """A TaskExecutor reports a state. Raises IllegalEvent for an unknown Execution or one that has ended."""
    execution = state.executions.get(execution_attempt_id)
    if execution is None:
        raise IllegalEvent(record, state.status.value, f"there is no Execution {execution_attempt_id}")
    if execution.state in EXECUTION_ENDS:
        raise IllegalEvent(record, execution.state.value, f"Execution {execution_attempt_id} has ended")
    state = _moved(state, execution, to)
    if to is ExecutionState.FAILED:
        where = f"{_vertex_name(state, execution.vertex_id)} ({execution.subtask_index + 1})"
        return failed(
            state, f"{where} on {execution.resource_id}: {failure or 'no reason given'}", record.offset
        )
    if to is ExecutionState.CANCELED and state.status in (JobStatus.CREATED, JobStatus.RUNNING):
        return failed(state, f"{execution.resource_id} cancelled a task that it was to run", record.offset)
    return settled(state, record.offset)


def slot_lost(state: JobMasterState, allocation_id: str, reason: str, cause: int) -> JobMasterState:
    """A slot is gone, and what ran in it; the job can't go on without."""
    in_it = [each for each in state.executions.values() if each.allocation_id == allocation_id]
    state = slot_pool.gone(state, allocation_id)
    for execution in in_it:
        if execution.state not in EXECUTION_ENDS:
            state = _moved(state, execution, ExecutionState.FAILED)
    if state.status in JOB_ENDS:
        return settled(state, cause)
    return failed(state, reason, cause)


def slot_not_allocated(state: JobMasterState, allocation_id: str, reason: str, cause: int) -> JobMasterState:
    """The ResourceManager has no slot for the job; unless a TaskExecutor offered it meanwhile, the job fails."""
    slot = state.slots.get(allocation_id)
    if slot is None or slot.step not in (SlotStep.WANTED, SlotStep.PENDING):
        return state
    return failed(slot_pool.gone(state, allocation_id), reason, cause)


def failed(state: JobMasterState, reason: str, cause: int) -> JobMasterState:
    """The job fails: what still runs is cancelled first."""
    if state.status in JOB_ENDS or state.status in _END_OF:
        return settled(state, cause)
    state = with_status(replace(state, reason=reason), JobStatus.FAILING, cause)
    return settled(_cancel_all(state, cause), cause)


def cancelled(state: JobMasterState, cause: int) -> JobMasterState:
    """The job is to be cancelled."""
    if state.status in JOB_ENDS or state.status in _END_OF:
        return state
    return settled(_cancel_all(with_status(state, JobStatus.CANCELLING, cause), cause), cause)


def settled(state: JobMasterState, cause: int) -> JobMasterState:
    """When no Execution is left, the job ends and gives back what it holds."""
    if state.unfinished or state.status in JOB_ENDS:
        return state
    if state.status in _END_OF:
        end = _END_OF[state.status]
    elif state.status is JobStatus.RUNNING:
        end = JobStatus.FINISHED
    else:
        return state
    state = slot_pool.give_back_all(with_status(state, end, cause), cause)
    connections, owing = state.connections, state.connections_owing
    for resource_id, connection in state.connections.items():
        connections = connections.set(resource_id, replace(connection, farewell=Progress.OWED, cause=cause))
        owing = owing.set(resource_id, cause)
    return replace(
        state,
        connections=connections,
        connections_owing=owing,
        deletion=Progress.OWED if state.channels else None,
        terminal=Progress.OWED,
        goodbye=Progress.OWED,
    )


def with_status(state: JobMasterState, status: JobStatus, cause: int) -> JobMasterState:
    """The job is in another state, which clients are to be told."""
    announcement = Announcement(status, cause)
    return replace(state, status=status, cause=cause, announcements=(*state.announcements, announcement))


def cancel_said(state: JobMasterState, execution_attempt_id: str) -> JobMasterState:
    """CancelTask has been said."""
    if execution_attempt_id not in state.cancellations:
        return state
    state = replace(state, cancellations=state.cancellations.delete(execution_attempt_id))
    execution = state.executions[execution_attempt_id]
    if execution.state in EXECUTION_ENDS:
        return state
    return _moved(state, execution, ExecutionState.CANCELING)


def _cancel_all(state: JobMasterState, cause: int) -> JobMasterState:
    for execution in list(state.executions.values()):
        state = _cancel(state, execution, cause)
    return state


def _cancel(state: JobMasterState, execution: Execution, cause: int) -> JobMasterState:
    if execution.state in EXECUTION_ENDS or execution.state is ExecutionState.CANCELING:
        return state
    return replace(state, cancellations=state.cancellations.set(execution.execution_attempt_id, cause))


def _moved(state: JobMasterState, execution: Execution, to: ExecutionState) -> JobMasterState:
    attempt = execution.execution_attempt_id
    ends = to in EXECUTION_ENDS
    cancellations = state.cancellations
    if ends and attempt in cancellations:
        cancellations = cancellations.delete(attempt)
    return replace(
        state,
        executions=state.executions.set(attempt, replace(execution, state=to)),
        unfinished=state.unfinished - 1 if ends else state.unfinished,
        cancellations=cancellations,
    )


def _vertex_name(state: JobMasterState, vertex_id: str) -> str:
    vertices = state.graph.vertices if state.graph else ()
    return next((vertex.name for vertex in vertices if vertex.vertex_id == vertex_id), vertex_id)
