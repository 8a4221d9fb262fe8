"""The registration, slots and process of a TaskExecutor when it leaves, fails, or is stopped."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ...schemas.event import Record
from ..core.immutable_maps import delete_key
from ..core.outbox import owe, remove_owed
from ..core.owed_events import OwedFailSlot
from .owed_events import OwedDisconnectResourceManager, OwedTaskExecutorRegistrationSuccess
from .slot_manager import SlotManager
from .state import ResourceManagerState
from .task_manager_slot import SlotState
from .worker_pool import Worker, WorkerPool, WorkerState


def lose_worker(
    state: ResourceManagerState, resource_id: str, reason: str, record: Record, *, exited: bool = False
) -> ResourceManagerState:
    """Marks a registered TaskExecutor that will be declared lost; until then none of its slots is allocated."""
    before = state.pool.get(resource_id)
    if before is None:
        return state
    worker = _transition(before, WorkerState.LOST, reason, record)
    manager = state.slot_manager
    return replace(
        state,
        pool=state.pool.put(replace(worker, exited=exited)),
        slot_manager=replace(manager, slots=manager.slots.withdraw(resource_id)),
    )


def drop_worker(
    state: ResourceManagerState, resource_id: str, reason: str, record: Record
) -> ResourceManagerState:
    """Removes a TaskExecutor's registration and slots. Its process is stopped if the driver started it."""
    manager = state.slot_manager
    gone = manager.allocations_of(resource_id)
    is_known = resource_id in state.workers or state.pool.get(resource_id) is not None
    state = replace(
        remove_left_worker(state, resource_id),
        workers=delete_key(state.workers, resource_id),
        pool=_retire(state.pool, resource_id, reason, record),
        gone=state.gone.add(resource_id, record.offset, record.header.time) if is_known else state.gone,
    )
    state = remove_owed(state, OwedTaskExecutorRegistrationSuccess, resource_id)
    left = manager.without(resource_id, record.header.time)
    # A JobMaster that held one of its slots reads about the loss in the log as well.
    return lose_slots(state, left, resource_id, gone, reason, record, is_announced=True)


def stop_worker(pool: WorkerPool, worker: Worker, reason: str, record: Record) -> WorkerPool:
    """Stops the process of a worker that the driver started."""
    return pool.put(_transition(worker, WorkerState.STOPPING, reason, record))


def dismiss_worker(
    state: ResourceManagerState, resource_id: str, reason: str, cause: int
) -> ResourceManagerState:
    """Asks a TaskExecutor to leave; the shutdown waits for it."""
    ending = state.ending
    if ending is not None and not ending.is_over:
        ending = replace(ending, leaving=ending.leaving.set(resource_id, None))
    return owe(replace(state, ending=ending), OwedDisconnectResourceManager(cause, resource_id, reason))


def remove_left_worker(state: ResourceManagerState, resource_id: str) -> ResourceManagerState:
    """Drops everything pending for the TaskExecutor; the shutdown does not wait for it any more."""
    ending = state.ending
    if ending is not None and resource_id in ending.leaving:
        state = replace(state, ending=replace(ending, leaving=ending.leaving.delete(resource_id)))
    return remove_owed(state, OwedDisconnectResourceManager, resource_id)


def lose_slots(
    state: ResourceManagerState,
    after: SlotManager,
    resource_id: str,
    gone: Iterable[str],
    reason: str,
    record: Record,
    *,
    is_announced: bool = False,
) -> ResourceManagerState:
    """Handles the allocations `gone` of a TaskExecutor that are not in `after` any more.

    Requests that waited for such a slot wait again. JobMasters that held one are informed, unless the same event is
    addressed to them (`is_announced`).
    """
    before = state.slot_manager.allocations_of(resource_id)
    outbox, offset, time = state.outbox, record.offset, record.header.time
    waiting = []
    for allocation_id in gone:
        key = before[allocation_id]
        slot = state.slot_manager.slots.get(key)
        if slot is None or not after.is_for(allocation_id, key):
            # Its JobMaster gets a slot of another TaskExecutor, requested when this one was lost.
            continue
        request = after.requests.known.get(allocation_id)
        if slot.state is SlotState.PENDING:
            # Its JobMaster never got it: any other slot is as good.
            waiting.append((request.cause if request else -1, allocation_id, key))
            continue
        after = after.forget(allocation_id)
        if not is_announced and slot.job_id in state.job_masters:
            outbox = outbox.owe(OwedFailSlot(offset, allocation_id, slot.job_id or "", reason))
    requests = after.requests
    for _, allocation_id, key in sorted(waiting):
        requests = requests.retry(allocation_id, key, offset, time)
    return replace(state, outbox=outbox, slot_manager=SlotManager(after.slots, requests))


def _retire(pool: WorkerPool, resource_id: str, reason: str, record: Record) -> WorkerPool:
    worker = pool.get(resource_id)
    if worker is None or worker.state is WorkerState.STOPPING:
        return pool
    if worker.exited or not worker.driven:
        return pool.remove(resource_id)
    return stop_worker(pool, worker, reason, record)


def _transition(worker: Worker, state: WorkerState, reason: str, record: Record) -> Worker:
    return replace(
        worker,
        state=state,
        cause=record.offset,
        since=record.header.time,
        expected=0,
        exited=False,
        reason=reason,
    )
