"""The metrics of TaskExecutors at the time of a request, by Flink's names. Moments of the past have none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..core.flink_ids import to_flink_vertex_id
from ..metrics import table
from ..metrics.samples import Sample
from ..metrics.table import Metric

Values = Mapping[str, float]
"""Flink's name of a metric -> its value, in Flink's unit."""


class TaskKey(NamedTuple):
    """A subtask on a TaskExecutor."""

    resource_id: str
    job_id: str
    vertex_id: str
    subtask_index: int


@dataclass(frozen=True, slots=True)
class LiveMetrics:
    """`workers`: resource id -> the metrics of a TaskExecutor itself."""

    workers: Mapping[str, Values] = field(default_factory=dict)
    tasks: Mapping[TaskKey, Values] = field(default_factory=dict)
    jobs: Mapping[str, Values] = field(default_factory=dict)
    """Job id -> the latencies that its tasks measure."""

    @classmethod
    def from_samples(cls, resource_id: str, samples: Iterable[Sample]) -> LiveMetrics:
        """Returns the metrics of one TaskExecutor. Raises ValueError for a subtask index that is no number."""
        jobs, others = _job_latencies(samples)
        own, vertices = _divide(others)
        tasks: dict[TaskKey, Values] = {}
        for (job_id, vertex_id), vertex_samples in vertices.items():
            for subtask, values in _divide_vertex(vertex_samples).items():
                tasks[TaskKey(resource_id, job_id, vertex_id, subtask)] = values_of(values)
        return cls({resource_id: values_of(own)}, tasks, jobs)

    @classmethod
    def merge(cls, parts: Iterable[LiveMetrics]) -> LiveMetrics:
        """Returns the metrics of several TaskExecutors."""
        workers: dict[str, Values] = {}
        tasks: dict[TaskKey, Values] = {}
        jobs: dict[str, Values] = {}
        for part in parts:
            workers.update(part.workers)
            tasks.update(part.tasks)
            for job_id, values in part.jobs.items():
                jobs[job_id] = {**jobs.get(job_id, {}), **values}
        return cls(workers, tasks, jobs)


NO_METRICS: Final = LiveMetrics()


def values_of(samples: Iterable[Sample]) -> dict[str, float]:
    """Returns the values of samples by Flink's names. One sample may have two: a count, and its rate."""
    values: dict[str, float] = {}
    for sample in samples:
        metric = sample.metric
        if metric in (table.USER_METRIC, table.ACCUMULATOR):
            # Flink has a metric of its own for each; a name of the runtime's is kept.
            values.setdefault(sample.labels[-1], sample.value)
            continue
        name = _NAMES.get(metric) or metric.flink or _SCOPE.sub("", metric.family)
        values[name] = sample.value * _FACTORS.get(metric, 1)
        if sample.per_second is not None:
            values[_RATES.get(metric, f"{name}PerSecond")] = sample.per_second * _FACTORS.get(metric, 1)
    return values


_SCOPE: Final = re.compile(r"^tailrace_(?:jobmanager|taskmanager)_(?:job_)?(?:task_)?")
_NAMES: Final[Mapping[Metric, str]] = {
    table.BUSY: "accumulateBusyTimeMs",
    table.IDLE: "accumulateIdleTimeMs",
    table.BACK_PRESSURED: "accumulateBackPressuredTimeMs",
    table.COUNTED: "accumulateCountedTimeMs",
    table.COUNTED_BUSY: "accumulateCountedBusyTimeMs",
    table.COMMITS: "numCommits",
    table.TASK_CPU: "processCpuTimeMs",
    table.TASK_MEMORY: "processResidentMemory",
}
"""The names of metrics that are others in Flink than in the table."""
_RATES: Final[Mapping[Metric, str]] = {
    metric: metric.flink for metric in (table.BUSY, table.IDLE, table.BACK_PRESSURED) if metric.flink
}
_FACTORS: Final[Mapping[Metric, float]] = {
    table.BUSY: 1_000,
    table.IDLE: 1_000,
    table.BACK_PRESSURED: 1_000,
    table.COUNTED: 1_000,
    table.COUNTED_BUSY: 1_000,
    table.WATERMARK: 1_000,
    table.TASK_CPU: 1_000,
    table.JVM_CPU: 1_000_000_000,
}
"""From seconds to Flink's unit."""


def _job_latencies(samples: Iterable[Sample]) -> tuple[dict[str, Values], list[Sample]]:
    """Returns job id -> latencies by Flink's names (LatencyStats) in milliseconds, and all other samples."""
    jobs: dict[str, dict[str, float]] = {}
    others: list[Sample] = []
    for sample in samples:
        if sample.metric is not table.LATENCY or sample.histogram is None:
            others.append(sample)
            continue
        labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
        scope = ".".join(
            f"{label}.{to_flink_vertex_id(labels[label]) if label in _OPERATOR_IDS else labels[label]}"
            for label in _LATENCY_SCOPE
            if labels[label]
        )
        values = jobs.setdefault(labels["job_id"], {})
        for name, value in sample.histogram.recent.items():
            values[f"latency.{scope}.latency_{name}"] = value
    return dict(jobs), others


_OPERATOR_IDS: Final = ("source_id", "operator_id")
_LATENCY_SCOPE: Final = ("source_id", "source_subtask_index", "operator_id", "operator_subtask_index")


def _divide(samples: Iterable[Sample]) -> tuple[list[Sample], dict[tuple[str, str], list[Sample]]]:
    """Returns the samples of the TaskExecutor itself, and those of each vertex and its subtasks."""
    own: list[Sample] = []
    vertices: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        labels = sample.metric.labels
        if "task_id" in labels:
            key = sample.labels[labels.index("job_id")], sample.labels[labels.index("task_id")]
            vertices.setdefault(key, []).append(sample)
        else:
            own.append(sample)
    return own, vertices


def _divide_vertex(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    """Returns the samples of each subtask of a vertex. What is measured for all of them belongs to the first one."""
    subtasks: dict[int, list[Sample]] = {}
    shared: list[Sample] = []
    for sample in samples:
        labels = sample.metric.labels
        if "subtask_index" in labels:
            subtasks.setdefault(int(sample.labels[labels.index("subtask_index")]), []).append(sample)
        else:
            shared.append(sample)
    if subtasks:
        subtasks[min(subtasks)] += shared
    return subtasks
