"""Active mode: the ResourceManager lets its driver start workers for pending requests, and stop idle ones.

Workers are named worker-1, worker-2, ...: the counter is in the log, so no name is used twice. It starts as many
workers as pending requests need beyond the workers that are already starting. Requests that the slots of the configured
workers are too small for get workers of one slot of their size, if the driver can start them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from ...schemas import resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ..configuration.options.resource_manager import ResourceManagerMode
from ..core.resource_profile import Profile, ProfileKey, describe, matches
from ..core.role import RESOURCE_MANAGER, Instruction, OutgoingEvent, Step, Time
from .instructions import StartWorkerProcess, StopWorkerProcess
from .state import ResourceManagerState
from .worker_lifecycle import dismiss_worker
from .worker_names import name_worker
from .worker_pool import Worker, WorkerState

# Cached members: Python 3.11 takes 0.2 us to find a member of an Enum (docs/notes/event-cost.md), and these are
# needed often.
_ACTIVE: Final = ResourceManagerMode.ACTIVE


class Shortfall(msgspec.Struct, frozen=True):
    """Workers to start, all alike. `waiting`: the requests that they are for; `expected`: the slots that are on their
    way for those; `slot_profile`: None for the configured one."""

    count: int
    slots: int
    waiting: int
    expected: int
    slot_profile: Profile = None


def on_start_worker(
    state: ResourceManagerState, record: Record, body: resource_manager.StartWorker
) -> ResourceManagerState:
    pool = replace(state.pool, numbered=state.pool.numbered + 1)
    if body.resource_id in pool.workers or state.ending is not None:
        # Since the decision, a worker registered under this name, or the cluster began to end.
        return replace(state, pool=pool)
    worker = Worker(
        resource_id=body.resource_id,
        state=WorkerState.REQUESTED,
        cause=record.offset,
        since=record.header.time,
        driven=True,
        number_of_slots=body.number_of_slots,
        expected=body.number_of_slots,
        slot_profile=body.slot_profile,
    )
    return replace(state, pool=pool.put(worker))


def on_worker_started(
    state: ResourceManagerState, _record: Record, body: resource_manager.WorkerStarted
) -> ResourceManagerState:
    worker = state.pool.get(body.resource_id)
    if worker is None or worker.state is not WorkerState.REQUESTED:
        # It has registered already, or is being stopped again.
        return state
    started = replace(worker, state=WorkerState.STARTED, address=body.address)
    return replace(state, pool=state.pool.put(started))


def on_stop_worker(
    state: ResourceManagerState, record: Record, body: resource_manager.StopWorker
) -> ResourceManagerState:
    resource_id, manager = body.resource_id, state.slot_manager
    worker = state.pool.get(resource_id)
    if worker is None or worker.state is not WorkerState.REGISTERED or resource_id not in manager.slots.idle:
        # A slot was found to be in use between the decision and its place in the log.
        return state
    releasing = replace(
        worker,
        state=WorkerState.RELEASING,
        cause=record.offset,
        since=record.header.time,
        reason=body.reason,
    )
    state = replace(
        state,
        pool=state.pool.put(releasing),
        slot_manager=manager.without(resource_id, record.header.time),
    )
    return dismiss_worker(state, resource_id, body.reason, record.offset)


def capacity(state: ResourceManagerState) -> int | None:
    """Returns the number of slots if all workers that may be started run; None: unlimited."""
    registered = state.slot_manager.slots.count
    options = state.options
    if options.mode is not _ACTIVE:
        return registered
    if options.max_slots is None:
        return None
    known = registered + state.pool.expected
    return known + max(0, options.max_slots - known) // options.slots_per_worker * options.slots_per_worker


def worker_starts(state: ResourceManagerState, placed: Collection[str], now: Time) -> list[OutgoingEvent]:
    """Returns StartWorker for pending requests that are not in `placed`."""
    shortfalls = _shortfalls(state, placed)
    if not shortfalls or now < _retry(state):
        return []
    cause = state.slot_manager.requests.last_cause
    owed: list[OutgoingEvent] = []
    number = state.pool.numbered
    for shortfall in shortfalls:
        for _ in range(shortfall.count):
            number += 1
            body = resource_manager.StartWorker(
                resource_id=name_worker(number),
                number_of_slots=shortfall.slots,
                reason=_describe(shortfall),
                slot_profile=shortfall.slot_profile,
            )
            owed.append(OutgoingEvent(RESOURCE_MANAGER, body, cause))
    return owed


def is_startable(state: ResourceManagerState, key: ProfileKey, wanted: Profile) -> bool:
    """Returns whether a worker may be started whose slots have at least this profile."""
    pool = state.pool
    if pool.profile is None or matches(pool.profile, wanted):
        return True
    return _can_be_sized(state, wanted) and key not in pool.refused


def can_start_worker(state: ResourceManagerState, key: ProfileKey, wanted: Profile) -> bool:
    """Returns whether a worker whose slots have at least this profile may be started beside those that are there."""
    options, known = state.options, state.slot_manager.slots.count + state.pool.expected
    has_room = options.max_slots is None or known + options.slots_per_worker <= options.max_slots
    return has_room and not _on_quarantined_hosts(state) and is_startable(state, key, wanted)


def _on_quarantined_hosts(state: ResourceManagerState) -> int:
    """Returns the number of free slots on hosts that are quarantined. The platform may choose such a host again, so
    these slots count as expected: otherwise workers would be started there without end."""
    quarantines, slots = state.quarantines, state.slot_manager.slots
    if not quarantines.hosts:
        return 0
    by_host = (each for each in slots.excluded if each not in quarantines.task_executors)
    return sum(len(slots.workers[resource_id].free) for resource_id in by_host)


def worker_stops(state: ResourceManagerState, used: Collection[str], now: Time) -> list[OutgoingEvent]:
    """Returns StopWorker for workers that were idle for long and get no slot request now."""
    idle = state.slot_manager.slots.idle
    if not idle or state.options.mode is not _ACTIVE or state.ending is not None:
        return []
    timeout = state.options.taskmanager_timeout
    reasons = dict.fromkeys(idle.until(now - timeout), f"none of its slots was used for {timeout / 1e6:g} s")
    has_waiting = bool(state.slot_manager.requests.waiting)
    for resource_id in sorted(state.slot_manager.slots.excluded):
        quarantine = state.find_quarantine(resource_id)
        if has_waiting and resource_id not in state.quarantines.task_executors:
            # The platform may start the next worker on the drained host, too, which would be stopped without end.
            continue
        if quarantine is not None and quarantine.is_drain and resource_id in idle:
            reasons[resource_id] = f"it is drained: {quarantine.reason}"
    return [
        OutgoingEvent(
            RESOURCE_MANAGER,
            resource_manager.StopWorker(resource_id=resource_id, reason=reason),
            state.pool.workers[resource_id].cause,
        )
        for resource_id, reason in reasons.items()
        if resource_id not in used
    ]


def deadlines(state: ResourceManagerState) -> list[Time]:
    """Yields the times at which `worker_starts` or `worker_stops` may return events without any new event."""
    if state.options.mode is not _ACTIVE or state.ending is not None:
        return []
    due = []
    idle = state.slot_manager.slots.idle.first
    if idle is not None:
        due.append(idle[1] + state.options.taskmanager_timeout)
    if state.slot_manager.requests.waiting and _shortfalls(state, ()):
        due.append(_retry(state))
    return due


def instructions(state: ResourceManagerState) -> list[Instruction]:
    """Returns StartWorkerProcess until the driver has reported the result, StopWorkerProcess until the process has
    ended."""
    pool = state.pool
    demanded: list[tuple[int, str, Instruction]] = []
    for resource_id, cause in pool.requested.items():
        worker = pool.workers[resource_id]
        start = StartWorkerProcess(resource_id, worker.number_of_slots, cause, worker.slot_profile)
        demanded.append((cause, resource_id, start))
    for resource_id, cause in pool.stopping.items():
        reason = pool.workers[resource_id].reason
        demanded.append((cause, resource_id, StopWorkerProcess(resource_id, reason, cause)))
    return [instruction for _, _, instruction in sorted(demanded, key=lambda each: each[:2])]


def _shortfalls(state: ResourceManagerState, placed: Collection[str]) -> list[Shortfall]:
    """Returns the workers to start now: those of the configuration, then those of each larger profile."""
    options, pool, manager = state.options, state.pool, state.slot_manager
    if options.mode is not _ACTIVE or state.ending is not None:
        return []
    requests, slots = manager.requests, options.slots_per_worker
    known = (requests.known.get(allocation_id) for allocation_id in placed)
    placed_of = Counter(request.key for request in known if request is not None)
    waiting, larger = 0, list[tuple[ProfileKey, Profile, int]]()
    for key, queue in requests.waiting.items():
        first = queue.first
        wanted = requests.known[first[0]].profile if first else None
        count = len(queue) - placed_of[key]
        if pool.profile is None or matches(pool.profile, wanted):
            waiting += count
        elif _can_be_sized(state, wanted):
            larger.append((key, wanted, count))
    expected = pool.expected_of.get((), 0) + _on_quarantined_hosts(state)
    shortfalls = [Shortfall(-(-(waiting - expected) // slots), slots, waiting, expected)]
    for key, wanted, count in sorted(larger):
        expected = pool.expected_of.get(key, 0)
        shortfalls.append(Shortfall(count - expected, 1, count, expected, wanted))
    return _limited(state, shortfalls)


def _limited(state: ResourceManagerState, shortfalls: list[Shortfall]) -> list[Shortfall]:
    """Returns them within the limit of all slots."""
    most, limited = state.options.max_slots, list[Shortfall]()
    room = None if most is None else max(0, most - state.slot_manager.slots.count - state.pool.expected)
    for shortfall in shortfalls:
        count = shortfall.count
        if room is not None:
            count = min(count, room // shortfall.slots)
        if count > 0:
            limited.append(replace(shortfall, count=count))
            room = None if room is None else room - count * shortfall.slots
    return limited


def _can_be_sized(state: ResourceManagerState, wanted: Profile) -> bool:
    return state.options.sizes_workers and wanted is not None and not wanted.extended_resources


def _describe(shortfall: Shortfall) -> str:
    what = "" if shortfall.slot_profile is None else f" for a slot with {describe(shortfall.slot_profile)}"
    return (
        f"{shortfall.waiting} slot requests wait{what}, workers on their way bring {shortfall.expected} slots: "
        f"{shortfall.count} more with {shortfall.slots} each"
    )


def _retry(state: ResourceManagerState) -> Time:
    failed = state.pool.failed
    return 0 if failed is None else failed + state.options.start_worker_retry_interval


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.StartWorker: on_start_worker,
    resource_manager.WorkerStarted: on_worker_started,
    resource_manager.StopWorker: on_stop_worker,
}
