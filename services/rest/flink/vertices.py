"""The vertices of a job and their subtasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ...history.execution_history import AttemptView, ExecutionGraphView, VertexView
from ..endpoint import Parameters
from ..moment import Moment
from . import ids
from .jobs import vertex_extent
from .lookup import find_attempt, find_attempts, find_graph, find_job, find_vertex
from .metrics import IoMetrics, io_metrics
from .times import (
    EXECUTION_STATES,
    Percentiles,
    duration,
    end_of,
    start_of,
    state_durations,
    state_times,
)

_NOWHERE = "(unassigned)"


class Subtask(msgspec.Struct, frozen=True, rename="kebab"):
    """An attempt: Flink's SubtaskExecutionAttemptDetailsInfo. `start_time` is there twice, as in Flink."""

    subtask: int
    status: str
    attempt: int
    endpoint: str
    start_time: int
    end_time: int
    duration: int
    metrics: IoMetrics
    taskmanager_id: str
    status_duration: Mapping[str, int]
    start_time_compatible: int = msgspec.field(name="start_time")


class Aggregated(msgspec.Struct, frozen=True, rename="kebab"):
    """The distributions of metrics and durations over subtasks."""

    metrics: Mapping[str, Percentiles]
    status_duration: Mapping[str, Percentiles]


class VertexDetailsInfo(msgspec.Struct, frozen=True):
    """/jobs/:jobid/vertices/:vertexid"""

    id: str
    name: str
    parallelism: int
    max_parallelism: int = msgspec.field(name="maxParallelism")
    now: int
    subtasks: Sequence[Subtask]
    aggregated: Aggregated


class SubtaskTime(msgspec.Struct, frozen=True):
    """When a subtask entered each state; 0 for others."""

    subtask: int
    endpoint: str
    duration: int
    timestamps: Mapping[str, int]


class SubtaskTimes(msgspec.Struct, frozen=True):
    """/jobs/:jobid/vertices/:vertexid/subtasktimes"""

    id: str
    name: str
    now: int
    subtasks: Sequence[SubtaskTime]


class VertexTaskManager(msgspec.Struct, frozen=True, rename="kebab"):
    """The subtasks of a vertex on one TaskExecutor."""

    endpoint: str
    status: str
    start_time: int
    end_time: int
    duration: int
    metrics: IoMetrics
    status_counts: Mapping[str, int]
    taskmanager_id: str
    aggregated: Aggregated


class VertexTaskManagers(msgspec.Struct, frozen=True):
    """/jobs/:jobid/vertices/:vertexid/taskmanagers"""

    id: str
    name: str
    now: int
    taskmanagers: Sequence[VertexTaskManager]


class UserAccumulator(msgspec.Struct, frozen=True):
    """A counter of a subtask that has ended."""

    name: str
    type: str
    value: str


class VertexAccumulators(msgspec.Struct, frozen=True, rename="kebab"):
    """/jobs/:jobid/vertices/:vertexid/accumulators"""

    id: str
    user_accumulators: Sequence[UserAccumulator]


class SubtaskAccumulators(msgspec.Struct, frozen=True, rename="kebab"):
    """The counters of one subtask."""

    subtask: int
    attempt: int
    endpoint: str
    user_accumulators: Sequence[UserAccumulator]


class SubtasksAccumulators(msgspec.Struct, frozen=True):
    """/jobs/:jobid/vertices/:vertexid/subtasks/accumulators"""

    id: str
    parallelism: int
    subtasks: Sequence[SubtaskAccumulators]


class AttemptAccumulators(msgspec.Struct, frozen=True, rename="kebab"):
    """/jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt/accumulators"""

    subtask: int
    attempt: int
    id: str
    user_accumulators: Sequence[UserAccumulator]


def vertex(moment: Moment, parameters: Parameters) -> VertexDetailsInfo:
    """GET /jobs/:jobid/vertices/:vertexid"""
    job_id, graph, found = _find(moment, parameters)
    subtasks = [_subtask(moment, job_id, graph, each) for each in find_attempts(graph, found)]
    return VertexDetailsInfo(
        id=ids.to_vertex_id(found.vertex_id),
        name=found.name,
        parallelism=found.parallelism,
        max_parallelism=found.max_parallelism,
        now=moment.now,
        subtasks=subtasks,
        aggregated=_aggregate(subtasks),
    )


def subtask_times(moment: Moment, parameters: Parameters) -> SubtaskTimes:
    """GET /jobs/:jobid/vertices/:vertexid/subtasktimes"""
    _, graph, found = _find(moment, parameters)
    return SubtaskTimes(
        id=ids.to_vertex_id(found.vertex_id),
        name=found.name,
        now=moment.now,
        subtasks=[
            SubtaskTime(
                subtask=each.subtask_index,
                endpoint=each.resource_id or _NOWHERE,
                duration=duration(start_of(each), end_of(each), moment.now),
                timestamps=state_times(each),
            )
            for each in find_attempts(graph, found)
        ],
    )


def taskmanagers(moment: Moment, parameters: Parameters) -> VertexTaskManagers:
    """GET /jobs/:jobid/vertices/:vertexid/taskmanagers"""
    job_id, graph, found = _find(moment, parameters)
    grouped: dict[str, list[AttemptView]] = {}
    for each in find_attempts(graph, found):
        grouped.setdefault(each.resource_id or _NOWHERE, []).append(each)
    return VertexTaskManagers(
        id=ids.to_vertex_id(found.vertex_id),
        name=found.name,
        now=moment.now,
        taskmanagers=[_taskmanager(moment, job_id, graph, name, grouped[name]) for name in sorted(grouped)],
    )


def accumulators(moment: Moment, parameters: Parameters) -> VertexAccumulators:
    """GET /jobs/:jobid/vertices/:vertexid/accumulators: the sums over subtasks that have ended"""
    _, graph, found = _find(moment, parameters)
    sums: Counter[str] = Counter()
    for each in find_attempts(graph, found):
        for name, value in _counts(graph, each).items():
            sums[name] += value  # type: ignore[assignment]
    return VertexAccumulators(ids.to_vertex_id(found.vertex_id), _accumulators(sums))


def subtasks_accumulators(moment: Moment, parameters: Parameters) -> SubtasksAccumulators:
    """GET /jobs/:jobid/vertices/:vertexid/subtasks/accumulators"""
    _, graph, found = _find(moment, parameters)
    return SubtasksAccumulators(
        id=ids.to_vertex_id(found.vertex_id),
        parallelism=found.parallelism,
        subtasks=[
            SubtaskAccumulators(
                each.subtask_index,
                each.attempt_number,
                each.resource_id or _NOWHERE,
                _accumulators(_counts(graph, each)),
            )
            for each in find_attempts(graph, found)
        ],
    )


def subtask(moment: Moment, parameters: Parameters) -> Subtask:
    """GET /jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex, and the same of one attempt"""
    job_id, graph, found = _find(moment, parameters)
    return _subtask(moment, job_id, graph, find_attempt(graph, found, parameters))


def attempt_accumulators(moment: Moment, parameters: Parameters) -> AttemptAccumulators:
    """GET /jobs/:jobid/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt/accumulators"""
    job_id, graph, found = _find(moment, parameters)
    each = find_attempt(graph, found, parameters)
    return AttemptAccumulators(
        subtask=each.subtask_index,
        attempt=each.attempt_number,
        id=ids.to_attempt_id(job_id, each.vertex_id, each.subtask_index, each.attempt_number),
        user_accumulators=_accumulators(_counts(graph, each)),
    )


def _find(moment: Moment, parameters: Parameters) -> tuple[str, ExecutionGraphView, VertexView]:
    _, view = find_job(moment, parameters)
    graph = find_graph(moment, view)
    return view.job_id, graph, find_vertex(graph, parameters)


def _subtask(moment: Moment, job_id: str, graph: ExecutionGraphView, attempt: AttemptView) -> Subtask:
    start, end = start_of(attempt), end_of(attempt)
    return Subtask(
        subtask=attempt.subtask_index,
        status=attempt.state.value,
        attempt=attempt.attempt_number,
        endpoint=attempt.resource_id or _NOWHERE,
        start_time=start,
        end_time=end,
        duration=duration(start, end, moment.now),
        metrics=io_metrics(moment, job_id, graph, [attempt]),
        taskmanager_id=attempt.resource_id or _NOWHERE,
        status_duration=state_durations(attempt, moment.now),
        start_time_compatible=start,
    )


def _taskmanager(
    moment: Moment, job_id: str, graph: ExecutionGraphView, name: str, attempts: Sequence[AttemptView]
) -> VertexTaskManager:
    start, end = vertex_extent(attempts)
    counts = Counter(each.state.value for each in attempts)
    return VertexTaskManager(
        endpoint=name,
        status=max(counts, key=lambda state: (counts[state], state)),
        start_time=start,
        end_time=end,
        duration=duration(start, end, moment.now),
        metrics=io_metrics(moment, job_id, graph, attempts),
        status_counts=dict.fromkeys(EXECUTION_STATES, 0) | counts,
        taskmanager_id=name,
        aggregated=_aggregate([_subtask(moment, job_id, graph, each) for each in attempts]),
    )


def _aggregate(subtasks: Sequence[Subtask]) -> Aggregated:
    metrics = [msgspec.to_builtins(each.metrics) for each in subtasks]
    names = [name for name in msgspec.to_builtins(IoMetrics()) if not name.endswith("-complete")]
    durations: dict[str, list[int]] = {}
    for each in subtasks:
        for state, value in each.status_duration.items():
            durations.setdefault(state, []).append(value)
    return Aggregated(
        metrics={name: Percentiles.of([int(each[name]) for each in metrics]) for name in names},
        status_duration={state: Percentiles.of(values) for state, values in durations.items()},
    )


def _counts(graph: ExecutionGraphView, attempt: AttemptView) -> Mapping[str, float]:
    return graph.counts.get(f"{attempt.vertex_id}/{attempt.subtask_index}", {})


def _accumulators(counts: Mapping[str, float]) -> list[UserAccumulator]:
    return [UserAccumulator(name, "DoubleCounter", f"{value:g}") for name, value in sorted(counts.items())]
