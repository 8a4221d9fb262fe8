"""A rescale from the request to its end (state.py has the phases).

`decide` judges a request and says the verdict: RescaleStarted, RescaleFailed, or JobRescaled if the job runs at this
parallelism already. The job then gets the slots that it will need, beside those that it has. They are AVAILABLE until
the cut: a failed task may take one of them, and another is requested. When they are there and all tasks run, the cut is
triggered (checkpoints/trigger.py): a checkpoint that is aligned, and behind which all tasks stand still as behind the
savepoint that stops a job. So nothing is published after it, and the job goes back to it without a repetition
(cut.py, restore.py). graph_change.py has what changes when no task runs any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map
from msgspec.structs import replace

from ....pipelines.graph.parallelism import changed_vertices, with_parallelism
from ....schemas import client, job_master
from ....schemas.body import Body
from ....schemas.event import Record
from ....schemas.types import JobStatus
from ...core.role import JOB_MASTER, OutgoingEvent, Step, Time, address
from .. import job_status, owed_events, slot_moves
from ..state import StartedJob
from . import adaptive_scheduler, cut, validation
from .reserved_slots import has_all_slots, request_missing_slots
from .state import Rescale, RescalePhase, RescaleRequest
from .validation import RequestRefused


def on_rescale_job(state: StartedJob, record: Record, body: job_master.RescaleJob) -> StartedJob:
    request = RescaleRequest(
        offset=record.offset,
        time=record.header.time,
        requester=body.requester,
        tenant=body.tenant,
        parallelism=body.parallelism,
        bounds=Map(body.bounds),
        max_slots=body.max_slots,
        reason=body.reason,
    )
    rescaling = state.rescaling
    return replace(state, rescaling=replace(rescaling, requests=(*rescaling.requests, request)))


def on_rescale_started(state: StartedJob, record: Record, body: job_master.RescaleStarted) -> StartedJob:
    rescaling, cause = state.rescaling, record.offset
    if body.is_adaptive:
        return _start_adaptive(state, record, body)
    request = next((each for each in rescaling.requests if each.offset == record.header.cause), None)
    if request is None or rescaling.current is not None:
        return state
    state = _without_request(state, request.offset)
    bounds = state.rescaling.bounds.update(dict(body.bounds))
    state = replace(state, rescaling=replace(state.rescaling, bounds=bounds).with_places(state.graph))
    return _start(state, _rescale(state, request, cause, body))


def _start_adaptive(state: StartedJob, record: Record, body: job_master.RescaleStarted) -> StartedJob:
    """Starts a rescale that the adaptive scheduler has decided, unless the job has changed meanwhile."""
    current, cause = state.rescaling.current, record.offset
    if state.status not in job_status.ACTIVE:
        return state
    request = RescaleRequest(
        offset=cause,
        time=record.header.time,
        requester=adaptive_scheduler.REQUESTER,
        tenant=state.tenant,
        reason=body.reason,
    )
    if not body.has_cut:
        if not state.is_untouched or (current is not None and current.phase is not RescalePhase.DEPLOYING):
            return state
        if current is not None:
            # The answer to an earlier request is for this parallelism.
            request = current.request
        rescale = replace(_rescale(state, request, cause, body), phase=RescalePhase.RESTARTING)
        state = replace(state, rescaling=replace(state.rescaling, current=rescale))
        return adaptive_scheduler.start_with(state, record)
    if current is not None or state.is_short_of_slots:
        return state
    return _start(state, _rescale(state, request, cause, body))


def _rescale(
    state: StartedJob, request: RescaleRequest, cause: int, body: job_master.RescaleStarted
) -> Rescale:
    graph = with_parallelism(state.graph, body.parallelism)
    rescale = Rescale(request, cause, Map(changed_vertices(state.graph, graph)), graph)
    # If only the bounds change, the job has its parallelism already.
    has_change = rescale.parallelism or not state.rescaling.is_adaptive
    return rescale if has_change else replace(rescale, phase=RescalePhase.DEPLOYING)


def _start(state: StartedJob, rescale: Rescale) -> StartedJob:
    return follow(replace(state, rescaling=replace(state.rescaling, current=rescale)), rescale.cause)


def on_rescale_failed(state: StartedJob, record: Record, body: client.RescaleFailed) -> StartedJob:
    return _answered(owed_events.on_rescale_failed(state, record, body), record, has_failed=True)


def on_job_rescaled(state: StartedJob, record: Record, _body: client.JobRescaled) -> StartedJob:
    return _answered(state, record)


def _answered(state: StartedJob, record: Record, *, has_failed: bool = False) -> StartedJob:
    current = state.rescaling.current
    if current is None or current.request.offset != record.header.cause:
        return _without_request(state, record.header.cause)
    rescaling = replace(state.rescaling, current=None)
    if rescaling.is_adaptive:
        rescaling = replace(rescaling, last_end=record.header.time, has_failed=has_failed)
    state = replace(state, rescaling=rescaling)
    why = f"job {state.job_id} is not rescaled"
    for allocation_id, request in sorted(state.slots.requests.items()):
        if state.is_reserve(request):
            state = slot_moves.give_back(state, allocation_id, why, record.offset)
    return state


def _without_request(state: StartedJob, offset: int | None) -> StartedJob:
    left = tuple(each for each in state.rescaling.requests if each.offset != offset)
    return replace(state, rescaling=replace(state.rescaling, requests=left))


def follow(state: StartedJob, cause: int) -> StartedJob:
    """Requests the slots that the rescale still needs."""
    current = state.rescaling.current
    if current is None or current.phase is not RescalePhase.WAITING or current.failure is not None:
        return state
    return request_missing_slots(state, cause) if state.status in job_status.ACTIVE else state


def outgoing_events(state: StartedJob, now: Time) -> list[OutgoingEvent]:
    """Returns the verdicts on requests, and the answer when a rescale is over."""
    events = [] if state.rescaling.current is None else _end_events(state, state.rescaling.current, now)
    has_started = False
    for request in state.rescaling.requests:
        try:
            parallelism = validation.check(state, request)
            if has_started:
                raise RequestRefused(
                    f"job {state.job_id} is being rescaled already: ask again when that is over"
                )
        except RequestRefused as refused:
            events.append(_failed(state, request, str(refused)))
            continue
        bounds = validation.bounds_of(state, request)
        if not parallelism and not validation.changes_bounds(state, bounds):
            events.append(_rescaled(state, request, parallelism, 0))
            continue
        has_started = True
        body = job_master.RescaleStarted(
            job_id=state.job_id,
            parallelism=dict(parallelism),
            bounds=dict(bounds),
            reason=request.reason,
        )
        events.append(OutgoingEvent(address(JOB_MASTER, state.job_id), body, request.offset))
    return events


def _end_events(state: StartedJob, rescale: Rescale, now: Time) -> list[OutgoingEvent]:
    request, counts = rescale.request, state.counts
    if rescale.failure is not None:
        return [_failed(state, request, rescale.failure)]
    are_all_there = counts.running + counts.finished == state.topology.subtasks
    if (
        rescale.phase is RescalePhase.DEPLOYING
        and are_all_there
        and state.status in (JobStatus.RUNNING, JobStatus.FINISHED)
    ):
        return [_rescaled(state, request, rescale.parallelism, rescale.checkpoint_id)]
    is_suspended = state.status is JobStatus.SUSPENDED
    is_late = rescale.phase in (RescalePhase.RESTARTING, RescalePhase.DEPLOYING)
    if state.status not in job_status.ACTIVE and not (is_suspended and is_late):
        return [_failed(state, request, validation.not_running(state.job_id, state.status.value))]
    if rescale.phase is RescalePhase.WAITING and cut.is_late(state, now):
        waited = f"{state.options.checkpointing.timeout / 1e6:g} s"
        what = "not all of its tasks were running" if has_all_slots(state) else "slots are missing"
        return [_failed(state, request, f"job {state.job_id} could not be rescaled within {waited}: {what}")]
    return []


def _failed(state: StartedJob, request: RescaleRequest, reason: str) -> OutgoingEvent:
    body = client.RescaleFailed(job_id=state.job_id, reason=reason)
    return OutgoingEvent(request.requester, body, request.offset, request.tenant)


def _rescaled(
    state: StartedJob, request: RescaleRequest, parallelism: Mapping[str, int], checkpoint_id: int
) -> OutgoingEvent:
    body = client.JobRescaled(job_id=state.job_id, parallelism=dict(parallelism), checkpoint_id=checkpoint_id)
    return OutgoingEvent(request.requester, body, request.offset, request.tenant)


def deadline(state: StartedJob) -> Time | None:
    """Returns the time at which a rescale that waits fails."""
    current = state.rescaling.current
    if current is None or current.phase is not RescalePhase.WAITING:
        return None
    return cut.timeout(state, current)


STEPS: Mapping[type[Body], Step[StartedJob]] = {
    job_master.RescaleJob: on_rescale_job,
    job_master.RescaleStarted: on_rescale_started,
    client.RescaleFailed: on_rescale_failed,
    client.JobRescaled: on_job_rescaled,
}
