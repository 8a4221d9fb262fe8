"""Who is registered at the ResourceManager: TaskExecutors and JobMasters."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import job_master, resource_manager, task_executor
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.immutable_maps import delete_key
from ..core.role import JOB_MASTER, TASK_EXECUTOR, OutgoingEvent, Step, address, derive_id, instance_of
from .state import Reason, ResourceManagerState, WorkerRegistration
from .worker_lifecycle import dismiss_worker, drop_worker, lose_worker, remove_left_worker
from .worker_pool import Worker, WorkerState


def on_register_job_manager(
    state: ResourceManagerState, record: Record, body: resource_manager.RegisterJobManager
) -> ResourceManagerState:
    return replace(
        state,
        job_masters=state.job_masters.set(body.job_id, record.offset),
        unanswered_job_masters=state.unanswered_job_masters.set(body.job_id, record.offset),
    )


def on_job_manager_registration_success(
    state: ResourceManagerState, _record: Record, body: job_master.JobManagerRegistrationSuccess
) -> ResourceManagerState:
    if body.job_id not in state.unanswered_job_masters:
        return state
    return replace(state, unanswered_job_masters=state.unanswered_job_masters.delete(body.job_id))


def on_disconnect_job_manager(
    state: ResourceManagerState, record: Record, body: resource_manager.DisconnectJobManager
) -> ResourceManagerState:
    """Forgets the job's open requests. Its slots become free when their TaskExecutors report it."""
    job_id = body.job_id
    if job_id not in state.job_masters:
        return state
    manager = state.slot_manager
    for request in manager.requests.open_requests(job_id):
        manager = manager.forget(request.allocation_id, record.header.time)
    unanswered = state.unanswered_job_masters
    return replace(
        state,
        job_masters=state.job_masters.delete(job_id),
        unanswered_job_masters=delete_key(unanswered, job_id),
        slot_manager=manager,
    )


def on_register_task_executor(
    state: ResourceManagerState, record: Record, body: resource_manager.RegisterTaskExecutor
) -> ResourceManagerState:
    resource_id, offset, time = body.resource_id, record.offset, record.header.time
    before = state.pool.get(resource_id)
    if before is not None and before.state in (WorkerState.RELEASING, WorkerState.STOPPING):
        reason = Reason(f"worker {resource_id} is being stopped: {before.reason}", offset)
        return replace(state, rejections=state.rejections.set(resource_id, reason))
    registration = WorkerRegistration(
        resource_id=resource_id,
        instance_id=derive_id(resource_id, offset),
        address=body.address,
        hardware=body.hardware,
        cause=offset,
        process_mark=body.process_mark,
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
    )
    rejections, pool = state.rejections, replace(state.pool.put(worker), failed=None)
    if worker.driven:
        pool = replace(pool, profile=body.default_slot_profile)
    state = replace(
        state,
        workers=state.workers.set(resource_id, registration),
        pool=pool,
        unanswered_workers=state.unanswered_workers.set(resource_id, offset),
        rejections=delete_key(rejections, resource_id),
    )
    ending = state.ending
    if ending is None or ending.over:
        return state
    # It comes too late: it is told to leave, as the others were.
    return dismiss_worker(state, resource_id, ending.reason, ending.cause)


def on_task_executor_registration_success(
    state: ResourceManagerState, record: Record, _body: task_executor.TaskExecutorRegistrationSuccess
) -> ResourceManagerState:
    resource_id = instance_of(record.header.recipient)
    cause = state.unanswered_workers.get(resource_id)
    if cause is None or cause != record.header.cause:
        # It registered once more between the decision and its place in the log: that one is owed an answer still.
        return state
    return replace(state, unanswered_workers=state.unanswered_workers.delete(resource_id))


def on_task_executor_registration_rejection(
    state: ResourceManagerState, record: Record, _body: task_executor.TaskExecutorRegistrationRejection
) -> ResourceManagerState:
    resource_id = instance_of(record.header.recipient)
    if resource_id not in state.rejections:
        return state
    return replace(state, rejections=state.rejections.delete(resource_id))


def on_disconnect_task_manager(
    state: ResourceManagerState, record: Record, body: resource_manager.DisconnectTaskManager
) -> ResourceManagerState:
    resource_id = body.resource_id
    state = remove_left_worker(state, resource_id)
    if resource_id not in state.workers:
        return state
    reason = f"TaskExecutor {resource_id} has left: {body.reason}"
    if state.slot_manager.allocations_of(resource_id):
        # Jobs have lost something with it: everybody is told at once.
        return lose_worker(state, resource_id, reason, record)
    return drop_worker(state, resource_id, reason, record)


def registration_answers(state: ResourceManagerState) -> list[OutgoingEvent]:
    """Answers to the registrations of TaskExecutors and JobMasters, in the order of the registrations."""
    owed: list[tuple[int, OutgoingEvent]] = []
    for resource_id, cause in state.unanswered_workers.items():
        instance_id = state.workers[resource_id].instance_id
        body = task_executor.TaskExecutorRegistrationSuccess(instance_id=instance_id)
        owed.append((cause, OutgoingEvent(address(TASK_EXECUTOR, resource_id), body, cause)))
    for resource_id, reason in state.rejections.items():
        rejection = task_executor.TaskExecutorRegistrationRejection(reason=reason.text)
        owed.append(
            (reason.cause, OutgoingEvent(address(TASK_EXECUTOR, resource_id), rejection, reason.cause))
        )
    for job_id, cause in state.unanswered_job_masters.items():
        answer = job_master.JobManagerRegistrationSuccess(job_id=job_id)
        owed.append((cause, OutgoingEvent(address(JOB_MASTER, job_id), answer, cause)))
    return [each for _, each in sorted(owed, key=lambda pair: pair[0])]


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.RegisterTaskExecutor: on_register_task_executor,
    resource_manager.DisconnectTaskManager: on_disconnect_task_manager,
    resource_manager.RegisterJobManager: on_register_job_manager,
    resource_manager.DisconnectJobManager: on_disconnect_job_manager,
    task_executor.TaskExecutorRegistrationSuccess: on_task_executor_registration_success,
    task_executor.TaskExecutorRegistrationRejection: on_task_executor_registration_rejection,
    job_master.JobManagerRegistrationSuccess: on_job_manager_registration_success,
}
