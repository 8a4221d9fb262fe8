"""The jobs that a TaskExecutor is connected to, as long as they have slots here."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.outbox import remove_owed
from ..core.role import Step
from . import checkpoints
from .owed_events import OwedToJobMaster
from .resources import JobConnection
from .state import TaskExecutorState, connect
from .task_slot_table import TaskSlotState


def reconnect(state: TaskExecutorState, connection: JobConnection, cause: int) -> TaskExecutorState:
    """Registers and offers slots again: the JobMaster may not know this TaskExecutor any more."""
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
    graph = body.job_graph_blob or body.job_graph
    return connect(state, replace(connection, answered=True, graph=graph, cause=record.offset))


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
    state = replace(checkpoints.forget_job(state, job_id), jobs=state.jobs.delete(job_id))
    return remove_owed(state, OwedToJobMaster, job_id)


STEPS: Mapping[type[Body], Step[TaskExecutorState]] = {
    task_executor.JobManagerRegistrationSuccess: on_job_manager_registration_success,
    job_master.RegisterTaskManager: on_register_task_manager,
    job_master.OfferSlots: on_offer_slots,
    job_master.DisconnectTaskManager: on_disconnect_task_manager,
}
