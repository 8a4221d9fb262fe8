"""The details of one job: its vertices, status and configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from ....pipelines.graph import job_options
from ....schemas.types import ExecutionState
from ...configuration.role_options import NoRestart, restart_strategy
from ...history.cluster_view import JobView, find_started_job
from ...history.execution_history import AttemptView, ExecutionGraphView, VertexView
from ..endpoint import Parameters
from ..moment import Moment
from . import ids
from .job_list import job_extent
from .lookup import dispatcher, find_attempts, find_graph, find_job
from .metrics import IoMetrics, io_metrics
from .plan import Plan, plan_of
from .times import EXECUTION_STATES, JOB_STATUSES, duration, end_of, start_of

# The state of a vertex is the first of these that one of its subtasks has; Flink's aggregateJobVertexState.
_PRECEDENCE = (
    ExecutionState.FAILED,
    ExecutionState.CANCELING,
    ExecutionState.CANCELED,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)


class VertexDetails(msgspec.Struct, frozen=True, rename="kebab"):
    """A vertex in /jobs/:jobid."""

    id: str
    slot_sharing_group_id: str = msgspec.field(name="slotSharingGroupId")
    name: str
    max_parallelism: int = msgspec.field(name="maxParallelism")
    parallelism: int
    status: str
    start_time: int
    end_time: int
    duration: int
    tasks: Mapping[str, int]
    metrics: IoMetrics


class JobDetailsInfo(msgspec.Struct, frozen=True, rename="kebab"):
    """/jobs/:jobid: Flink's JobDetailsInfo."""

    jid: str
    application_id: str
    name: str
    is_stoppable: bool = msgspec.field(name="isStoppable")
    state: str
    job_type: str
    scheduler_type: str = msgspec.field(name="schedulerType")
    start_time: int
    end_time: int
    duration: int
    max_parallelism: int = msgspec.field(name="maxParallelism")
    now: int
    timestamps: Mapping[str, int]
    vertices: Sequence[VertexDetails]
    status_counts: Mapping[str, int]
    plan: Plan
    pending_operators: int


class JobStatusInfo(msgspec.Struct, frozen=True):
    """/jobs/:jobid/status"""

    status: str


class ExecutionConfig(msgspec.Struct, frozen=True, rename="kebab"):
    """Flink's ExecutionConfigInfo. `user_config`: the job's own options."""

    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool
    user_config: Mapping[str, str]


class JobConfiguration(msgspec.Struct, frozen=True, rename="kebab"):
    """/jobs/:jobid/config"""

    jid: str
    name: str
    execution_config: ExecutionConfig


class ParallelismBounds(msgspec.Struct, frozen=True, rename="camel"):
    """The bounds of the parallelism of a vertex: a job with the default scheduler runs at the upper ones."""

    lower_bound: Annotated[int, msgspec.Meta(ge=1, le=1 << 15)]
    upper_bound: Annotated[int, msgspec.Meta(ge=1, le=1 << 15)]


class VertexRequirements(msgspec.Struct, frozen=True):
    """Flink's JobVertexResourceRequirements."""

    parallelism: ParallelismBounds


def job(moment: Moment, parameters: Parameters) -> JobDetailsInfo:
    """GET /jobs/:jobid"""
    _, view = find_job(moment, parameters)
    graph = find_graph(moment, view)
    start, end = job_extent(view)
    statuses = moment.fold.executions.statuses(view.job_id)
    entered = {status.value: time // 1000 for status, time in statuses.items()}
    vertices = [_vertex(moment, view, graph, vertex) for vertex in graph.vertices]
    return JobDetailsInfo(
        jid=ids.to_job_id(view.job_id),
        application_id=ids.to_job_id(view.job_id),
        name=view.name,
        is_stoppable=False,
        state=view.status.value,
        job_type=graph.job_type,
        scheduler_type="Default",
        start_time=start,
        end_time=end,
        duration=duration(start, end, moment.now),
        max_parallelism=-1,
        now=moment.now,
        timestamps=dict.fromkeys(JOB_STATUSES, 0) | {"INITIALIZING": max(0, start)} | entered,
        vertices=vertices,
        status_counts=_zeros() | Counter(vertex.status for vertex in vertices),
        plan=plan_of(view.job_id, view.name, graph),
        pending_operators=0,
    )


def status(moment: Moment, parameters: Parameters) -> JobStatusInfo:
    """GET /jobs/:jobid/status"""
    _, view = find_job(moment, parameters)
    return JobStatusInfo(view.status.value)


def configuration(moment: Moment, parameters: Parameters) -> JobConfiguration:
    """GET /jobs/:jobid/config"""
    job, view = find_job(moment, parameters)
    graph = find_graph(moment, view)
    own = {**graph.configuration, **view.changed_options}
    strategy = restart_strategy({**(dispatcher(moment).configuration or {}), **own})
    widest = max((vertex.parallelism for vertex in graph.vertices), default=job.parallelism or -1)
    return JobConfiguration(
        jid=ids.to_job_id(view.job_id),
        name=view.name,
        execution_config=ExecutionConfig(
            restart_strategy="none" if isinstance(strategy, NoRestart) else _describe(strategy),
            job_parallelism=widest,
            object_reuse_mode=False,
            user_config={key: text for key, text in own.items() if key not in job_options.BY_KEY},
        ),
    )


def resource_requirements(moment: Moment, parameters: Parameters) -> dict[str, VertexRequirements]:
    """GET /jobs/:jobid/resource-requirements: the bounds of the parallelism of each vertex"""
    _, view = find_job(moment, parameters)
    state = find_started_job(moment.fold.replica.states, view.job_id)
    requested = {} if state is None else state.rescaling.bounds
    found = {}
    for vertex in find_graph(moment, view).vertices:
        bounds = requested.get(vertex.vertex_id)
        found[ids.to_vertex_id(vertex.vertex_id)] = VertexRequirements(
            ParallelismBounds(1, vertex.parallelism)
            if bounds is None
            else ParallelismBounds(bounds.lower_bound, bounds.upper_bound)
        )
    return found


def _vertex(moment: Moment, view: JobView, graph: ExecutionGraphView, vertex: VertexView) -> VertexDetails:
    attempts = find_attempts(graph, vertex)
    start, end = vertex_extent(attempts)
    return VertexDetails(
        id=ids.to_vertex_id(vertex.vertex_id),
        slot_sharing_group_id=ids.to_group_id(view.job_id, vertex.slot_sharing_group),
        name=vertex.name,
        max_parallelism=vertex.max_parallelism,
        parallelism=vertex.parallelism,
        status=_vertex_status(attempts),
        start_time=start,
        end_time=end,
        duration=duration(start, end, moment.now),
        tasks=_zeros() | Counter(each.state.value for each in attempts),
        metrics=io_metrics(moment, view.job_id, graph, attempts),
    )


def vertex_extent(attempts: Sequence[AttemptView]) -> tuple[int, int]:
    """Returns when the first attempt was deployed, and when the last ended; -1 for what has not happened."""
    starts = [start for each in attempts if (start := start_of(each)) >= 0]
    ends = [end_of(each) for each in attempts]
    return min(starts, default=-1), -1 if not ends or min(ends) < 0 else max(ends)


def _vertex_status(attempts: Iterable[AttemptView]) -> str:
    found = {each.state for each in attempts}
    for state in _PRECEDENCE:
        if state in found:
            return state.value
    if found == {ExecutionState.FINISHED}:
        return ExecutionState.FINISHED.value
    if ExecutionState.FINISHED in found:
        return ExecutionState.RUNNING.value
    for state in (ExecutionState.DEPLOYING, ExecutionState.SCHEDULED):
        if state in found:
            return state.value
    return ExecutionState.CREATED.value


def _zeros() -> dict[str, int]:
    return dict.fromkeys(EXECUTION_STATES, 0)


def _describe(strategy: msgspec.Struct) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in msgspec.structs.asdict(strategy).items())
    return f"{strategy.__struct_config__.tag} ({settings})"
