"""Whatever a role's state keeps twice agrees: the indexes that let `decide` cost no more than what is owed."""

from __future__ import annotations

from collections import Counter

from tailrace.schemas.types import ExecutionState
from tailrace.services.core.resource_profile import ProfileKey
from tailrace.services.resource_manager.registered_slots import RegisteredSlots
from tailrace.services.resource_manager.slot_requests import SlotRequests
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.resource_manager.task_manager_slot import SlotState
from tailrace.services.resource_manager.worker_pool import WorkerState
from tailrace.services.task_executor.state import TaskExecutorState
from tailrace.services.task_executor.task_slot_table import TaskSlotState


def check_task_executor(state: TaskExecutorState) -> None:
    """TaskSlotTable, tasks, and what is owed to jobs."""
    table, tasks = state.slots, state.tasks
    held = {slot.allocation_id: number for number, slot in table.slots.items() if slot.allocation_id}
    assert dict(table.allocated) == held
    for job_id, allocations in table.per_job.items():
        assert allocations == {slot.allocation_id for slot in table.slots.values() if slot.job_id == job_id}
    in_slots: set[str] = set()
    for slot in table.slots.values():
        assert (slot.state is TaskSlotState.FREE) == (slot.allocation_id is None)
        assert slot.allocation_id is not None or not slot.tasks
        assert not in_slots & slot.tasks
        in_slots |= slot.tasks
        for attempt in slot.tasks:
            assert tasks[attempt].allocation_id == slot.allocation_id
            assert tasks[attempt].job_id == slot.job_id
    assert in_slots == set(tasks)
    for allocation_id in table.waiting.places:
        waits = table.by_allocation(allocation_id)
        assert waits is not None
        assert waits.state is TaskSlotState.ALLOCATED
    canceling = {each for each, task in tasks.items() if task.state is ExecutionState.CANCELING}
    assert set(state.stopping) == canceling
    assert set(state.unacknowledged) <= set(tasks)
    owing = set()
    for job_id, connection in state.jobs.items():
        offers = connection.answered and connection.slots_to_offer
        if not connection.registration_sent or offers or job_id not in table.per_job:
            owing.add(job_id)
        assert connection.slots_to_offer <= table.per_job.get(job_id, frozenset())
        for deployment in connection.deployments.values():
            assert deployment.runnable <= set(tasks)
    assert set(state.jobs_owing) == owing


def check_resource_manager(state: ResourceManagerState) -> None:
    """SlotManager and workers."""
    _check_slots(state.slot_manager.slots)
    _check_requests(state.slot_manager.requests)
    _check_workers(state)


def _check_slots(slots: RegisteredSlots) -> None:
    free: dict[ProfileKey, Counter[str]] = {}
    profiles: Counter[ProfileKey] = Counter()
    idle = set()
    for resource_id, worker in slots.workers.items():
        numbers = sorted(number for number, slot in worker.slots.items() if slot.state is SlotState.FREE)
        assert list(worker.free) == numbers
        assert all(slot.changed <= worker.changed for slot in worker.slots.values())
        profiles.update(slot.key for slot in worker.slots.values())
        if worker.releasable and worker.idle:
            idle.add(resource_id)
        for number in () if worker.withdrawn else numbers:
            free.setdefault(worker.slots[number].key, Counter())[resource_id] += 1
    assert {key: dict(counts) for key, counts in slots.free.items()} == free
    assert {key: each.count for key, each in slots.profiles.items()} == dict(profiles)
    assert slots.count == sum(len(worker.slots) for worker in slots.workers.values())
    assert slots.free_count == sum(len(worker.free) for worker in slots.workers.values())
    assert set(slots.idle) == idle


def _check_requests(requests: SlotRequests) -> None:
    known = requests.known.values()
    assert set(requests.open) == {each.allocation_id for each in known if not each.fulfilled}
    waiting = {allocation_id for queue in requests.waiting.values() for allocation_id in queue}
    assert waiting == {each.allocation_id for each in known if each.slot is None}
    for key, queue in requests.waiting.items():
        assert {requests.known[each].key for each in queue} == {key}
    for each in known:
        assert each.slot is not None or not each.fulfilled
    for job_id in {each.job_id for each in known} | set(requests.jobs):
        of_job = [each for each in known if each.job_id == job_id]
        job = requests.jobs[job_id]
        assert job.wanted == len(of_job) > 0
        assert job.waiting == sum(each.slot is None for each in of_job)
        assert set(job.open) == {each.allocation_id for each in of_job if not each.fulfilled}
        short = job.waiting and requests.limit is not None and job.wanted > requests.limit
        assert (job_id in requests.short) == bool(short)
    assert set(requests.short) <= set(requests.jobs)


def _check_workers(state: ResourceManagerState) -> None:
    pool = state.pool
    registered = {WorkerState.REGISTERED, WorkerState.RELEASING, WorkerState.LOST}
    by_state: dict[WorkerState, set[str]] = {each: set() for each in WorkerState}
    for worker in pool.workers.values():
        by_state[worker.state].add(worker.resource_id)
    assert set(state.workers) == {each for one in registered for each in by_state[one]}
    assert set(state.slot_manager.slots.workers) <= set(state.workers)
    assert set(pool.requested) == by_state[WorkerState.REQUESTED]
    assert set(pool.unregistered) == by_state[WorkerState.REQUESTED] | by_state[WorkerState.STARTED]
    assert set(pool.releasing) == by_state[WorkerState.RELEASING]
    assert set(pool.stopping) == by_state[WorkerState.STOPPING]
    assert set(pool.lost) | set(pool.exited) == by_state[WorkerState.LOST]
    assert {pool.workers[each].exited for each in pool.exited} <= {True}
    assert {pool.workers[each].exited for each in pool.lost} <= {False}
    assert pool.expected == sum(worker.expected for worker in pool.workers.values())
    assert not by_state[WorkerState.ABSENT]
    assert set(state.unanswered_workers) <= set(state.workers)
    assert set(state.dismissals) <= set(state.workers)
    if state.ending is not None and not state.ending.over:
        assert set(state.ending.leaving) <= set(state.workers)
