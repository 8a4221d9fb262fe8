"""Decides when a checkpoint is triggered, and which subtasks take part.

All tasks must run or have finished. Checkpoints are triggered at the interval, with a minimum pause between them and a
limit of concurrent ones. A requested checkpoint is triggered as soon as the limit allows. A savepoint is exclusive: it
waits until no checkpoint is in progress, and blocks others until it has ended, because its tasks hold records back
while they wait for its barriers. A request for a savepoint that is repeated before its end, or later with its
`trigger_id`, is answered with the same one.

The trigger is sent to the subtasks that receive no barriers: sources, and tasks whose senders have all finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from immutables import Map
from msgspec.structs import replace

from ....pipelines.checkpoint import layout
from ....pipelines.graph.execution_graph import IntermediateResult
from ....schemas import client, job_master
from ....schemas.body import Body
from ....schemas.event import Record
from ....schemas.types import CheckpointFailureReason, CheckpointOptions, ExecutionState, SnapshotType
from ...core.role import JOB_MASTER, IllegalEvent, OutgoingEvent, Step, Time, address, derive_id
from .. import job_status
from ..job_result import JobResult
from ..owed_events import OwedCheckpointSucceeded, OwedTriggerCheckpoint
from ..rescale import cut as rescale
from ..state import Execution, StartedJob
from ..topology import VertexKey
from . import notifications
from .directory import job_directory
from .pending_checkpoint import CheckpointRequest, PendingCheckpoint
from .state import MOST_REQUESTS
from .stop_phase import StopPhase

_MOST_REPEATS = 64
"""The position among the waiting requests up to which a repeated one shares the checkpoint of the first. Folding uses
it, so another value needs a feature level. It is not above MOST_REQUESTS, behind which requests are refused."""


def on_trigger_checkpoint(
    state: StartedJob, record: Record, body: job_master.TriggerCheckpoint
) -> StartedJob:
    checkpoints = state.checkpoints
    request = CheckpointRequest(
        offset=record.offset,
        time=record.header.time,
        requester=body.requester,
        snapshot_type=body.snapshot_type,
        directory=body.directory,
        stops=body.stops,
        drains=body.drains,
        tenant=body.tenant,
        trigger_id=body.trigger_id,
    )
    taken = checkpoints.find_savepoint(body.trigger_id)
    if taken is not None:
        answer = OwedCheckpointSucceeded(request.offset, request.requester, taken, request.tenant)
        return replace(state, outbox=state.outbox.owe_all([answer]))
    for pending in checkpoints.pending.values():
        if len(pending.requests) < _MOST_REPEATS and any(map(request.repeats, pending.requests)):
            answering = replace(pending, requests=(*pending.requests, request))
            return replace(state, checkpoints=checkpoints.put(answering))
    return replace(state, checkpoints=replace(checkpoints, requests=(*checkpoints.requests, request)))


def not_running(state: JobResult) -> str:
    """Returns why a job that has ended, or is ending, takes no checkpoint."""
    return f"job {state.job_id} is {state.status.value}: only a job that runs has checkpoints taken"


def _find_fault(
    state: StartedJob, request: CheckpointRequest, before: Sequence[CheckpointRequest]
) -> str | None:
    """Returns why the request cannot be fulfilled, now or later. `before`: the requests that wait before it."""
    checkpoints, options = state.checkpoints, state.options.checkpointing
    if state.status not in job_status.ACTIVE:
        return not_running(state)
    if state.options.runs_in_stages:
        return (
            f"job {state.job_id} runs in BATCH mode: its tasks never run all at once, so no checkpoint or savepoint of "
            "it can be taken; run it in STREAMING mode"
        )
    is_requested = any(each.stops and not request.repeats(each) for each in before)
    is_stopping = checkpoints.stop not in (StopPhase.NONE, StopPhase.ABORTING)
    if is_requested or (is_stopping and not any(each.is_cut for each in checkpoints.pending.values())):
        return f"job {state.job_id} is being stopped with a savepoint"
    if len(before) >= MOST_REQUESTS:
        return f"{MOST_REQUESTS} requests wait already (TOO_MANY_CHECKPOINT_REQUESTS): try again later"
    if not options.checkpoints_directory:
        return "the cluster has no directory for checkpoints: set state.checkpoints.dir"
    if _is_savepoint(request) and not _savepoints(state, request):
        return "no directory for the savepoint: name one, or set state.savepoints.dir"
    own = job_directory(state)
    if _is_savepoint(request) and f"{_savepoints(state, request)}/".startswith(f"{own}/"):
        return f"a savepoint in {own} would be deleted with the job's checkpoints: name another directory"
    return None


def _savepoints(state: StartedJob, request: CheckpointRequest) -> str:
    return request.directory or state.options.checkpointing.savepoints_directory


def periodic_options(state: StartedJob) -> Time | None:
    """Returns when the next checkpoint is due by the interval; None while none may begin."""
    options, checkpoints = state.options.checkpointing, state.checkpoints
    if options.interval is None or checkpoints.requests or not _has_room(state):
        return None
    since = checkpoints.since or 0
    due = (since if checkpoints.last_triggered is None else checkpoints.last_triggered) + options.interval
    if checkpoints.last_ended is not None:
        due = max(due, checkpoints.last_ended + options.min_pause)
    return max(due, since)


def _has_room(state: StartedJob, *, alone: bool = False) -> bool:
    checkpoints, options = state.checkpoints, state.options.checkpointing
    if checkpoints.since is None or checkpoints.stop is StopPhase.SAVED or not options.checkpoints_directory:
        return False
    if alone:
        return not checkpoints.pending
    if any(each.options.stops or each.is_savepoint for each in checkpoints.pending.values()):
        return False
    return len(checkpoints.pending) < options.max_concurrent


def outgoing_events(state: StartedJob, now: Time) -> list[OutgoingEvent]:
    """Returns CheckpointTriggered, one at a time, and CheckpointFailed for requests that cannot be fulfilled or have
    waited for too long."""
    requests = state.checkpoints.requests
    if not requests:
        if rescale.wants_cut(state):
            may_begin = _has_room(state, alone=True) and not rescale.is_late(state, now)
            return [_trigger_event(state, (), is_cut=True)] if may_begin else []
        due = periodic_options(state)
        return [] if due is None or due > now else [_trigger_event(state, ())]
    timeout = state.options.checkpointing.timeout
    waiting: list[CheckpointRequest] = []
    faults: dict[int, str] = {}
    for request in requests:
        fault = _find_fault(state, request, waiting)
        if fault is None:
            waiting.append(request)
        else:
            faults[request.offset] = fault
    served = (
        _served_together(waiting) if waiting and _has_room(state, alone=_is_savepoint(waiting[0])) else []
    )
    for request in _answered(requests, [request.offset for request in served]):
        # It shares the checkpoint, though it came behind a request to stop.
        faults.pop(request.offset, None)
    for request in waiting[len(served) :]:
        if request.time + timeout <= now and not any(map(request.repeats, served)):
            faults[request.offset] = (
                f"no checkpoint of job {state.job_id} could begin within {timeout / 1e6:g} s: not all of its tasks "
                "were running (TASKS_NOT_RUNNING), or others were under way"
            )
    return [
        *([_trigger_event(state, served)] if served else []),
        *(
            OutgoingEvent(
                request.requester,
                client.CheckpointFailed(job_id=state.job_id, reason=faults[request.offset]),
                request.offset,
                request.tenant,
            )
            for request in requests
            if request.offset in faults
        ),
    ]


def deadline(state: StartedJob) -> Time | None:
    """Returns the time at which a checkpoint is due, or a request times out."""
    requests = state.checkpoints.requests
    if requests:
        return min(request.time for request in requests) + state.options.checkpointing.timeout
    return None if rescale.wants_cut(state) else periodic_options(state)


def _served_together(waiting: Sequence[CheckpointRequest]) -> Sequence[CheckpointRequest]:
    """Returns the requests that the next checkpoint is triggered for: a savepoint is for one."""
    if _is_savepoint(waiting[0]):
        return waiting[:1]
    return [*takewhile(lambda request: not _is_savepoint(request), waiting)]


def _is_savepoint(request: CheckpointRequest) -> bool:
    return request.snapshot_type is SnapshotType.SAVEPOINT


def _trigger_event(
    state: StartedJob, served: Sequence[CheckpointRequest], *, is_cut: bool = False
) -> OutgoingEvent:
    """Returns CheckpointTriggered for the requests; if there are none, for the interval or for a rescale."""
    number = state.checkpoints.counter + 1
    awaited, finished = [], []
    for execution in _in_order(state):
        if execution.state is ExecutionState.FINISHED:
            finished.append(execution.execution_attempt_id)
        else:
            awaited.append(execution)
    body = job_master.CheckpointTriggered(
        job_id=state.job_id,
        checkpoint_id=number,
        options=replace(_options(state, number, served), stops=True)
        if is_cut
        else _options(state, number, served),
        to_trigger=tuple(_without_senders(state, awaited)),
        to_acknowledge=tuple(each.execution_attempt_id for each in awaited),
        finished=tuple(finished),
        requests=tuple(request.offset for request in served),
        retained=state.options.checkpointing.retained,
    )
    cause = served[0].offset if served else state.cause
    return OutgoingEvent(address(JOB_MASTER, state.job_id), body, cause)


def _options(state: StartedJob, number: int, served: Sequence[CheckpointRequest]) -> CheckpointOptions:
    options, directory = state.options.checkpointing, job_directory(state)
    if served and _is_savepoint(served[0]):
        request = served[0]
        root = _savepoints(state, request)
        name = derive_id(state.job_id, "savepoint", number)[:12]
        own = layout.savepoint_directory(root, state.job_id, name)
        return CheckpointOptions(
            snapshot_type=SnapshotType.SAVEPOINT,
            directory=own,
            shared=own,
            full=True,
            stops=request.stops,
            drains=request.drains,
        )
    latest = state.checkpoints.latest
    # Files of another job's savepoint may be deleted at any time: the first checkpoint does not refer to them.
    foreign = latest is not None and latest.generation < 0
    return CheckpointOptions(
        snapshot_type=SnapshotType.CHECKPOINT,
        directory=layout.checkpoint_directory(directory, number),
        shared=layout.shared_directory(directory),
        full=options.interval is None or foreign or state.checkpoints.force_full,
    )


def _in_order(state: StartedJob) -> Iterator[Execution]:
    for vertex in state.topology.in_order:
        for index in range(vertex.parallelism):
            yield state.executions[state.current_attempts[(vertex.vertex_id, index)]]


def _without_senders(state: StartedJob, awaited: list[Execution]) -> Iterator[str]:
    """Returns those of the Executions that receive no barrier."""
    sending: dict[str, set[int]] = {}
    for execution in awaited:
        sending.setdefault(execution.vertex_id, set()).add(execution.subtask_index)
    inputs: dict[str, list[IntermediateResult]] = {}
    for edge in state.graph.edges:
        source = state.topology.vertices[edge.source_vertex_id].parallelism
        target = state.topology.vertices[edge.target_vertex_id].parallelism
        result = IntermediateResult(edge, source, target, range(source))
        if edge.source_vertex_id in sending:
            inputs.setdefault(edge.target_vertex_id, []).append(result)
    for execution in awaited:
        for result in inputs.get(execution.vertex_id, ()):
            senders, alive = (
                result.producers_for(execution.subtask_index),
                sending[result.edge.source_vertex_id],
            )
            if not result.is_pointwise or any(sender in alive for sender in senders):
                break
        else:
            yield execution.execution_attempt_id


def on_checkpoint_triggered(
    state: StartedJob, record: Record, body: job_master.CheckpointTriggered
) -> StartedJob:
    checkpoints, cause = state.checkpoints, record.offset
    served = _answered(checkpoints.requests, body.requests)
    if body.checkpoint_id <= checkpoints.counter:
        raise IllegalEvent(
            record,
            state.status.value,
            f"checkpoint {body.checkpoint_id} is not the next after {checkpoints.counter}",
        )
    pending = PendingCheckpoint(
        checkpoint_id=body.checkpoint_id,
        options=body.options,
        triggered=record.header.time,
        cause=cause,
        generation=state.generation,
        requests=served,
        retained=body.retained,
    )
    awaited: dict[str, VertexKey] = {}
    finished: dict[VertexKey, None] = {}
    gone = None
    for attempt in (*body.to_acknowledge, *body.finished):
        execution = state.executions.get(attempt)
        if execution is not None and execution.state is ExecutionState.FINISHED:
            finished[execution.vertex] = None
        elif execution is not None and execution.state is ExecutionState.RUNNING:
            awaited[attempt] = execution.vertex
        else:
            gone = attempt
    pending = replace(pending, awaited=Map(awaited), finished=Map(finished))
    if state.status not in job_status.ACTIVE:
        reason = f"job {state.job_id} is {state.status.value}"
        pending = pending.with_failure(CheckpointFailureReason.JOB_ENDED, reason, cause)
    elif gone is not None or len(awaited) + len(finished) != state.topology.subtasks:
        reason = "not all tasks run any more"
        pending = pending.with_failure(CheckpointFailureReason.TASKS_NOT_RUNNING, reason, cause)
    left = tuple(request for request in checkpoints.requests if request not in served)
    rescaling = state.rescaling
    if pending.is_cut:
        if rescale.wants_cut(state):
            rescaling = rescaling.with_cut(body.checkpoint_id)
        else:
            reason = "the rescale is over, or a slot for it was lost"
            pending = pending.with_failure(CheckpointFailureReason.TASKS_NOT_RUNNING, reason, cause)
    checkpoints = replace(
        checkpoints, counter=body.checkpoint_id, requests=left, last_triggered=record.header.time
    ).put(pending)
    state = replace(state, checkpoints=checkpoints, rescaling=rescaling)
    if pending.failure is not None:
        return state
    return notifications.notify(
        state,
        body.to_trigger,
        lambda resource_id, attempts: OwedTriggerCheckpoint(
            cause, body.checkpoint_id, resource_id, attempts, pending.triggered, pending.options
        ),
    )


def _answered(waiting: Sequence[CheckpointRequest], offsets: Sequence[int]) -> tuple[CheckpointRequest, ...]:
    """Returns the requests at the offsets, and those that repeat one of them, as when two REST servers get the same
    request. Those above the limit may be refused at the same time."""
    wanted = [request for request in waiting if request.offset in offsets]
    return tuple(
        request
        for number, request in enumerate(waiting)
        if request in wanted or (number < _MOST_REPEATS and any(map(request.repeats, wanted)))
    )


STEPS: Mapping[type[Body], Step[StartedJob]] = {
    job_master.TriggerCheckpoint: on_trigger_checkpoint,
    job_master.CheckpointTriggered: on_checkpoint_triggered,
}
