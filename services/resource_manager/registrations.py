"""Who is registered at the ResourceManager: TaskExecutors and JobMasters (documents 000 and 004)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ..roles import (
    JOB_MASTER,
    TASK_EXECUTOR,
    Owed,
    Step,
    address,
    derive_id,
    instance_of,
)
from .slots import lose
from .state import ResourceManagerState, WorkerRegistration


def _job_master_registers(
    state: ResourceManagerState, record: Record, body: resource_manager.RegisterJobManager
) -> ResourceManagerState:
    return replace(
        state,
        job_masters=state.job_masters.set(body.job_id, record.offset),
        unanswered_job_masters=state.unanswered_job_masters.set(body.job_id, record.offset),
    )


def _job_master_answered(
    state: ResourceManagerState, _record: Record, body: job_master.JobManagerRegistrationSuccess
) -> ResourceManagerState:
    if body.job_id not in state.unanswered_job_masters:
        return state
    return replace(state, unanswered_job_masters=state.unanswered_job_masters.delete(body.job_id))


def _job_master_leaves(
    state: ResourceManagerState, _record: Record, body: resource_manager.DisconnectJobManager
) -> ResourceManagerState:
    if body.job_id not in state.job_masters:
        return state
    return replace(state, job_masters=state.job_masters.delete(body.job_id))


def _worker_registers(
    state: ResourceManagerState, record: Record, body: resource_manager.RegisterTaskExecutor
) -> ResourceManagerState:
    worker = WorkerRegistration(
        resource_id=body.resource_id,
        instance_id=derive_id(body.resource_id, record.offset),
        address=body.address,
        hardware=body.hardware,
        cause=record.offset,
    )
    ending = state.ending
    if ending is not None and not ending.over:
        # It comes too late: it is told to leave, as the others were.
        ending = replace(ending, leaving=ending.leaving.set(body.resource_id, False))
    return replace(
        state,
        workers=state.workers.set(body.resource_id, worker),
        unanswered_workers=state.unanswered_workers.set(body.resource_id, record.offset),
        ending=ending,
    )


def _worker_answered(
    state: ResourceManagerState, record: Record, _body: task_executor.TaskExecutorRegistrationSuccess
) -> ResourceManagerState:
    resource_id = instance_of(record.header.recipient)
    cause = state.unanswered_workers.get(resource_id)
    if cause is None or cause != record.header.cause:
        # It registered once more between the decision and its place in the log: that one is owed an answer still.
        return state
    return replace(state, unanswered_workers=state.unanswered_workers.delete(resource_id))


def _worker_leaves(
    state: ResourceManagerState, record: Record, body: resource_manager.DisconnectTaskManager
) -> ResourceManagerState:
    resource_id = body.resource_id
    if resource_id not in state.workers:
        return state
    unanswered = state.unanswered_workers
    ending = state.ending
    if ending is not None and resource_id in ending.leaving:
        ending = replace(ending, leaving=ending.leaving.delete(resource_id))
    state = replace(
        state,
        workers=state.workers.delete(resource_id),
        unanswered_workers=unanswered.delete(resource_id) if resource_id in unanswered else unanswered,
        ending=ending,
    )
    gone = state.slots.allocations_of(resource_id)
    reason = f"TaskExecutor {resource_id} has left: {body.reason}"
    return lose(state, state.slots.without(resource_id), resource_id, gone, reason, record.offset)


def _told_to_leave(
    state: ResourceManagerState, record: Record, _body: task_executor.DisconnectResourceManager
) -> ResourceManagerState:
    resource_id = instance_of(record.header.recipient)
    if state.ending is None or resource_id not in state.ending.leaving:
        return state
    return replace(state, ending=replace(state.ending, leaving=state.ending.leaving.set(resource_id, True)))


def answers(state: ResourceManagerState) -> list[Owed]:
    """TaskExecutorRegistrationSuccess and JobManagerRegistrationSuccess, in the order of the registrations."""
    owed: list[tuple[int, Owed]] = []
    for resource_id, cause in state.unanswered_workers.items():
        instance_id = state.workers[resource_id].instance_id
        body = task_executor.TaskExecutorRegistrationSuccess(instance_id=instance_id)
        owed.append((cause, Owed(address(TASK_EXECUTOR, resource_id), body, cause)))
    for job_id, cause in state.unanswered_job_masters.items():
        answer = job_master.JobManagerRegistrationSuccess(job_id=job_id)
        owed.append((cause, Owed(address(JOB_MASTER, job_id), answer, cause)))
    return [each for _, each in sorted(owed, key=lambda pair: pair[0])]


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.RegisterTaskExecutor: _worker_registers,
    resource_manager.DisconnectTaskManager: _worker_leaves,
    resource_manager.RegisterJobManager: _job_master_registers,
    resource_manager.DisconnectJobManager: _job_master_leaves,
    task_executor.TaskExecutorRegistrationSuccess: _worker_answered,
    task_executor.DisconnectResourceManager: _told_to_leave,
    job_master.JobManagerRegistrationSuccess: _job_master_answered,
}
