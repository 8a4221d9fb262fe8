"""The adaptive scheduler: the parallelism of a job follows its slots (FLIP-160, FLIP-291).

`decide` says what changes, and when; the rules and timeouts are those of the job's options. There are three cases:

- No task was submitted yet, and slots are missing: RescaleStarted. The graph changes at once (`start_with`).
- The job has lost slots: SlotsShared. The tasks of these slots continue from their last commits in slots of other tasks
  of their group. When all tasks run, RescaleStarted follows: the normal cut, and a parallelism that fits the slots. So
  nothing is repeated, as it would be from an earlier checkpoint.
- The job runs below its upper bounds: it keeps optional requests for the places that it may get (`follow`). The slots
  that come are AVAILABLE, and not idle. RescaleStarted follows when they are enough for a higher parallelism.

From the first task that has finished on the parallelism stays; tasks still share slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from ....pipelines.graph.parallelism import changed_vertices
from ....pipelines.graph.validation import validate
from ....schemas import job_master
from ....schemas.body import Body
from ....schemas.event import Record
from ....schemas.types import JobGraph, JobStatus
from ...core.role import CLIENT, JOB_MASTER, OutgoingEvent, Step, Time, address, derive_id
from .. import scheduling, slot_moves
from ..checkpoints.state import Restoring
from ..job_status import ACTIVE
from ..slot_pool import PendingRequest, best_matching
from ..state import ChannelsState, RegistrationState, StartedJob
from .fitting import (
    fits,
    fitting_width,
    graph_at,
    is_out_of_bounds,
    largest_width,
    least_width,
    slots_to_assign,
    width_of,
)
from .graph_change import change_graph
from .state import RescalePhase

REQUESTER = address(CLIENT, "adaptive-scheduler")
"""Who is told what became of a rescale."""
_MOST_OPTIONAL_REQUESTS: Final = 16
"""The number of optional requests at a time. Folding uses it, so another value needs a feature level."""


class _Decision(NamedTuple):
    """What the scheduler says from a time on."""

    due: Time
    body: Body


def outgoing_events(state: StartedJob, now: Time) -> list[OutgoingEvent]:
    """Returns RescaleStarted or SlotsShared, if one is due."""
    decision = _decision(state)
    if decision is None or decision.due > now:
        return []
    return [OutgoingEvent(address(JOB_MASTER, state.job_id), decision.body, state.cause)]


def deadline(state: StartedJob) -> Time | None:
    """Returns when the next decision is due."""
    decision = _decision(state)
    return None if decision is None else decision.due


def may_start_with_fewer(state: StartedJob) -> bool:
    """Whether a job that was denied a slot starts with those that it has."""
    decision = _decision(state)
    return decision is not None and isinstance(decision.body, job_master.RescaleStarted)


def _decision(state: StartedJob) -> _Decision | None:
    rescaling = state.rescaling
    if not rescaling.is_adaptive or state.status not in (JobStatus.CREATED, JobStatus.RUNNING):
        return None
    if state.registration is not RegistrationState.REGISTERED or state.requested is not None:
        return None
    if state.checkpoints.has_stop:
        return None
    if state.is_short_of_slots:
        if not state.is_untouched:
            return _share(state)
        return None if rescaling.requests else _start(state)
    if rescaling.current is not None or rescaling.requests or not state.is_fully_running:
        return None
    if state.counts.finished:
        return None
    return _change(state)


def _start(state: StartedJob) -> _Decision | None:
    """Returns the start with fewer slots than the job has requested."""
    failure, current = state.pending_failure, state.rescaling.current
    if failure is not None and failure.denial is None:
        return None
    if current is not None and current.phase is not RescalePhase.DEPLOYING:
        return None
    graph = _widest(state, below=_width(state))
    if graph is None:
        return None
    timeout = state.options.adaptive_scheduler.submission_stabilization_timeout
    changed = state.rescaling.slots_changed
    due = changed + timeout if failure is None else changed
    held = len(state.slots.slots)
    reason = f"the job starts with the {_count(held)} that it has"
    if failure is not None:
        reason = f"{reason}: {failure.denial}"
    return _Decision(due, _started(state, graph, reason, has_cut=False))


def _share(state: StartedJob) -> _Decision | None:
    """Returns the end of the wait for lost slots."""
    if state.pending_failure is not None:
        return None
    used: dict[str, Counter[str]] = {}
    for (group, _), tree in sorted(state.sharing.trees.items()):
        if tree.resolved:
            used.setdefault(group, Counter())[tree.allocation_id] += 1
    slots: dict[str, str] = {}
    for request in sorted(state.tree_requests(), key=lambda each: each.slot):
        of_group = used.get(request.slot[0])
        if of_group is None:
            # There is no slot to share.
            return None
        target = min(of_group, key=lambda allocation_id: (of_group[allocation_id], allocation_id))
        of_group[target] += 1
        slots[request.allocation_id] = target
    timeout = state.options.adaptive_scheduler.submission_stabilization_timeout
    reason = f"no slot within {timeout / 1e6:g} s: {_count(len(slots))} of {len(state.sharing.trees)} missing"
    body = job_master.SlotsShared(job_id=state.job_id, slots=slots, reason=reason)
    return _Decision(state.rescaling.slots_changed + timeout, body)


def _change(state: StartedJob) -> _Decision | None:
    """Returns the change to the parallelism that fits the slots, if it is another one."""
    rescaling, options = state.rescaling, state.options.adaptive_scheduler
    width, held = _width(state), _count(len(state.slots.slots))
    after_last = rescaling.last_end + options.cooldown
    if state.shares_slots or is_out_of_bounds(state.topology, rescaling.bounds):
        graph = _widest(state, below=width) if state.shares_slots else _widest(state)
        due = after_last if rescaling.has_failed else rescaling.slots_changed
        return None if graph is None else _Decision(due, _started(state, graph, f"the job has {held} left"))
    graph = _widest(state, above=width) if state.slots.idle else None
    if graph is None:
        return None
    due = max(after_last, rescaling.slots_changed + options.executing_stabilization_timeout)
    if len(state.slots.idle) >= reserved_slots(state):
        # It has the slots for all places: no more will come.
        due = after_last
    return _Decision(due, _started(state, graph, f"the job has {held}"))


def _widest(state: StartedJob, *, below: int | None = None, above: int | None = None) -> JobGraph | None:
    """Returns the widest graph that fits the slots of the job."""
    rescaling, pool = state.rescaling, state.slots
    largest = largest_width(rescaling.bounds)
    width = fitting_width(rescaling.places, slots_to_assign(pool), largest)
    if width is None:
        return None
    least = least_width(rescaling.bounds) if above is None else above + 1
    for each in range(width if below is None else min(width, below - 1), least - 1, -1):
        graph = graph_at(state.graph, rescaling.bounds, each)
        # Its options, to which the Dispatcher has added those of the cluster, were checked at its submission.
        is_valid = changed_vertices(state.graph, graph) and not validate(replace(graph, configuration={}))
        if is_valid and fits(graph, pool):
            return graph
    return None


def _started(
    state: StartedJob, graph: JobGraph, reason: str, *, has_cut: bool = True
) -> job_master.RescaleStarted:
    return job_master.RescaleStarted(
        job_id=state.job_id,
        parallelism=dict(changed_vertices(state.graph, graph)),
        reason=f"the adaptive scheduler: {reason}",
        is_adaptive=True,
        has_cut=has_cut,
    )


def _count(slots: int) -> str:
    return "1 slot" if slots == 1 else f"{slots} slots"


def _width(state: StartedJob) -> int:
    return width_of(state.topology, state.rescaling.bounds)


def start_with(state: StartedJob, record: Record) -> StartedJob:
    """Changes the graph of a job of which no task was submitted, to that of its rescale, and schedules it anew."""
    cause = record.offset
    state, again = change_graph(state, record)
    checkpoints = state.checkpoints
    if state.savepoint_path is not None:
        # Whether it fits is judged for the graph.
        checkpoints = replace(checkpoints, restoring=Restoring(cause, 0, initial=True))
    state = replace(
        state,
        checkpoints=checkpoints,
        channels=ChannelsState.CREATING,
        start_offset=cause,
        is_waiting_for_slots=True,
        pending_failure=None,
    )
    return scheduling.resume_after_restore(state, again, cause, 0)


def on_slots_shared(state: StartedJob, record: Record, body: job_master.SlotsShared) -> StartedJob:
    if state.status not in ACTIVE:
        return state
    cause, keys = record.offset, []
    for allocation_id, target in sorted(body.slots.items()):
        request, slot = state.slots.requests.get(allocation_id), state.slots.slots.get(target)
        if request is None or request.replaces is not None or state.is_reserve(request):
            # A slot has come meanwhile.
            continue
        if slot is None or slot.slot is None or slot.slot[0] != request.slot[0]:
            # It was lost meanwhile, or its tasks have finished.
            continue
        state = slot_moves.give_back(state, allocation_id, body.reason, cause)
        state = replace(state, sharing=state.sharing.assign(request.slot, target, resolved=True))
        keys.append(request.slot)
    return scheduling.assign_slots(state, keys, cause, state.failures.restart_at or 0)


def follow(before: StartedJob, state: StartedJob, record: Record) -> StartedJob:
    """Notes when slots have come or gone, and keeps the optional requests."""
    if not state.rescaling.is_adaptive or state.status not in ACTIVE:
        return state
    is_short = state.is_short_of_slots
    if _has_other_slots(before, state) or (is_short and not before.is_short_of_slots):
        state = replace(state, rescaling=replace(state.rescaling, slots_changed=record.header.time))
    if is_short or state.counts.finished:
        return _withdraw_optional(state, is_short, record.offset)
    return _request_optional(state, record.offset) if _may_grow(state) else state


def _has_other_slots(before: StartedJob, state: StartedJob) -> bool:
    old, new = before.slots.slots, state.slots.slots
    return old is not new and set(old) != set(new)


def _withdraw_optional(state: StartedJob, is_short: bool, cause: int) -> StartedJob:
    why = "other tasks need a slot first" if is_short else "tasks of the job have finished"
    for allocation_id, request in sorted(state.slots.requests.items()):
        if request.is_optional:
            state = slot_moves.give_back(state, allocation_id, why, cause)
    return state


def _may_grow(state: StartedJob) -> bool:
    rescaling = state.rescaling
    return (
        state.is_fully_running
        and rescaling.current is None
        and not rescaling.requests
        and len(state.sharing.trees) < len(rescaling.places)
        and state.pending_failure is None
        and state.requested is None
        and not state.checkpoints.has_stop
        and not state.shares_slots
    )


def _request_optional(state: StartedJob, cause: int) -> StartedJob:
    pool = state.slots
    requested = {request.slot for request in pool.requests.values() if state.is_reserve(request)}
    idle, new = pool.idle_slots(), list[PendingRequest]()
    for place in state.rescaling.places:
        if place.slot in state.sharing.trees:
            continue
        found = best_matching(idle, place.profile)
        if found is not None:
            idle.remove(found)
        elif place.slot not in requested and len(requested) + len(new) < _MOST_OPTIONAL_REQUESTS:
            allocation_id = derive_id(state.job_id, "slot", *place.slot, pool.generation)
            new.append(PendingRequest(allocation_id, place.slot, place.profile, cause, is_optional=True))
    if not new:
        return state
    return replace(state, slots=replace(pool.request(new, 0), generation=pool.generation + 1))


def reserved_slots(state: StartedJob) -> int:
    """Returns how many available slots the job keeps for a higher parallelism."""
    if not state.rescaling.is_adaptive or state.counts.finished:
        return 0
    return max(0, len(state.rescaling.places) - len(state.sharing.trees))


STEPS: Mapping[type[Body], Step[StartedJob]] = {job_master.SlotsShared: on_slots_shared}
