"""Quarantine and drain: TaskExecutors that get no slots, and whose tasks move to others, job by job.

A JobMaster is asked to give up a slot (MoveSlot) only when a free slot elsewhere is large enough for it, or a worker
can be started. It requests the other slot first and keeps the old one until it has it. So a quarantine takes no slot
away from a task that has no other. While slots of one job move, no other job is asked.

By rule: a TaskExecutor that reports too many failures is quarantined for a time, and its host as soon as two of its
TaskExecutors are; never more than a share of all TaskExecutors (as Spark's excludeOnFailure and YARN's node blacklist).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from immutables import Map
from msgspec.structs import replace

from ...schemas import job_master, resource_manager
from ...schemas.body import Body
from ...schemas.event import Record
from ...schemas.types import QuarantineMode
from ..configuration.options.resource_manager import ResourceManagerMode
from ..core.resource_profile import ProfileKey, profile_key
from ..core.role import JOB_MASTER, RESOURCE_MANAGER, OutgoingEvent, Step, Time, address
from .active_mode import can_start_worker
from .placement import Placement, place
from .quarantines import Quarantine, Suspicion
from .slot_requests import SlotRequest
from .state import ResourceManagerState, host_of
from .task_manager_slot import SlotState

_LAST: Final = 1 << 62
"""Slots that move come after all requests that wait."""
_EXECUTORS_OF_HOST: Final = 2
"""So many TaskExecutors of a host that are quarantined by rule quarantine the host."""


def on_quarantine_changed(
    state: ResourceManagerState, record: Record, body: resource_manager.QuarantineChanged
) -> ResourceManagerState:
    to = None
    if body.mode is not QuarantineMode.RELEASED:
        to = Quarantine(body.mode, body.reason, record.offset, record.header.time, body.until)
    state = replace(state, quarantines=state.quarantines.change(body.resource_id, body.host, to))
    slots = state.slot_manager.slots
    for resource_id, worker in state.workers.items():
        if resource_id == body.resource_id or host_of(worker.address) == body.host:
            is_excluded = state.find_quarantine(resource_id) is not None
            slots = slots.exclude(resource_id, is_excluded=is_excluded)
    return replace(state, slot_manager=replace(state.slot_manager, slots=slots))


def on_task_failures_exceeded(
    state: ResourceManagerState, record: Record, body: resource_manager.TaskFailuresExceeded
) -> ResourceManagerState:
    if body.resource_id not in state.workers:
        return state
    found = Suspicion(body.reason, record.offset, record.header.time)
    known = {each: why for each, why in state.quarantines.suspicions.items() if each in state.workers}
    suspicions = Map({**known, body.resource_id: found})
    return replace(state, quarantines=replace(state.quarantines, suspicions=suspicions))


def on_move_slot(
    state: ResourceManagerState, record: Record, body: job_master.MoveSlot
) -> ResourceManagerState:
    held = slots_to_move(state)
    moves = {key: time for key, time in state.quarantines.moves.items() if key in held}
    moves[body.allocation_id] = record.header.time
    return replace(state, quarantines=replace(state.quarantines, moves=Map(moves)))


def quarantine_events(state: ResourceManagerState, now: Time) -> list[OutgoingEvent]:
    """Returns QuarantineChanged by rule, and MoveSlot for slots that can move."""
    quarantines = state.quarantines
    if state.ending is not None or not (quarantines or quarantines.suspicions):
        return []
    changes = [*_releases(state, now), *_exclusions(state, now)]
    return changes or [*_moves(state, now)]


def deadlines(state: ResourceManagerState) -> list[Time]:
    """Yields the times at which `quarantine_events` may return events without any new event."""
    quarantines = state.quarantines
    if state.ending is not None or not quarantines:
        return []
    due = [each.until for _, _, each in _all(state) if each.until is not None]
    moving = _moving(state, slots_to_move(state))
    return due + [time + state.options.slot_request_timeout for _, time in moving]


def _all(state: ResourceManagerState) -> Iterator[tuple[str | None, str | None, Quarantine]]:
    """Returns ResourceID or host, and the quarantine."""
    quarantines = state.quarantines
    for resource_id, found in sorted(quarantines.task_executors.items(), key=lambda each: each[1].cause):
        yield resource_id, None, found
    for host, found in sorted(quarantines.hosts.items(), key=lambda each: each[1].cause):
        yield None, host, found


def _releases(state: ResourceManagerState, now: Time) -> Iterator[OutgoingEvent]:
    for resource_id, host, found in _all(state):
        if found.until is not None and found.until <= now:
            reason = f"its time is over: {found.reason}"
            yield _change(resource_id, host, QuarantineMode.RELEASED, reason, None, found.cause)


def _exclusions(state: ResourceManagerState, now: Time) -> Iterator[OutgoingEvent]:
    """Returns the quarantines by rule, as many as the share allows."""
    options, suspicions = state.options, state.quarantines.suspicions
    if not suspicions or not options.max_task_failures:
        return
    apart = {each for each in state.workers if state.find_quarantine(each) is not None}
    most = len(state.workers) * options.max_quarantined_percent // 100
    until = now + options.quarantine_time
    for resource_id, found in sorted(suspicions.items(), key=lambda each: each[1].cause):
        is_recent = now < found.since + options.task_failures_interval
        if not is_recent or resource_id not in state.workers or resource_id in apart:
            continue
        host = host_of(state.workers[resource_id].address)
        others = {each for each in state.workers if host_of(state.workers[each].address) == host}
        failing = [each for each in sorted(others & apart) if _is_by_rule(state, each)]
        if host and len(failing) + 1 >= _EXECUTORS_OF_HOST and len(apart | others) <= most:
            reason = f"tasks fail on TaskExecutors {', '.join((*failing, resource_id))}: {found.reason}"
            apart |= others
            yield _change(None, host, QuarantineMode.QUARANTINED, reason, until, found.cause)
        elif len(apart) < most:
            apart.add(resource_id)
            yield _change(resource_id, None, QuarantineMode.QUARANTINED, found.reason, until, found.cause)


def _is_by_rule(state: ResourceManagerState, resource_id: str) -> bool:
    own = state.quarantines.task_executors.get(resource_id)
    return own is not None and own.until is not None


def _change(
    resource_id: str | None,
    host: str | None,
    mode: QuarantineMode,
    reason: str,
    until: Time | None,
    cause: int,
) -> OutgoingEvent:
    body = resource_manager.QuarantineChanged(
        resource_id=resource_id, host=host, mode=mode, reason=reason, until=until
    )
    return OutgoingEvent(RESOURCE_MANAGER, body, cause)


def _moves(state: ResourceManagerState, now: Time) -> Iterator[OutgoingEvent]:
    """Returns MoveSlot for the slots of one job that fit elsewhere, and again for those that take too long."""
    held = slots_to_move(state)
    moving = _moving(state, held)
    if moving:
        expired = now - state.options.slot_request_timeout
        yield from (_move(state, held[each]) for each, time in moving if time <= expired)
        return
    by_job: dict[str, list[SlotRequest]] = {}
    for request in held.values():
        by_job.setdefault(request.job_id, []).append(request)
    masters = state.job_masters
    for job_id in sorted(by_job, key=lambda job_id: (masters[job_id].cause, job_id)):
        fitting = _fitting(state, by_job[job_id])
        if fitting:
            yield from (_move(state, request) for request in fitting)
            return


def _moving(state: ResourceManagerState, held: Mapping[str, SlotRequest]) -> list[tuple[str, Time]]:
    """Returns the slots that JobMasters were asked for and still hold, with the time at which they were."""
    return sorted((each, time) for each, time in state.quarantines.moves.items() if each in held)


def slots_to_move(state: ResourceManagerState) -> dict[str, SlotRequest]:
    """Returns the slots that jobs hold on quarantined TaskExecutors, by AllocationID."""
    manager, found = state.slot_manager, dict[str, SlotRequest]()
    for resource_id in sorted(manager.slots.excluded):
        if manager.slots.workers[resource_id].withdrawn:
            # It may be lost, and its slots with it.
            continue
        for key, slot in manager.slots.slots_of(resource_id):
            allocation_id, job_id = slot.allocation_id, slot.job_id
            is_held = slot.state is SlotState.ALLOCATED and job_id in state.job_masters
            if not is_held or allocation_id is None or job_id is None:
                continue
            known = manager.requests.known.get(allocation_id)
            profile = slot.profile if known is None else known.profile
            found[allocation_id] = SlotRequest(
                allocation_id, job_id, profile, profile_key(profile), _LAST, slot.changed, key
            )
    return found


def _fitting(state: ResourceManagerState, wanted: list[SlotRequest]) -> list[SlotRequest]:
    """Returns the requests that find a free slot after those that wait, or for which a worker can be started."""
    manager = state.slot_manager
    queues: dict[ProfileKey, list[SlotRequest]] = {}
    for request in wanted:
        queues.setdefault(request.key, []).append(request)
    waiting = manager.requests.waiting
    together = {key: chain(manager.requests.queue(key), queues.get(key, ())) for key in {**waiting, **queues}}
    placement = Placement.SPREAD if state.options.evenly_spread_out else Placement.PACK
    placed = {request.allocation_id for request, _, _ in place(manager.slots, together, placement)}
    fitting = [request for request in wanted if request.allocation_id in placed]
    is_active = state.options.mode is ResourceManagerMode.ACTIVE
    if (
        not fitting
        and is_active
        and not waiting
        and can_start_worker(state, wanted[0].key, wanted[0].profile)
    ):
        return wanted[:1]
    return fitting


def _move(state: ResourceManagerState, request: SlotRequest) -> OutgoingEvent:
    resource_id = request.slot[0] if request.slot else ""
    found = state.find_quarantine(resource_id)
    what, cause = ("", None) if found is None else (found.reason, found.cause)
    body = job_master.MoveSlot(
        allocation_id=request.allocation_id, reason=f"TaskExecutor {resource_id} is set apart: {what}"
    )
    return OutgoingEvent(address(JOB_MASTER, request.job_id), body, cause)


STEPS: Mapping[type[Body], Step[ResourceManagerState]] = {
    resource_manager.QuarantineChanged: on_quarantine_changed,
    resource_manager.TaskFailuresExceeded: on_task_failures_exceeded,
    job_master.MoveSlot: on_move_slot,
}
