"""The jobs that a TaskExecutor is connected to, for as long as they have slots here (document 003)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import SlotOffer
from ..roles import (
    JOB_MASTER,
    TASK_EXECUTOR,
    Owed,
    Step,
    address,
)
from .state import (
    JobConnection,
    TaskExecutorState,
)
from .task_slot_table import TaskSlotState


def connect(state: TaskExecutorState, connection: JobConnection) -> TaskExecutorState:
    """Stores a connection, and whether something may be owed to its JobMaster."""
    job_id = connection.job_id
    owes = not connection.registered or (
        (connection.graph is not None and bool(unoffered(state, connection)))
        or job_id not in state.slots.per_job
    )
    owing = state.jobs_owing
    if owes:
        owing = owing.set(job_id, connection.cause)
    elif job_id in owing:
        owing = owing.delete(job_id)
    return replace(state, jobs=state.jobs.set(job_id, connection), jobs_owing=owing)


def unoffered(state: TaskExecutorState, connection: JobConnection) -> list[SlotOffer]:
    """Allocated slots of the job that its JobMaster has not been offered, by number."""
    offers = []
    for allocation_id in state.slots.per_job.get(connection.job_id, frozenset()):
        slot = state.slots.by_allocation(allocation_id)
        if (
            slot is not None
            and slot.state is TaskSlotState.ALLOCATED
            and allocation_id not in connection.offered
        ):
            offers.append(
                SlotOffer(allocation_id=allocation_id, slot_number=slot.number, resource_profile=slot.profile)
            )
    return sorted(offers, key=lambda offer: offer.slot_number)


def _job_greeted(
    state: TaskExecutorState, _record: Record, body: job_master.RegisterTaskManager
) -> TaskExecutorState:
    connection = state.jobs.get(body.job_id)
    return state if connection is None else connect(state, replace(connection, registered=True))


def _slots_offered(
    state: TaskExecutorState, _record: Record, body: job_master.OfferSlots
) -> TaskExecutorState:
    connection = state.jobs.get(body.job_id)
    if connection is None:
        return state
    offered = connection.offered | {offer.allocation_id for offer in body.slots}
    return connect(state, replace(connection, offered=offered))


def _job_manager_known(
    state: TaskExecutorState, record: Record, body: task_executor.JobManagerRegistrationSuccess
) -> TaskExecutorState:
    connection = state.jobs.get(body.job_id)
    if connection is None:
        return state
    return connect(state, replace(connection, graph=body.job_graph, cause=record.offset))


def _job_gone(
    state: TaskExecutorState, _record: Record, body: job_master.DisconnectTaskManager
) -> TaskExecutorState:
    job_id = body.job_id
    if job_id in state.slots.per_job or job_id not in state.jobs:
        # A slot was allocated for the job again between the decision and its place in the log.
        return state
    tasks = state.tasks
    for attempt, task in state.tasks.items():
        if task.job_id == job_id:
            tasks = tasks.delete(attempt)
    owing = state.jobs_owing
    return replace(
        state,
        jobs=state.jobs.delete(job_id),
        jobs_owing=owing.delete(job_id) if job_id in owing else owing,
        tasks=tasks,
    )


def messages(state: TaskExecutorState) -> list[Owed]:
    """RegisterTaskManager, OfferSlots, and DisconnectTaskManager when no slot of the job is left."""
    owed = []
    for job_id, _ in sorted(state.jobs_owing.items(), key=lambda pair: (pair[1], pair[0])):
        connection = state.jobs[job_id]
        recipient = address(JOB_MASTER, job_id)
        if job_id not in state.slots.per_job:
            reason = (
                f"TaskExecutor {address(TASK_EXECUTOR, state.resource_id)} "
                f"has no more allocated slots for job {job_id}."
            )
            goodbye = job_master.DisconnectTaskManager(
                job_id=job_id, resource_id=state.resource_id, reason=reason
            )
            owed.append(Owed(recipient, goodbye, connection.cause))
        elif not connection.registered:
            hello = job_master.RegisterTaskManager(job_id=job_id, resource_id=state.resource_id)
            owed.append(Owed(recipient, hello, connection.cause))
        elif connection.graph is not None and (offers := unoffered(state, connection)):
            offer = job_master.OfferSlots(job_id=job_id, resource_id=state.resource_id, slots=tuple(offers))
            owed.append(Owed(recipient, offer, connection.cause))
    return owed


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.JobManagerRegistrationSuccess: _job_manager_known,
    job_master.RegisterTaskManager: _job_greeted,
    job_master.OfferSlots: _slots_offered,
    job_master.DisconnectTaskManager: _job_gone,
}
