"""The TaskExecutors that hold slots for the job (document 003)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.states import JOB_ENDS
from ..roles import (
    TASK_EXECUTOR,
    Owed,
    Step,
    address,
    instance_of,
)
from . import executions
from .state import Connection, JobMasterState, Progress, SlotStep


def _task_manager_registers(
    state: JobMasterState, record: Record, body: job_master.RegisterTaskManager
) -> JobMasterState:
    resource_id, cause = body.resource_id, record.offset
    farewell = Progress.OWED if state.status in JOB_ENDS else None
    return _connect(state, Connection(resource_id, Progress.OWED, cause, farewell))


def _connection_answered(
    state: JobMasterState, record: Record, _body: task_executor.JobManagerRegistrationSuccess
) -> JobMasterState:
    connection = state.connections.get(instance_of(record.header.recipient))
    if connection is None or (connection.cause != record.header.cause and connection.farewell is None):
        # It left, or registered once more, between the decision and its place in the log.
        return state
    return _connect(state, replace(connection, registration=Progress.DONE))


def _connection_ended(
    state: JobMasterState, record: Record, _body: task_executor.DisconnectJobManager
) -> JobMasterState:
    connection = state.connections.get(instance_of(record.header.recipient))
    return state if connection is None else _connect(state, replace(connection, farewell=Progress.SAID))


def _connect(state: JobMasterState, connection: Connection) -> JobMasterState:
    resource_id = connection.resource_id
    owing = state.connections_owing
    if Progress.OWED in (connection.registration, connection.farewell):
        owing = owing.set(resource_id, connection.cause)
    elif resource_id in owing:
        owing = owing.delete(resource_id)
    return replace(state, connections=state.connections.set(resource_id, connection), connections_owing=owing)


def _task_manager_leaves(
    state: JobMasterState, record: Record, body: job_master.DisconnectTaskManager
) -> JobMasterState:
    resource_id = body.resource_id
    if resource_id not in state.connections:
        return state
    owing = state.connections_owing
    state = replace(
        state,
        connections=state.connections.delete(resource_id),
        connections_owing=owing.delete(resource_id) if resource_id in owing else owing,
    )
    held = [
        slot.allocation_id
        for slot in state.slots.values()
        if slot.resource_id == resource_id and slot.step in (SlotStep.OFFERED, SlotStep.ALLOCATED)
    ]
    for allocation_id in sorted(held):
        state = executions.slot_lost(state, allocation_id, body.reason, record.offset)
    return state


def answers(state: JobMasterState) -> list[Owed]:
    """JobManagerRegistrationSuccess, in the order of the registrations."""
    owed = []
    for resource_id, _ in sorted(state.connections_owing.items(), key=lambda pair: (pair[1], pair[0])):
        connection = state.connections[resource_id]
        if connection.registration is Progress.OWED and state.graph is not None:
            body = task_executor.JobManagerRegistrationSuccess(job_id=state.job_id, job_graph=state.graph)
            owed.append(Owed(address(TASK_EXECUTOR, resource_id), body, connection.cause))
    return owed


STEPS: Mapping[type[Body], Step[JobMasterState]] = {
    job_master.RegisterTaskManager: _task_manager_registers,
    job_master.DisconnectTaskManager: _task_manager_leaves,
    task_executor.JobManagerRegistrationSuccess: _connection_answered,
    task_executor.DisconnectJobManager: _connection_ended,
}
