"""Recomputes the ResourceManager's indexes from its slots, slot requests and workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..core.index_validation import compare, compare_outbox
from ..core.resource_profile import ProfileKey
from .owed_events import OwedDisconnectResourceManager, OwedTaskExecutorRegistrationSuccess
from .registered_slots import RegisteredSlots
from .slot_requests import SlotRequests
from .state import ResourceManagerState
from .task_manager_slot import SlotState
from .worker_pool import WorkerPool, WorkerState

_REGISTERED = (WorkerState.REGISTERED, WorkerState.RELEASING, WorkerState.LOST)


def index_errors(state: ResourceManagerState) -> Iterator[str]:
    """Returns a line for each index that differs."""
    yield from _slots(state.slot_manager.slots)
    yield from _requests(state.slot_manager.requests)
    yield from _workers(state.pool)
    registered = {worker.resource_id for worker in state.pool.workers.values() if worker.state in _REGISTERED}
    yield from compare("workers", set(state.workers), registered)
    yield from compare(
        "slots of unknown workers", set(state.slot_manager.slots.workers) - set(state.workers), set()
    )
    registered = set(state.slot_manager.slots.workers)
    quarantined = {each for each in registered if state.find_quarantine(each) is not None}
    yield from compare("quarantined workers", set(state.slot_manager.slots.excluded), quarantined)
    yield from compare_outbox(state.outbox)
    yield from compare("gone", set(state.gone.order), set(state.gone.offsets))
    yield from compare("gone workers", set(state.gone.offsets) & set(state.workers), set())
    addressed = {
        event.resource_id
        for event in state.outbox
        if isinstance(event, OwedTaskExecutorRegistrationSuccess | OwedDisconnectResourceManager)
    }
    yield from compare("events owed to unknown workers", addressed - set(state.workers), set())


def _slots(slots: RegisteredSlots) -> Iterator[str]:
    free: dict[ProfileKey, Counter[str]] = {}
    profiles: Counter[ProfileKey] = Counter()
    idle = set()
    for resource_id, worker in slots.workers.items():
        numbers = sorted(number for number, slot in worker.slots.items() if slot.state is SlotState.FREE)
        yield from compare(f"free slots of {resource_id}", list(worker.free), numbers)
        profiles.update(slot.key for slot in worker.slots.values())
        if worker.releasable and worker.idle:
            idle.add(resource_id)
        for number in numbers if worker.is_assignable else ():
            free.setdefault(worker.slots[number].key, Counter())[resource_id] += 1
    yield from compare("free", {key: dict(counts) for key, counts in slots.free.items()}, free)
    counts = {key: profile.count for key, profile in slots.profiles.items()}
    yield from compare("profiles", counts, dict(profiles))
    yield from compare("count", slots.count, sum(len(worker.slots) for worker in slots.workers.values()))
    yield from compare(
        "free_count", slots.free_count, sum(len(worker.free) for worker in slots.workers.values())
    )
    yield from compare("idle", set(slots.idle), idle)
    excluded = {resource_id for resource_id, worker in slots.workers.items() if worker.excluded}
    yield from compare("excluded", set(slots.excluded), excluded)


def _requests(requests: SlotRequests) -> Iterator[str]:
    known = requests.known.values()
    with_timeout = {
        request.allocation_id for request in known if not (request.fulfilled or request.is_optional)
    }
    yield from compare("open", set(requests.open), with_timeout)
    waiting = {
        key: {request.allocation_id for request in known if request.slot is None and request.key == key}
        for key in {request.key for request in known if request.slot is None}
    }
    yield from compare("waiting", {key: set(queue) for key, queue in requests.waiting.items()}, waiting)
    yield from compare("jobs", set(requests.jobs), {request.job_id for request in known})
    by_wanted: dict[int, set[str]] = {}
    counted = [request for request in known if request.slot is not None or not request.is_optional]
    for job_id, count in Counter(request.job_id for request in counted).items():
        by_wanted.setdefault(count, set()).add(job_id)
    yield from compare(
        "by_wanted", {count: set(jobs) for count, jobs in requests.by_wanted.items()}, by_wanted
    )
    for job_id, job in requests.jobs.items():
        of_job = [request for request in known if request.job_id == job_id]
        without_slot = sum(request.slot is None for request in of_job if not request.is_optional)
        wanted = sum(request.job_id == job_id for request in counted)
        yield from compare(f"wanted of job {job_id}", job.wanted, wanted)
        yield from compare(f"waiting of job {job_id}", job.waiting, without_slot)
        open_requests = {request.allocation_id for request in of_job if not request.fulfilled}
        yield from compare(f"open of job {job_id}", set(job.open), open_requests)


def _workers(pool: WorkerPool) -> Iterator[str]:
    by_state: dict[WorkerState, set[str]] = {state: set() for state in WorkerState}
    for worker in pool.workers.values():
        by_state[worker.state].add(worker.resource_id)
    exited = {resource_id for resource_id in by_state[WorkerState.LOST] if pool.workers[resource_id].exited}
    unregistered = by_state[WorkerState.REQUESTED] | by_state[WorkerState.STARTED]
    for name, index, recomputed in (
        ("requested", pool.requested, by_state[WorkerState.REQUESTED]),
        ("unregistered", pool.unregistered, unregistered),
        ("releasing", pool.releasing, by_state[WorkerState.RELEASING]),
        ("stopping", pool.stopping, by_state[WorkerState.STOPPING]),
        ("exited", pool.exited, exited),
        ("lost", pool.lost, by_state[WorkerState.LOST] - exited),
    ):
        yield from compare(f"{name} workers", set(index), recomputed)
    yield from compare("expected", pool.expected, sum(worker.expected for worker in pool.workers.values()))
