"""Jobs: the lists, and the details of one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ....pipelines.graph import job_options
from ....schemas.states import JOB_ENDS
from ....schemas.types import ExecutionState, JobStatus
from ...configuration.role_options import NoRestart, restart_strategy
from ...history import cluster_view
from ...history.cluster_view import JobView
from ...history.execution_history import AttemptView, ExecutionGraphView, VertexView
from ...history.forgotten_jobs import ForgottenJob
from ..endpoint import Parameters
from ..moment import Moment
from . import ids
from .lookup import dispatcher, find_attempts, find_graph, find_job
from .metrics import IoMetrics, io_metrics
from .plan import Plan, plan_of
from .times import EXECUTION_STATES, JOB_STATUSES, duration, end_of, start_of, to_ms

_MAX_EXCEPTIONS = 20
"""The number of failures that Flink returns unless `maxExceptions` says another."""

# The state of a vertex is the first of these that one of its subtasks has; Flink's aggregateJobVertexState.
_PRECEDENCE = (
    ExecutionState.FAILED,
    ExecutionState.CANCELING,
    ExecutionState.CANCELED,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)


class JobIdWithStatus(msgspec.Struct, frozen=True):
    """A job in /jobs."""

    id: str
    status: str


class JobIds(msgspec.Struct, frozen=True):
    """Flink's JobIdsWithStatusOverview."""

    jobs: Sequence[JobIdWithStatus]


class TaskCounts(msgspec.Struct, frozen=True):
    """The number of current attempts in each state."""

    running: int
    canceling: int
    canceled: int
    total: int
    created: int
    scheduled: int
    deploying: int
    reconciling: int
    finished: int
    initializing: int
    failed: int


class JobDetails(msgspec.Struct, frozen=True, rename="kebab"):
    """A job in /jobs/overview: Flink's JobDetails."""

    jid: str
    name: str
    job_type: str = msgspec.field(name="jobType")
    scheduler_type: str = msgspec.field(name="schedulerType")
    start_time: int
    end_time: int
    duration: int
    state: str
    last_modification: int
    tasks: TaskCounts
    pending_operators: int


class JobsOverview(msgspec.Struct, frozen=True):
    """Flink's MultipleJobsDetails."""

    jobs: Sequence[JobDetails]


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


class RootException(msgspec.Struct, frozen=True, rename="camel"):
    """A failure of a task."""

    exception_name: str
    stacktrace: str
    timestamp: int
    failure_labels: Mapping[str, str]
    task_name: str | None
    endpoint: str | None
    task_manager_id: str | None
    concurrent_exceptions: Sequence[str]


class ExceptionHistory(msgspec.Struct, frozen=True):
    """The failures, newest first."""

    entries: Sequence[RootException]
    truncated: bool


class JobExceptions(msgspec.Struct, frozen=True, rename="camel"):
    """/jobs/:jobid/exceptions"""

    exception_history: ExceptionHistory


class ParallelismBounds(msgspec.Struct, frozen=True, rename="camel"):
    """The bounds of the parallelism of a vertex. They are equal: tailrace does not change it while a job runs."""

    lower_bound: int
    upper_bound: int


class VertexRequirements(msgspec.Struct, frozen=True):
    """Flink's JobVertexResourceRequirements."""

    parallelism: ParallelismBounds


class Accumulator(msgspec.Struct, frozen=True):
    """The sum of a counter over all subtasks that have ended."""

    name: str
    type: str
    value: str


class JobAccumulators(msgspec.Struct, frozen=True, rename="kebab"):
    """/jobs/:jobid/accumulators"""

    job_accumulators: Sequence[Accumulator]
    user_task_accumulators: Sequence[Accumulator]
    serialized_user_task_accumulators: Mapping[str, str]


class QueueStatus(msgspec.Struct, frozen=True):
    """IN_PROGRESS or COMPLETED."""

    id: str


class FailureCause(msgspec.Struct, frozen=True, rename="kebab"):
    """Why a job or an operation failed. `class` names Flink's exception, `stack_trace` is one sentence."""

    class_name: str = msgspec.field(name="class")
    stack_trace: str


class JobExecutionResult(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """The result of a job that has ended. Flink's clients read JobResult's fields."""

    id: str
    application_status: str
    net_runtime: int
    accumulator_results: Mapping[str, str]
    failure_cause: FailureCause | None = None


class JobExecutionResultResponse(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """/jobs/:jobid/execution-result"""

    status: QueueStatus
    job_execution_result: JobExecutionResult | None = None


def jobs(moment: Moment, _: Parameters) -> JobIds:
    """GET /jobs"""
    return JobIds(
        [
            JobIdWithStatus(ids.to_job_id(job_id), status.value)
            for job_id, status in cluster_view.statuses(moment.fold.replica).items()
        ]
    )


def overview(moment: Moment, _: Parameters) -> JobsOverview:
    """GET /jobs/overview"""
    return JobsOverview([details_of(moment, view) for view in cluster_view.jobs(moment.fold)])


def job(moment: Moment, parameters: Parameters) -> JobDetailsInfo:
    """GET /jobs/:jobid"""
    _, view = find_job(moment, parameters)
    graph = find_graph(moment, view)
    start, end = _extent(view)
    statuses = moment.fold.executions.statuses(view.job_id)
    entered = {status.value: time // 1000 for status, time in statuses.items()}
    vertices = [_vertex(moment, view, graph, vertex) for vertex in graph.vertices]
    return JobDetailsInfo(
        jid=ids.to_job_id(view.job_id),
        application_id=ids.to_job_id(view.job_id),
        name=view.name,
        is_stoppable=False,
        state=view.status.value,
        job_type="STREAMING",
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
    own = dict(graph.configuration)
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


def exceptions(moment: Moment, parameters: Parameters) -> JobExceptions:
    """GET /jobs/:jobid/exceptions: the last failures of tasks, newest first"""
    _, view = find_job(moment, parameters)
    known = find_graph(moment, view).exceptions or view.failures
    most = parameters.get("maxExceptions")
    kept = list(reversed(known))[: _MAX_EXCEPTIONS if most is None else most]
    entries = [
        RootException(
            exception_name=_exception_name(each.text),
            stacktrace=each.text,
            timestamp=each.time // 1000,
            failure_labels={},
            task_name=each.task,
            endpoint=each.resource_id,
            task_manager_id=each.resource_id,
            concurrent_exceptions=(),
        )
        for each in kept
    ]
    return JobExceptions(ExceptionHistory(entries, len(kept) < len(known)))


def accumulators(moment: Moment, parameters: Parameters) -> JobAccumulators:
    """GET /jobs/:jobid/accumulators"""
    _, view = find_job(moment, parameters)
    counters = [
        Accumulator(name, "DoubleCounter", json.dumps(value))
        for name, value in sorted(view.accumulators.items())
    ]
    return JobAccumulators((), counters, {})


def resource_requirements(moment: Moment, parameters: Parameters) -> dict[str, VertexRequirements]:
    """GET /jobs/:jobid/resource-requirements: the parallelism of each vertex"""
    _, view = find_job(moment, parameters)
    return {
        ids.to_vertex_id(vertex.vertex_id): VertexRequirements(
            ParallelismBounds(vertex.parallelism, vertex.parallelism)
        )
        for vertex in find_graph(moment, view).vertices
    }


def execution_result(moment: Moment, parameters: Parameters) -> JobExecutionResultResponse:
    """GET /jobs/:jobid/execution-result: IN_PROGRESS until the job has ended"""
    _, view = find_job(moment, parameters)
    if view.status not in JOB_ENDS:
        return JobExecutionResultResponse(QueueStatus("IN_PROGRESS"))
    start, end = _extent(view)
    names = {JobStatus.FINISHED: "SUCCEEDED", JobStatus.CANCELED: "CANCELED", JobStatus.FAILED: "FAILED"}
    result = JobExecutionResult(
        id=ids.to_job_id(view.job_id),
        application_status=names[view.status],
        net_runtime=max(0, duration(start, end, moment.now)),
        accumulator_results={},
        failure_cause=None
        if view.status is JobStatus.FINISHED
        else FailureCause(
            "org.apache.flink.runtime.client.JobCancellationException"
            if view.status is JobStatus.CANCELED
            else "org.apache.flink.runtime.client.JobExecutionException",
            view.reason or f"the job is {view.status.value}",
        ),
    )
    return JobExecutionResultResponse(QueueStatus("COMPLETED"), result)


def all_jobs(moment: Moment, _: Parameters) -> JobIds:
    """GET /jobs: all jobs that the log has, also forgotten ones"""
    return JobIds([JobIdWithStatus(each.jid, each.state) for each in all_jobs_overview(moment, {}).jobs])


def all_jobs_overview(moment: Moment, _: Parameters) -> JobsOverview:
    """GET /jobs/overview: all jobs that the log has, also those that the cluster has forgotten"""
    forgotten = [_forgotten_details(job_id, job) for job_id, job in moment.fold.forgotten.all().items()]
    return JobsOverview([*forgotten, *overview(moment, {}).jobs])


def _forgotten_details(job_id: str, job: ForgottenJob) -> JobDetails:
    start, end = to_ms(job.submitted), to_ms(job.ended)
    counts = {name.lower(): job.tasks.get(name, 0) for name in EXECUTION_STATES}
    return JobDetails(
        jid=ids.to_job_id(job_id),
        name=job.name,
        job_type="STREAMING",
        scheduler_type="Default",
        start_time=start,
        end_time=end,
        duration=duration(start, end, end),
        state=job.status.value,
        last_modification=max(start, end, 0),
        tasks=TaskCounts(total=sum(job.tasks.values()), **counts),
        pending_operators=0,
    )


def details_of(moment: Moment, view: JobView) -> JobDetails:
    """Returns the summary of a job."""
    start, end = _extent(view)
    counts = {name.lower(): view.tasks.get(name, 0) for name in EXECUTION_STATES}
    statuses = moment.fold.executions.statuses(view.job_id)
    return JobDetails(
        jid=ids.to_job_id(view.job_id),
        name=view.name,
        job_type="STREAMING",
        scheduler_type="Default",
        start_time=start,
        end_time=end,
        duration=duration(start, end, moment.now),
        state=view.status.value,
        last_modification=max(start, end, *(time // 1000 for time in statuses.values()), 0),
        tasks=TaskCounts(total=sum(view.tasks.values()), **counts),
        pending_operators=0,
    )


def _extent(view: JobView) -> tuple[int, int]:
    return to_ms(view.submitted), to_ms(view.ended) if view.status in JOB_ENDS else -1


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


def _exception_name(text: str) -> str:
    """Returns the type of the exception: of a stack trace of Python, that in its last line."""
    lines = [line for line in text.strip().splitlines() if line and not line.startswith(" ")]
    name = (lines[-1] if lines else "").partition(":")[0].strip()
    return name if name and " " not in name else "TaskFailure"


def _describe(strategy: msgspec.Struct) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in msgspec.structs.asdict(strategy).items())
    return f"{strategy.__struct_config__.tag} ({settings})"
