"""The registrations of TaskExecutors and JobMasters at the ResourceManager."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.outbox import owe, remove_owed
from ..core.role import Step, derive_id
from .owed_events import (
    OwedJobManagerRegistrationSuccess,
    OwedTaskExecutorRegistrationRejection,
    OwedTaskExecutorRegistrationSuccess,
)
from .state import JobMasterRegistration, ResourceManagerState, WorkerRegistration
from .worker_lifecycle import dismiss_worker, drop_worker, lose_worker, remove_left_worker
from .worker_names import is_given
from .worker_pool import Worker, WorkerState


def on_register_job_manager(
    state: ResourceManagerState, record: Record, body: resource_manager.RegisterJobManager
) -> ResourceManagerState:
    state = replace(
        state, job_masters=state.job_masters.set(body.job_id, JobMasterRegistration(record.offset))
    )
    return owe(state, OwedJobManagerRegistrationSuccess(record.offset, body.job_id))


def on_disconnect_job_manager(
    state: ResourceManagerState, record: Record, body: resource_manager.DisconnectJobManager
) -> ResourceManagerState:
    """Forgets the job's open requests. Its slots become free when their TaskExecutors report it."""
    job_id = body.job_id
    if job_id not in state.job_masters:
        return state
    manager = state.slot_manager
    for request in manager.requests.open_requests(job_id):
        manager = manager.forget(request.allocation_id)
    state = replace(state, job_masters=state.job_masters.delete(job_id), slot_manager=manager)
    return remove_owed(state, OwedJobManagerRegistrationSuccess, job_id)


def on_register_task_executor(
    state: ResourceManagerState, record: Record, body: resource_manager.RegisterTaskExecutor
) -> ResourceManagerState:
    resource_id, offset, time = body.resource_id, record.offset, record.header.time
    before = state.pool.get(resource_id)
    if before is not None and before.state in (WorkerState.RELEASING, WorkerState.STOPPING):
        reason = f"worker {resource_id} is being stopped: {before.reason}"
        return owe(state, OwedTaskExecutorRegistrationRejection(offset, resource_id, reason))
    if before is None and is_given(resource_id, state.pool.numbered):
        # Its process was found to have ended, for example because its node is cut off: its resources are given away.
        reason = f"worker {resource_id} has ended, and its name is not used again"
        return owe(state, OwedTaskExecutorRegistrationRejection(offset, resource_id, reason))
    registration = WorkerRegistration(
        resource_id=resource_id,
        instance_id=derive_id(resource_id, offset),
        address=body.address,
        hardware=body.hardware,
        cause=offset,
        process_mark=body.process_mark,
        diagnostics_address=body.diagnostics_address,
    )
    known = resource_id in state.slot_manager.slots.workers
    worker = Worker(
        resource_id=resource_id,
        state=WorkerState.REGISTERED,
        cause=offset,
        since=time,
        driven=before is not None and before.driven,
        number_of_slots=body.number_of_slots,
        expected=0 if known else max(0, body.number_of_slots),
        address=body.address,
        slot_profile=None if before is None else before.slot_profile,
    )
    pool = replace(state.pool.put(worker), failed=None)
    if worker.driven:
        pool = pool.with_success(worker, body.default_slot_profile)
    state = replace(
        state,
        workers=state.workers.set(resource_id, registration),
        gone=state.gone.without(resource_id),
        pool=pool,
        outbox=state.outbox.remove(OwedTaskExecutorRegistrationRejection, resource_id).owe(
            OwedTaskExecutorRegistrationSuccess(offset, resource_id, registration.instance_id)
        ),
    )
    manager, is_excluded = state.slot_manager, state.find_quarantine(resource_id) is not None
    slots = manager.slots.exclude(resource_id, is_excluded=is_excluded)
    state = replace(state, slot_manager=replace(manager, slots=slots))
    ending = state.ending
    if ending is None or ending.is_over:
        return state
    # It registers too late: it is asked to leave, like the others before.
    return dismiss_worker(state, resource_id, ending.reason, ending.cause)


def on_disconnect_task_manager(
    state: ResourceManagerState, record: Record, body: resource_manager.DisconnectTaskManager
) -> ResourceManagerState:
    resource_id = body.resource_id
    state = remove_left_worker(state, resource_id)
    if resource_id not in state.workers:
        return state
    reason = f"TaskExecutor {resource_id} has left: {body.reason}"
    if state.slot_manager.allocations_of(resource_id):
        # Jobs have lost slots with it: all roles are informed at once.
        return lose_worker(state, resource_id, reason, record)
    return drop_worker(state, resource_id, reason, record)


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.RegisterTaskExecutor: on_register_task_executor,
    resource_manager.DisconnectTaskManager: on_disconnect_task_manager,
    resource_manager.RegisterJobManager: on_register_job_manager,
    resource_manager.DisconnectJobManager: on_disconnect_job_manager,
}
