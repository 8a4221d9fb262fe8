"""What a TaskExecutor's runtime has measured of its attempts. Plain data, for metrics."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .protocol import SampledStack, TaskActivity, TaskMetrics

NO_METRICS = TaskMetrics(0, 0, 0)


class VertexName(msgspec.Struct, frozen=True, order=True):
    """A vertex of a job."""

    job_id: str
    job_name: str
    vertex_id: str
    vertex_name: str


class TaskReport(msgspec.Struct, frozen=True):
    """What a StreamTask has reported of itself up to one time."""

    metrics: TaskMetrics = NO_METRICS
    activity: TaskActivity = TaskActivity()


class TaskFigures(msgspec.Struct, frozen=True):
    """The last figures of one attempt that has not ended."""

    vertex: VertexName
    subtask_index: int
    attempt_number: int
    process_id: int | None = None
    """The process of its StreamTask; None before it has restored its state."""
    metrics: TaskMetrics = NO_METRICS
    activity: TaskActivity = TaskActivity()
    earlier: TaskReport | None = None
    """A report of some seconds before, for rates; None: there are no rates."""


class TaskStacks(msgspec.Struct, frozen=True):
    """Samples of what one attempt does."""

    vertex: VertexName
    subtask_index: int
    stacks: Sequence[SampledStack]


class SourceFigures(msgspec.Struct, frozen=True):
    """The last figures of the unbounded Kafka source of a vertex, for all its subtasks in one runtime."""

    vertex: VertexName
    pending_records: int
    """The records that it has not read yet."""
    partitions: int
    """The partitions that it reads."""


class RuntimeFigures(msgspec.Struct, frozen=True):
    """The figures of one runtime."""

    tasks: Sequence[TaskFigures] = ()
    """In the order in which they were deployed."""
    sources: Sequence[SourceFigures] = ()
    """Those of which the lag is measured."""
    jvm_process_id: int | None = None
    """The process of Spark's JVM, once it runs."""
    jvm_heap_bytes: int = 0
    """The largest heap of that JVM."""
