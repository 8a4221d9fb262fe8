"""Putting the Executions of a job into its slots, following them, and cancelling them (document 000)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...pipelines.graph.execution_graph import ExecutionGraph
from ...schemas import job_master, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import ExecutionState, JobStatus
from ..roles import (
    TASK_EXECUTOR,
    Owed,
    Step,
    address,
    derive_id,
    instance_of,
)
from . import executions
from .state import Execution, JobMasterState, Progress


def _deployed(state: JobMasterState, record: Record, body: task_executor.SubmitTask) -> JobMasterState:
    return executions.deployed(state, _execution(record, body))


def _execution(record: Record, body: task_executor.SubmitTask) -> Execution:
    return Execution(
        execution_attempt_id=body.execution_attempt_id,
        vertex_id=body.vertex_id,
        subtask_index=body.subtask_index,
        attempt_number=body.attempt_number,
        allocation_id=body.allocation_id,
        resource_id=instance_of(record.header.recipient),
        state=ExecutionState.DEPLOYING,
        cause=record.offset,
    )


def _task_changed(
    state: JobMasterState, record: Record, body: job_master.UpdateTaskExecutionState
) -> JobMasterState:
    return executions.changed(state, record, body.execution_attempt_id, body.execution_state, body.failure)


def _cancel_said(state: JobMasterState, _record: Record, body: task_executor.CancelTask) -> JobMasterState:
    return executions.cancel_said(state, body.execution_attempt_id)


def submissions(state: JobMasterState) -> list[Owed]:
    """SubmitTask for every ExecutionVertex without an Execution, once all slots and channels are there."""
    ready = state.status is JobStatus.CREATED and not state.missing_slots and state.channels is Progress.DONE
    if not ready or state.graph is None:
        return []
    plan = ExecutionGraph.attach(state.job_id, state.graph)
    slots = {(slot.group, slot.index): slot for slot in state.slots.values()}
    owed = []
    for vertex in plan.vertices.values():
        group = vertex.job_vertex.slot_sharing_group
        in_slots = [slots[(group, index)] for index in range(vertex.parallelism)]
        together = Counter(slot.resource_id for slot in in_slots)
        for index, slot in enumerate(in_slots):
            attempt = derive_id(state.job_id, "execution", vertex.vertex_id, index, 0)
            if attempt in state.executions:
                continue
            body = task_executor.SubmitTask(
                job_id=state.job_id,
                vertex_id=vertex.vertex_id,
                subtask_index=index,
                attempt_number=0,
                execution_attempt_id=attempt,
                allocation_id=slot.allocation_id,
                deployment_id=derive_id(state.job_id, "deployment", vertex.vertex_id, slot.resource_id, 0),
                deployment_size=together[slot.resource_id],
            )
            owed.append(Owed(address(TASK_EXECUTOR, slot.resource_id or ""), body, state.cause))
    return owed


def cancellations(state: JobMasterState) -> list[Owed]:
    """CancelTask for every Execution that is to end."""
    owed = []
    for attempt, cause in sorted(state.cancellations.items(), key=lambda pair: (pair[1], pair[0])):
        execution = state.executions[attempt]
        body = task_executor.CancelTask(job_id=state.job_id, execution_attempt_id=attempt)
        owed.append(Owed(address(TASK_EXECUTOR, execution.resource_id), body, cause))
    return owed


STEPS: Mapping[type[Body], Step[JobMasterState]] = {
    job_master.UpdateTaskExecutionState: _task_changed,
    task_executor.SubmitTask: _deployed,
    task_executor.CancelTask: _cancel_said,
}
