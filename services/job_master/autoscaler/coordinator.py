"""The autoscaler of a job: from the measurement of its tasks to the request for another parallelism.

While all tasks run and nothing else changes the job, MeasureTasks stands; its result is TasksMeasured. `decide` judges
that, and says the decision as ScalingDecided. If the job should change, and may, this event is a request to rescale it,
as one of a client is. A failure, a restart or a rescale voids the measurement: the next one begins when all tasks have
run for the stabilization interval.
"""

from __future__ import annotations

from collections.abc import Mapping

from immutables import Map
from msgspec.structs import replace

from ....pipelines.graph.parallelism import is_parallel
from ....schemas import job_master
from ....schemas.body import Body
from ....schemas.event import Record
from ....schemas.types import ParallelismBounds
from ...core.role import CLIENT, JOB_MASTER, OutgoingEvent, Step, address
from ..checkpoints.stop_phase import StopPhase
from ..instructions import MeasureTasks
from ..rescale import validation
from ..rescale.finished_subtasks import find_finished
from ..rescale.state import RescaleRequest
from ..state import StartedJob
from . import algorithm
from .state import Measurement, ScaleUp, ScalingDecision

REQUESTER = address(CLIENT, "autoscaler")
"""Who is told what became of a rescale."""


def follow(state: StartedJob, record: Record) -> StartedJob:
    """Notes when the job has come to rest, so that tasks can be measured; voids a measurement when it changes."""
    autoscaling, is_steady = state.autoscaling, _is_steady(state)
    if is_steady == (autoscaling.cause is not None):
        return state
    if is_steady:
        autoscaling = replace(autoscaling, cause=record.offset, since=record.header.time, is_stable=False)
    else:
        autoscaling = replace(autoscaling, cause=None, measurement=None)
    return replace(state, autoscaling=autoscaling)


def _is_steady(state: StartedJob) -> bool:
    return (
        state.is_fully_running
        and state.rescaling.current is None
        and not state.rescaling.requests
        and state.pending_failure is None
        and state.requested is None
        and state.checkpoints.stop is StopPhase.NONE
    )


def on_tasks_measured(state: StartedJob, record: Record, body: job_master.TasksMeasured) -> StartedJob:
    autoscaling = state.autoscaling
    if autoscaling.cause is None or record.header.cause != autoscaling.cause or body.duration <= 0:
        return state
    measured = Measurement(record.offset, record.header.time, body.duration, tuple(body.vertices))
    return replace(state, autoscaling=replace(autoscaling, measurement=measured))


def on_scaling_decided(state: StartedJob, record: Record, body: job_master.ScalingDecided) -> StartedJob:
    autoscaling, now = state.autoscaling, record.header.time
    measured = autoscaling.measurement
    if measured is None or measured.offset != record.header.cause:
        # The job has changed between the decision and its place in the log.
        return state
    decision = ScalingDecision(
        record.offset, now, body.reason, Map(body.parallelism), is_advice=body.is_advice
    )
    autoscaling = replace(
        autoscaling,
        cause=record.offset,
        since=now,
        is_stable=True,
        measurement=None,
        decisions=autoscaling.with_decision(decision),
    )
    if not body.parallelism or body.is_advice:
        return replace(state, autoscaling=autoscaling)
    request = _request(state, record.offset, now, body.parallelism, body.reason)
    rescaling = replace(state.rescaling, requests=(*state.rescaling.requests, request))
    scale_ups = autoscaling.scale_ups.update(_scale_ups(state, body, now))
    return replace(state, autoscaling=replace(autoscaling, scale_ups=scale_ups), rescaling=rescaling)


def _request(
    state: StartedJob, offset: int, time: int, parallelism: Mapping[str, int], reason: str
) -> RescaleRequest:
    bounds = {
        vertex_id: ParallelismBounds(lower_bound=1, upper_bound=count)
        for vertex_id, count in parallelism.items()
    }
    return RescaleRequest(
        offset=offset,
        time=time,
        requester=REQUESTER,
        tenant=state.tenant,
        bounds=Map(bounds),
        max_slots=state.autoscaling.max_slots,
        reason=f"the autoscaler: {reason}",
    )


def _scale_ups(state: StartedJob, decided: job_master.ScalingDecided, now: int) -> Mapping[str, ScaleUp]:
    found = {}
    for vertex_id, after in decided.parallelism.items():
        vertex, capacity = state.topology.vertices.get(vertex_id), decided.capacity.get(vertex_id, 0.0)
        if vertex is not None and after > vertex.parallelism:
            found[vertex_id] = ScaleUp(now, after, capacity, capacity * after / vertex.parallelism)
    return found


def outgoing_events(state: StartedJob) -> list[OutgoingEvent]:
    """Returns the decision on the measurement."""
    measured, options = state.autoscaling.measurement, state.options.autoscaler
    if measured is None:
        return []
    fixed = [
        vertex.vertex_id
        for vertex in state.graph.vertices
        if not is_parallel(vertex) or find_finished(state, [vertex.vertex_id]) is not None
    ]
    parallelism, reason, capacity = algorithm.decide(
        state.graph, measured, options, state.autoscaling.scale_ups, fixed
    )
    if parallelism:
        try:
            validation.check(state, _request(state, measured.offset, measured.time, parallelism, ""))
        except validation.RequestRefused as refused:
            parallelism, reason, capacity = {}, f"{refused}; wanted: {reason}", {}
    body = job_master.ScalingDecided(
        job_id=state.job_id,
        parallelism=dict(parallelism),
        capacity=dict(capacity),
        is_advice=bool(parallelism) and not options.is_scaling_enabled,
        reason=reason,
    )
    return [OutgoingEvent(address(JOB_MASTER, state.job_id), body, measured.offset)]


def instructions(state: StartedJob) -> tuple[MeasureTasks, ...]:
    """Returns the measurement that the job waits for."""
    autoscaling, options = state.autoscaling, state.options
    if autoscaling.cause is None or autoscaling.measurement is not None:
        return ()
    if not options.autoscaler.is_enabled or options.runs_in_stages:
        return ()
    vertices = {vertex.vertex_id: vertex.parallelism for vertex in state.topology.in_order}
    begins = autoscaling.since + (0 if autoscaling.is_stable else options.autoscaler.stabilization_interval)
    window = options.autoscaler.metrics_window
    return (MeasureTasks(state.job_id, begins, window, Map(vertices), autoscaling.cause),)


STEPS: Mapping[type[Body], Step[StartedJob]] = {
    job_master.TasksMeasured: on_tasks_measured,
    job_master.ScalingDecided: on_scaling_decided,
}
