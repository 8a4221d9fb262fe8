"""The jobs that a TaskExecutor is connected to, as long as they have slots here."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import SlotOffer
from ..core.immutable_maps import delete_key
from ..core.role import JOB_MASTER, TASK_EXECUTOR, OutgoingEvent, Step, address
from . import checkpoints
from .state import (
    JobConnection,
    TaskExecutorState,
    connect,
)
from .task_slot_table import TaskSlotState


def reconnect(state: TaskExecutorState, connection: JobConnection, cause: int) -> TaskExecutorState:
    """Registers and offers slots again: the JobMaster may have forgotten this TaskExecutor."""
    allocated = [
        slot.allocation_id or ""
        for slot in state.slots.slots_of_job(connection.job_id)
        if slot.state is TaskSlotState.ALLOCATED
    ]
    again = replace(
        connection, cause=cause, registration_sent=False, answered=False, slots_to_offer=frozenset(allocated)
    )
    return connect(state, again)


def on_register_task_manager(
    state: TaskExecutorState, _record: Record, body: job_master.RegisterTaskManager
) -> TaskExecutorState:
    connection = state.jobs.get(body.job_id)
    return state if connection is None else connect(state, replace(connection, registration_sent=True))


def on_offer_slots(
    state: TaskExecutorState, _record: Record, body: job_master.OfferSlots
) -> TaskExecutorState:
    connection = state.jobs.get(body.job_id)
    if connection is None:
        return state
    unoffered = connection.slots_to_offer.difference(offer.allocation_id for offer in body.slots)
    return connect(state, replace(connection, slots_to_offer=unoffered))


def on_job_manager_registration_success(
    state: TaskExecutorState, record: Record, body: task_executor.JobManagerRegistrationSuccess
) -> TaskExecutorState:
    connection = state.jobs.get(body.job_id)
    if connection is None:
        return state
    return connect(state, replace(connection, answered=True, graph=body.job_graph, cause=record.offset))


def on_disconnect_task_manager(
    state: TaskExecutorState, record: Record, body: job_master.DisconnectTaskManager
) -> TaskExecutorState:
    job_id = body.job_id
    connection = state.jobs.get(job_id)
    if connection is None:
        return state
    if job_id in state.slots.per_job:
        # A slot was allocated for the job again between the decision and its place in the log.
        return reconnect(state, connection, record.offset)
    owing = state.jobs_owing
    return replace(
        checkpoints.forget_job(state, job_id),
        jobs=state.jobs.delete(job_id),
        jobs_owing=delete_key(owing, job_id),
    )


def outgoing_events(state: TaskExecutorState) -> list[OutgoingEvent]:
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
            owed.append(OutgoingEvent(recipient, goodbye, connection.cause))
        elif not connection.registration_sent:
            hello = job_master.RegisterTaskManager(job_id=job_id, resource_id=state.resource_id)
            owed.append(OutgoingEvent(recipient, hello, connection.cause))
        else:
            offer = job_master.OfferSlots(
                job_id=job_id, resource_id=state.resource_id, slots=_offers(state, connection)
            )
            owed.append(OutgoingEvent(recipient, offer, connection.cause))
    return owed


def _offers(state: TaskExecutorState, connection: JobConnection) -> tuple[SlotOffer, ...]:
    slots = sorted((state.slots.allocated[each], each) for each in connection.slots_to_offer)
    return tuple(
        SlotOffer(
            allocation_id=allocation_id,
            slot_number=number,
            resource_profile=state.slots.slots[number].profile,
        )
        for number, allocation_id in slots
    )


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.JobManagerRegistrationSuccess: on_job_manager_registration_success,
    job_master.RegisterTaskManager: on_register_task_manager,
    job_master.OfferSlots: on_offer_slots,
    job_master.DisconnectTaskManager: on_disconnect_task_manager,
}
