"""The samples of a TaskExecutor: pure functions of its state and of the figures of its runtime.

StreamTasks are many processes that live shortly. They serve nothing: the runtime has the figures that they report with
their beats and commits (pipelines/runtime/common/task_figures.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ...pipelines.runtime.common.latencies import BOUNDS_MS
from ...pipelines.runtime.common.protocol import TaskActivity, TaskMetrics
from ...pipelines.runtime.common.task_figures import RuntimeFigures, TaskFigures
from ..task_executor.state import TaskExecutorState
from ..task_executor.task_slot_table import TaskSlotState
from . import table
from .samples import Histogram, Sample
from .table import Metric

_MILLISECONDS: Final = 1000
_LATENCY_BOUNDS: Final = tuple(bound / _MILLISECONDS for bound in BOUNDS_MS)


class ProcessUsage(msgspec.Struct, frozen=True):
    """What a process uses."""

    cpu_s: float
    resident_bytes: int


def sample_groups(
    state: object, figures: RuntimeFigures, usage: Mapping[int, ProcessUsage], resource_id: str
) -> Iterator[Sequence[Sample]]:
    """Yields the samples of the TaskExecutor, then those of each task, then their latencies, then the users' metrics of
    each task.

    `state`: a TaskExecutorState, or None before there is one. `usage`: process id -> what that process uses.
    """
    yield [*_own_samples(state, figures, resource_id), *_jvm_samples(figures, usage, resource_id)]
    unreported = dict(usage)
    for task in figures.tasks:
        yield task_samples(task, unreported, resource_id)
        if task.process_id is not None:
            # A sum over tasks has each process once.
            unreported.pop(task.process_id, None)
    for source in figures.sources:
        labels = (resource_id, *msgspec.structs.astuple(source.vertex))
        yield [
            Sample(table.PENDING_RECORDS, labels, source.pending_records),
            Sample(table.ASSIGNED_PARTITIONS, labels, source.partitions),
        ]
    for task in figures.tasks:
        yield latency_samples(task, resource_id)
    for task in figures.tasks:
        yield user_samples(task, resource_id)


def _own_samples(state: object, figures: RuntimeFigures, resource_id: str) -> list[Sample]:
    own = state if isinstance(state, TaskExecutorState) else None
    slots = () if own is None else tuple(own.slots.slots.values())
    labels = (resource_id,)
    return [
        Sample(table.WORKER_REGISTERED, labels, own is not None and own.instance_id is not None),
        Sample(table.WORKER_SLOTS_TOTAL, labels, len(slots)),
        Sample(table.WORKER_SLOTS_AVAILABLE, labels, sum(slot.state is TaskSlotState.FREE for slot in slots)),
        Sample(table.WORKER_TASKS, labels, len(figures.tasks)),
    ]


def _jvm_samples(
    figures: RuntimeFigures, usage: Mapping[int, ProcessUsage], resource_id: str
) -> list[Sample]:
    used = None if figures.jvm_process_id is None else usage.get(figures.jvm_process_id)
    if used is None:
        return []
    return [
        Sample(table.JVM_CPU, (resource_id,), used.cpu_s),
        Sample(table.JVM_MEMORY, (resource_id,), used.resident_bytes),
        Sample(table.JVM_HEAP_MAX, (resource_id,), figures.jvm_heap_bytes),
    ]


def task_samples(task: TaskFigures, usage: Mapping[int, ProcessUsage], resource_id: str) -> list[Sample]:
    """Returns the samples of one task."""
    labels = _labels(task, resource_id)
    counts, earlier = _counts(task.metrics, task.activity), task.earlier
    if earlier is None:
        rates: Mapping[Metric, float] = {}
    else:
        passed = task.activity.measured_s - earlier.activity.measured_s
        before = _counts(earlier.metrics, earlier.activity)
        rates = (
            {each: max(0.0, counts[each] - before[each]) / passed for each in counts} if passed > 0 else {}
        )
    found = [Sample(metric, labels, count, rates.get(metric)) for metric, count in counts.items()]
    if task.activity.watermark is not None:
        found.append(Sample(table.WATERMARK, labels, task.activity.watermark / _MILLISECONDS))
    if task.metrics.positions:
        position = sum(sum(partitions.values()) for partitions in task.metrics.positions.values())
        found.append(Sample(table.SOURCE_POSITION, labels, position))
    found += [
        Sample(table.DATABASE[name], labels, value)
        for name, value in task.metrics.database.items()
        if name in table.DATABASE
    ]
    used = None if task.process_id is None else usage.get(task.process_id)
    if used is not None:
        found.append(Sample(table.TASK_CPU, labels, used.cpu_s))
        found.append(Sample(table.TASK_MEMORY, labels, used.resident_bytes))
    return found


def _counts(metrics: TaskMetrics, activity: TaskActivity) -> dict[Metric, float]:
    return {
        table.RECORDS_IN: metrics.records_in,
        table.RECORDS_OUT: metrics.records_out,
        table.BYTES_IN: metrics.bytes_in,
        table.BYTES_OUT: metrics.bytes_out,
        table.COMMITS: metrics.commits,
        table.BUSY: activity.busy_s,
        table.IDLE: activity.idle_s,
        table.BACK_PRESSURED: activity.back_pressured_s,
        table.COUNTED: activity.counted_s,
        table.COUNTED_BUSY: activity.counted_busy_s,
    }


def latency_samples(task: TaskFigures, resource_id: str) -> list[Sample]:
    """Returns the latencies from sources to one task."""
    of_job = resource_id, task.vertex.job_id, task.vertex.job_name
    found = []
    for each in task.metrics.latencies:
        source_subtask = "" if each.source_subtask is None else str(each.source_subtask)
        labels = *of_job, each.source_id, source_subtask, each.operator_id, str(task.subtask_index)
        histogram = Histogram(_LATENCY_BOUNDS, each.counts, each.sum_ms / _MILLISECONDS, each.recent)
        found.append(Sample(table.LATENCY, labels, histogram.count, histogram=histogram))
    return found


def user_samples(task: TaskFigures, resource_id: str) -> list[Sample]:
    """Returns the metrics and accumulators of the functions of one task."""
    labels = _labels(task, resource_id)
    values = (table.USER_METRIC, task.metrics.metrics), (table.ACCUMULATOR, task.metrics.accumulators)
    return [
        Sample(metric, (*labels, name), value) for metric, named in values for name, value in named.items()
    ]


def _labels(task: TaskFigures, resource_id: str) -> tuple[str, ...]:
    return resource_id, *msgspec.structs.astuple(task.vertex), str(task.subtask_index)
