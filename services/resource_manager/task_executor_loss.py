"""Lost TaskExecutors.

WorkerLost is the observation of the shell; TaskExecutorLost is the decision. All readers apply the decision at the same
offset, whatever happened in between. A JobMaster derives which slots it has lost, and requests again slots that were
allocated but not offered: there is no FailSlot for each slot.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import everyone, resource_manager
from ...schemas.body import Body
from ...schemas.event import EVERYONE, Record
from ..core.role import OutgoingEvent, Step, Time
from .state import ResourceManagerState
from .worker_lifecycle import drop_worker, lose_worker, stop_worker
from .worker_pool import UNREGISTERED, Worker, WorkerState


def on_worker_lost(
    state: ResourceManagerState, record: Record, body: resource_manager.WorkerLost
) -> ResourceManagerState:
    resource_id, registration = body.resource_id, state.workers.get(body.resource_id)
    worker = state.pool.get(resource_id)
    if worker is None:
        return state
    if registration is None:
        return _retire_worker(state, worker, record, body)
    ended = worker.driven and body.exited and body.instance_id is None
    if body.instance_id != registration.instance_id and not ended:
        # A newer registration has superseded it. (A worker of the driver's has one life: its end is the end.)
        return state
    if worker.state is WorkerState.LOST and (worker.exited or not body.exited):
        return state
    return lose_worker(state, resource_id, _lost(resource_id, body.reason), record, exited=body.exited)


def _retire_worker(
    state: ResourceManagerState, worker: Worker, record: Record, body: resource_manager.WorkerLost
) -> ResourceManagerState:
    """Removes a worker that is not registered yet, or no longer: no job holds slots of it."""
    pool = state.pool
    pool = pool.remove(worker.resource_id) if body.exited else pool
    if worker.state in UNREGISTERED:
        if not body.exited:
            pool = stop_worker(pool, worker, body.reason, record)
        pool = pool.with_failure(worker, record.header.time, body.reason)
    return replace(state, pool=pool)


def on_task_executor_lost(
    state: ResourceManagerState, record: Record, body: everyone.TaskExecutorLost
) -> ResourceManagerState:
    worker = state.pool.get(body.resource_id)
    if worker is not None and worker.state in UNREGISTERED:
        state = replace(state, pool=state.pool.with_failure(worker, record.header.time, body.reason))
    return drop_worker(state, body.resource_id, body.reason, record)


def loss_events(state: ResourceManagerState, now: Time) -> list[OutgoingEvent]:
    """Returns TaskExecutorLost, in the order of the losses."""
    pool, options = state.pool, state.options
    due = list(pool.lost)
    if pool.exited:
        due += pool.exited.until(now - _grace(state))
    if pool.releasing:
        due += pool.releasing.until(now - options.shutdown_timeout)
    if pool.unregistered:
        due += pool.unregistered.until(now - options.registration_timeout)
    workers = sorted(
        (pool.workers[resource_id] for resource_id in due),
        key=lambda worker: (worker.cause, worker.resource_id),
    )
    return [_loss(state, worker) for worker in workers]


def deadlines(state: ResourceManagerState) -> list[Time]:
    """Yields the times at which `loss_events` may return events without any new event."""
    pool, options = state.pool, state.options
    waits = (
        (pool.exited, _grace(state)),
        (pool.releasing, options.shutdown_timeout),
        (pool.unregistered, options.registration_timeout),
    )
    return [line.first[1] + wait for line, wait in waits if line.first is not None]


def _grace(state: ResourceManagerState) -> Time:
    return 0 if state.ending is not None else state.options.restart_grace


def _loss(state: ResourceManagerState, worker: Worker) -> OutgoingEvent:
    resource_id, registration = worker.resource_id, state.workers.get(worker.resource_id)
    reason = worker.reason
    if worker.state is WorkerState.RELEASING:
        seconds = state.options.shutdown_timeout / 1e6
        reason = _lost(resource_id, f"it did not leave within {seconds:g} s though nothing runs there")
    elif worker.state in UNREGISTERED:
        seconds = state.options.registration_timeout / 1e6
        reason = _lost(resource_id, f"it did not register within {seconds:g} s; see its log")
    body = everyone.TaskExecutorLost(
        resource_id=resource_id,
        instance_id=registration.instance_id if registration else None,
        reason=reason,
    )
    return OutgoingEvent(EVERYONE, body, worker.cause)


def _lost(resource_id: str, reason: str) -> str:
    return f"TaskExecutor {resource_id} is lost: {reason}"


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.WorkerLost: on_worker_lost,
    everyone.TaskExecutorLost: on_task_executor_lost,
}
