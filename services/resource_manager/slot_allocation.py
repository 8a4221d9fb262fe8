"""The results of slot requests: a slot is requested from a TaskExecutor, or the request fails with a reason and a
remedy.

A request that could not be fulfilled even if all slots were free fails soon (`slot.request.unfulfillable-timeout`). A
request that waits for slots in use, or for a TaskExecutor that does not answer, fails late (`slot.request.timeout`).
An optional request does not fail.
While TaskExecutors may still be starting, or there are none at all, no request fails as unfulfillable.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...schemas import job_master, task_executor
from ...schemas.types import ResourceProfile, SlotID
from ..configuration.options.resource_manager import ResourceManagerMode
from ..core.resource_profile import describe, matches
from ..core.role import JOB_MASTER, TASK_EXECUTOR, OutgoingEvent, Time, address
from ..core.time_index import FifoTimeIndex
from .active_mode import capacity, is_startable
from .placement import PlacedRequest, Placement, place
from .slot_requests import SlotRequest, SlotRequests
from .state import ResourceManagerState


class AllocationResult(msgspec.Struct, frozen=True):
    """The events to send, and the AllocationIDs and TaskExecutors that got slots."""

    owed: list[OutgoingEvent]
    placed: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()


def allocate(state: ResourceManagerState, now: Time) -> AllocationResult:
    """Returns RequestSlot for requests that a free slot matches, SlotAllocationFailed for requests that timed out."""
    requests, slots = state.slot_manager.requests, state.slot_manager.slots
    if not requests.open and not requests.waiting:
        return AllocationResult([])
    placed: list[PlacedRequest] = []
    if requests.waiting and slots.free:
        placement = Placement.SPREAD if state.options.evenly_spread_out else Placement.PACK
        queues = {key: requests.queue(key) for key in requests.waiting}
        placed = place(slots, queues, placement)
    given = frozenset(request.allocation_id for request, _, _ in placed)
    failed: dict[str, tuple[SlotRequest, str]] = {}
    for request, reason in (*_unfulfillable(state, now), *_timed_out(state, now)):
        if request.allocation_id not in given:
            failed.setdefault(request.allocation_id, (request, reason))
    owed = [_rejection(request, key, reason) for request, key, reason in placed]
    owed += [
        OutgoingEvent(
            address(JOB_MASTER, request.job_id),
            job_master.SlotAllocationFailed(allocation_id=request.allocation_id, reason=reason),
            request.cause,
        )
        for request, reason in sorted(failed.values(), key=lambda each: each[0].cause)
    ]
    return AllocationResult(owed, given, frozenset(resource_id for _, (resource_id, _), _ in placed))


def deadlines(state: ResourceManagerState) -> list[Time]:
    """Yields the times at which a request times out."""
    requests, options = state.slot_manager.requests, state.options
    due = []
    if requests.open.first is not None:
        due.append(requests.open.first[1] + options.slot_request_timeout)
    if _expects_more_slots(state):
        return due
    earliest = _start_up_end(state)
    since = min((since for _, since in _short_jobs(state)), default=None)
    if since is not None:
        due.append(max(earliest, since + options.unfulfillable_timeout))
    for queue in _unmatched(state):
        first = next(_with_timeout(requests, queue))
        due.append(max(earliest, _unmatched_since(state, first) + options.unfulfillable_timeout))
    return due


def _rejection(request: SlotRequest, key: tuple[str, int], reason: str) -> OutgoingEvent:
    resource_id, number = key
    body = task_executor.RequestSlot(
        slot_id=SlotID(resource_id=resource_id, slot_number=number),
        job_id=request.job_id,
        allocation_id=request.allocation_id,
        reason=reason,
    )
    return OutgoingEvent(address(TASK_EXECUTOR, resource_id), body, request.cause)


def _unfulfillable(state: ResourceManagerState, now: Time) -> Iterator[tuple[SlotRequest, str]]:
    if _expects_more_slots(state) or now < _start_up_end(state):
        return
    requests, expired = state.slot_manager.requests, now - state.options.unfulfillable_timeout
    for job_id, since in _short_jobs(state):
        for request in requests.waiting_requests(job_id) if since <= expired else ():
            yield request, _too_many(state, request)
    for queue in _unmatched(state):
        for allocation_id in _with_timeout(requests, queue):
            if _unmatched_since(state, allocation_id) > expired:
                break
            yield requests.known[allocation_id], _too_large(state, requests.known[allocation_id])


def _short_jobs(state: ResourceManagerState) -> Iterator[tuple[str, Time]]:
    """Returns the jobs that want more slots than there can be, with the time since when."""
    manager, limit = state.slot_manager, capacity(state)
    if limit is not None:
        for job_id, since in manager.requests.short_jobs(limit):
            yield job_id, max(since, manager.slots.shrunk)


def _timed_out(state: ResourceManagerState, now: Time) -> Iterator[tuple[SlotRequest, str]]:
    requests = state.slot_manager.requests
    for allocation_id in requests.open.until(now - state.options.slot_request_timeout):
        request = requests.known[allocation_id]
        yield request, _no_answer(state, request) if request.slot else _busy(state, request)


def _expects_more_slots(state: ResourceManagerState) -> bool:
    """Returns whether more slots may register: during start-up, and as long as there are none at all."""
    if state.options.mode is ResourceManagerMode.ACTIVE:
        return state.pool.expected > 0
    return state.slot_manager.slots.count == 0


def _start_up_end(state: ResourceManagerState) -> Time:
    if state.options.mode is ResourceManagerMode.ACTIVE:
        return 0
    return state.elected + state.options.start_up_time


def _unmatched(state: ResourceManagerState) -> Iterator[FifoTimeIndex]:
    """Returns the queues of requests that no registered slot matches."""
    requests, offered = state.slot_manager.requests, _offered_profiles(state)
    if not offered:
        return
    is_active = state.options.mode is ResourceManagerMode.ACTIVE
    for key in sorted(key for key in requests.waiting if key):
        queue = requests.waiting[key]
        first = next(_with_timeout(requests, queue), None)
        if first is None:
            continue
        wanted = requests.known[first].profile
        if not any(matches(profile, wanted) for profile in offered) and not (
            is_active and is_startable(state, key, wanted)
        ):
            yield queue


def _with_timeout(requests: SlotRequests, queue: FifoTimeIndex) -> Iterator[str]:
    return (allocation_id for allocation_id in queue if not requests.known[allocation_id].is_optional)


def _offered_profiles(state: ResourceManagerState) -> list[ResourceProfile]:
    """Returns the profiles of registered slots, and of workers that may be started, if known."""
    profiles, pool = state.slot_manager.slots.profiles, state.pool
    offered = [profiles[key].profile for key in sorted(profiles)]
    if state.options.mode is ResourceManagerMode.ACTIVE:
        return [*offered, pool.profile] if pool.profile is not None else []
    return offered


def _unmatched_since(state: ResourceManagerState, allocation_id: str) -> Time:
    manager = state.slot_manager
    request = manager.requests.known[allocation_id]
    return max(request.since, manager.slots.shrunk, state.pool.refused.get(request.key, 0))


def _too_many(state: ResourceManagerState, request: SlotRequest) -> str:
    active = state.options.mode is ResourceManagerMode.ACTIVE
    most = state.options.max_slots
    what = (
        f"slotmanager.number-of-slots.max is {most}: raise it or lower the parallelism"
        if active
        else "start more TaskExecutors or lower the parallelism"
    )
    return f"{_within(state.options.unfulfillable_timeout)}: {_counts(state, request)}; {what}"


def _too_large(state: ResourceManagerState, request: SlotRequest) -> str:
    if request.key in state.pool.refused:
        return (
            f"{_within(state.options.unfulfillable_timeout)}: no worker with {describe(request.profile)} for a slot "
            f"could be started: {state.pool.failure}"
        )
    offered = dict.fromkeys(describe(profile) for profile in _offered_profiles(state))
    return (
        f"{_within(state.options.unfulfillable_timeout)}: the job wants a slot with {describe(request.profile)}, "
        f"but those that are there have {' or '.join([*offered][:3])}; start TaskExecutors with larger slots or ask "
        "for less"
    )


def _busy(state: ResourceManagerState, request: SlotRequest) -> str:
    what = "wait until other jobs have ended, start more TaskExecutors or lower the parallelism"
    pool = state.pool
    if state.options.mode is ResourceManagerMode.ACTIVE and pool.failed is not None:
        what = f"no worker could be started: {pool.failure}"
    elif pool.requested:
        count = len(pool.requested)
        what = (
            f"{count} worker{' waits' if count == 1 else 's wait'} for resources of the platform: free some, raise "
            "the limit of the queue or namespace, or lower the parallelism"
        )
    return f"{_within(state.options.slot_request_timeout)}: {_counts(state, request)}; {what}"


def _no_answer(state: ResourceManagerState, request: SlotRequest) -> str:
    resource_id, number = request.slot or ("?", -1)
    return (
        f"{_within(state.options.slot_request_timeout)}: TaskExecutor {resource_id} does not answer the request for "
        f"its slot {number}; see whether it runs, or start another"
    )


def _within(timeout: Time) -> str:
    return f"no slot within {timeout / 1e6:g} s"


def _counts(state: ResourceManagerState, request: SlotRequest) -> str:
    slots, job = state.slot_manager.slots, state.slot_manager.requests.jobs[request.job_id]
    executors, given = len(slots.workers), job.wanted - job.waiting
    own = f" and was given {given}" if given else ""
    apart = sum(len(slots.workers[resource_id].free) for resource_id in slots.excluded)
    quarantined = f" ({apart} of them quarantined)" if apart else ""
    return (
        f"the job wants {job.wanted}{own}, {slots.free_count} are free{quarantined}, {slots.count} are registered on "
        f"{executors} TaskExecutor{'' if executors == 1 else 's'}"
    )
