"""Checkpoints and savepoints of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from ....schemas.types import SnapshotType
from ...configuration.role_options import CheckpointingOptions, job_configuration
from ...history import cluster_view
from ...history.checkpoint_history import (
    CheckpointStatus,
    CheckpointsView,
    CheckpointView,
    RestoreView,
    SubtaskCheckpointView,
)
from ...history.execution_history import ExecutionGraphView, VertexView
from ..endpoint import Parameters
from ..errors import NotFound
from ..moment import Moment
from . import ids
from .lookup import dispatcher, find_graph, find_job, find_vertex

_MAX_HISTORY = 10
"""Flink's rest.web.checkpoints-history."""
_FOREVER = 2**63 - 1

Quantile = float | Literal["NaN"]


class Statistics(msgspec.Struct, frozen=True):
    """Flink's StatsSummaryDto."""

    min: int
    max: int
    avg: int
    p50: Quantile
    p90: Quantile
    p95: Quantile
    p99: Quantile
    p999: Quantile

    @classmethod
    def of(cls, values: Sequence[int]) -> Statistics:
        """Returns the summary of the values; without values it has zeros and NaN, as in Flink."""
        if not values:
            return cls(0, 0, 0, "NaN", "NaN", "NaN", "NaN", "NaN")
        ordered = sorted(values)

        def quantile(fraction: float) -> float:
            position = fraction * (len(ordered) + 1) - 1
            low = min(len(ordered) - 1, max(0, int(position)))
            high = min(len(ordered) - 1, low + 1)
            share = min(1.0, max(0.0, position - low))
            return ordered[low] + share * (ordered[high] - ordered[low])

        return cls(
            ordered[0],
            ordered[-1],
            sum(ordered) // len(ordered),
            *(quantile(fraction) for fraction in (0.5, 0.9, 0.95, 0.99, 0.999)),
        )


class Counts(msgspec.Struct, frozen=True):
    """The number of checkpoints by their status."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class Summary(msgspec.Struct, frozen=True):
    """Statistics over complete checkpoints. Sizes in bytes, durations in milliseconds."""

    checkpointed_size: Statistics
    state_size: Statistics
    end_to_end_duration: Statistics
    alignment_buffered: Statistics
    processed_data: Statistics
    persisted_data: Statistics


class TaskCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint of one vertex."""

    id: int
    status: str
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class Checkpoint(msgspec.Struct, frozen=True):
    """Flink's CheckpointStatistics. `external_path`, `discarded`: of complete ones. `failure_*`: of failed ones."""

    class_name: Literal["completed", "failed", "in_progress"] = msgspec.field(name="className")
    id: int
    status: str
    is_savepoint: bool
    savepoint_format: str | None = msgspec.field(name="savepointFormat")
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    checkpoint_type: str
    tasks: Mapping[str, TaskCheckpoint]
    external_path: str | msgspec.UnsetType = msgspec.UNSET
    discarded: bool | msgspec.UnsetType = msgspec.UNSET
    failure_timestamp: int | msgspec.UnsetType = msgspec.UNSET
    failure_message: str | msgspec.UnsetType = msgspec.UNSET


class RestoredCheckpoint(msgspec.Struct, frozen=True):
    """The checkpoint that the job last restored."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str


class Latest(msgspec.Struct, frozen=True):
    """The newest checkpoints of each kind."""

    completed: Checkpoint | None
    savepoint: Checkpoint | None
    failed: Checkpoint | None
    restored: RestoredCheckpoint | None


class CheckpointingStatistics(msgspec.Struct, frozen=True):
    """/jobs/:jobid/checkpoints. `history` has the last ten, newest first, without their tasks."""

    counts: Counts
    summary: Summary
    latest: Latest
    history: Sequence[Checkpoint]


class Externalization(msgspec.Struct, frozen=True):
    """Whether checkpoints outlive their job."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfiguration(msgspec.Struct, frozen=True):
    """/jobs/:jobid/checkpoints/config: Flink's CheckpointConfigInfo. Times in milliseconds."""

    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    changelog_periodic_materialization_interval: int
    changelog_storage: str


class CheckpointDuration(msgspec.Struct, frozen=True):
    """The synchronous and the asynchronous part, in milliseconds."""

    sync: int
    async_: int = msgspec.field(name="async")


class Alignment(msgspec.Struct, frozen=True):
    """What happened while a subtask waited for all barriers."""

    buffered: int
    processed: int
    persisted: int
    duration: int


class SubtaskCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """The snapshot of a subtask. One that has not acknowledged has only an index and a status."""

    class_name: Literal["completed", "pending_or_failed"] = msgspec.field(name="className")
    index: int
    status: str
    ack_timestamp: int | msgspec.UnsetType = msgspec.UNSET
    end_to_end_duration: int | msgspec.UnsetType = msgspec.UNSET
    checkpointed_size: int | msgspec.UnsetType = msgspec.UNSET
    state_size: int | msgspec.UnsetType = msgspec.UNSET
    checkpoint: CheckpointDuration | msgspec.UnsetType = msgspec.UNSET
    alignment: Alignment | msgspec.UnsetType = msgspec.UNSET
    start_delay: int | msgspec.UnsetType = msgspec.UNSET
    unaligned_checkpoint: bool | msgspec.UnsetType = msgspec.UNSET
    aborted: bool | msgspec.UnsetType = msgspec.UNSET


class DurationSummary(msgspec.Struct, frozen=True):
    """Statistics of CheckpointDuration."""

    sync: Statistics
    async_: Statistics = msgspec.field(name="async")


class AlignmentSummary(msgspec.Struct, frozen=True):
    """Statistics of Alignment."""

    buffered: Statistics
    processed: Statistics
    persisted: Statistics
    duration: Statistics


class SubtasksSummary(msgspec.Struct, frozen=True):
    """Statistics over the subtasks that have acknowledged."""

    checkpointed_size: Statistics
    state_size: Statistics
    end_to_end_duration: Statistics
    checkpoint_duration: DurationSummary
    alignment: AlignmentSummary
    start_delay: Statistics


class TaskCheckpointDetails(TaskCheckpoint, frozen=True):
    """/jobs/:jobid/checkpoints/details/:checkpointid/subtasks/:vertexid"""

    summary: SubtasksSummary
    subtasks: Sequence[SubtaskCheckpoint]


def checkpoints(moment: Moment, parameters: Parameters) -> CheckpointingStatistics:
    """GET /jobs/:jobid/checkpoints"""
    _, view = find_job(moment, parameters)
    found = cluster_view.checkpoints(moment.fold, view.job_id)
    graph = find_graph(moment, view)
    newest = list(reversed(found.checkpoints))
    complete = [each for each in newest if each.status is CheckpointStatus.COMPLETED]

    def first(accepts: Callable[[CheckpointView], bool]) -> Checkpoint | None:
        each = next((each for each in newest if accepts(each)), None)
        return None if each is None else _checkpoint(moment, graph, view.job_id, each, with_tasks=False)

    in_progress = sum(each.status is CheckpointStatus.IN_PROGRESS for each in newest)
    return CheckpointingStatistics(
        counts=Counts(
            restored=int(found.restored is not None and found.restored.failure is None),
            total=found.completed + found.failed + in_progress,
            in_progress=in_progress,
            completed=found.completed,
            failed=found.failed,
        ),
        summary=Summary(
            checkpointed_size=Statistics.of([each.bytes_written for each in complete]),
            state_size=Statistics.of([each.size for each in complete]),
            end_to_end_duration=Statistics.of([_duration(moment, each) for each in complete]),
            alignment_buffered=Statistics.of([0] * len(complete)),
            processed_data=Statistics.of([0] * len(complete)),
            persisted_data=Statistics.of([_persisted(each.subtasks) for each in complete]),
        ),
        latest=Latest(
            completed=first(
                lambda each: each.status is CheckpointStatus.COMPLETED and not _is_savepoint(each)
            ),
            savepoint=first(lambda each: each.status is CheckpointStatus.COMPLETED and _is_savepoint(each)),
            failed=first(lambda each: each.status is CheckpointStatus.FAILED),
            restored=_restored(found),
        ),
        history=[
            _checkpoint(moment, graph, view.job_id, each, with_tasks=False) for each in newest[:_MAX_HISTORY]
        ],
    )


def configuration(moment: Moment, parameters: Parameters) -> CheckpointConfiguration:
    """GET /jobs/:jobid/checkpoints/config"""
    _, view = find_job(moment, parameters)
    cluster = dispatcher(moment).configuration or {}
    options = CheckpointingOptions.from_configuration(
        job_configuration(cluster, find_graph(moment, view).configuration)
    )
    is_retained = options.retention.value != "NO_EXTERNALIZED_CHECKPOINTS"
    tolerable = options.tolerable_failures
    return CheckpointConfiguration(
        mode="exactly_once",
        interval=_FOREVER if options.interval is None else options.interval // 1000,
        timeout=options.timeout // 1000,
        min_pause=options.min_pause // 1000,
        max_concurrent=options.max_concurrent,
        externalization=Externalization(
            enabled=is_retained, delete_on_cancellation=options.retention.value != "RETAIN_ON_CANCELLATION"
        ),
        state_backend="StreamTask",
        checkpoint_storage="FileSystemCheckpointStorage",
        unaligned_checkpoints=True,
        tolerable_failed_checkpoints=2**31 - 1 if tolerable is None else tolerable,
        aligned_checkpoint_timeout=0,
        checkpoints_after_tasks_finish=True,
        state_changelog_enabled=True,
        changelog_periodic_materialization_interval=_FOREVER
        if options.interval is None
        else options.interval // 1000,
        changelog_storage="kafka",
    )


def details(moment: Moment, parameters: Parameters) -> Checkpoint:
    """GET /jobs/:jobid/checkpoints/details/:checkpointid"""
    _, view = find_job(moment, parameters)
    found = _find(moment, view.job_id, parameters)
    return _checkpoint(moment, find_graph(moment, view), view.job_id, found, with_tasks=True)


def subtasks(moment: Moment, parameters: Parameters) -> TaskCheckpointDetails:
    """GET /jobs/:jobid/checkpoints/details/:checkpointid/subtasks/:vertexid"""
    _, view = find_job(moment, parameters)
    graph = find_graph(moment, view)
    vertex = find_vertex(graph, parameters)
    found = _find(moment, view.job_id, parameters)
    parts = _parts(graph, found).get(vertex.vertex_id, [])
    if not parts:
        raise NotFound(f"Could not find checkpointing statistics for vertex {parameters['vertexid']}.")
    acknowledged = [part for part in parts if part.acknowledged is not None]
    metrics = [part.metrics for part in acknowledged if part.metrics is not None]
    task = _task(moment, found, parts)
    return TaskCheckpointDetails(
        **msgspec.structs.asdict(task),
        summary=SubtasksSummary(
            checkpointed_size=Statistics.of([each.bytes_written for each in metrics]),
            state_size=Statistics.of([part.size for part in acknowledged]),
            end_to_end_duration=Statistics.of([_part_duration(found, part) for part in acknowledged]),
            checkpoint_duration=DurationSummary(
                Statistics.of([each.sync_duration // 1000 for each in metrics]),
                Statistics.of([each.async_duration // 1000 for each in metrics]),
            ),
            alignment=AlignmentSummary(
                Statistics.of([0] * len(metrics)),
                Statistics.of([0] * len(metrics)),
                Statistics.of([each.bytes_in_flight for each in metrics]),
                Statistics.of([each.alignment_duration // 1000 for each in metrics]),
            ),
            start_delay=Statistics.of([each.start_delay // 1000 for each in metrics]),
        ),
        subtasks=[_subtask(found, number, part) for number, part in enumerate(parts)],
    )


def _find(moment: Moment, job_id: str, parameters: Parameters) -> CheckpointView:
    wanted = parameters["checkpointid"]
    for each in cluster_view.checkpoints(moment.fold, job_id).checkpoints:
        if each.checkpoint_id == wanted:
            return each
    raise NotFound(f"Could not find checkpointing statistics for checkpoint {wanted}.")


def _is_savepoint(view: CheckpointView) -> bool:
    return view.snapshot_type is SnapshotType.SAVEPOINT


def _duration(moment: Moment, view: CheckpointView) -> int:
    end = moment.now if view.ended is None else view.ended // 1000
    return max(0, end - view.triggered // 1000)


def _part_duration(view: CheckpointView, part: SubtaskCheckpointView) -> int:
    return 0 if part.acknowledged is None else max(0, part.acknowledged - view.triggered) // 1000


def _persisted(parts: Sequence[SubtaskCheckpointView]) -> int:
    return sum(part.metrics.bytes_in_flight for part in parts if part.metrics)


def _latest_ack(parts: Sequence[SubtaskCheckpointView]) -> int:
    return max((part.acknowledged // 1000 for part in parts if part.acknowledged is not None), default=-1)


def _restored(found: CheckpointsView) -> RestoredCheckpoint | None:
    restored: RestoreView | None = found.restored
    if restored is None or restored.checkpoint_id is None:
        return None
    own = next((each for each in found.checkpoints if each.uri == restored.uri), None)
    return RestoredCheckpoint(
        id=restored.checkpoint_id,
        restore_timestamp=restored.at // 1000,
        is_savepoint=own is not None and _is_savepoint(own),
        external_path=restored.uri or "",
    )


def _checkpoint(
    moment: Moment, graph: ExecutionGraphView, job_id: str, view: CheckpointView, *, with_tasks: bool
) -> Checkpoint:
    is_complete = view.status is CheckpointStatus.COMPLETED
    has_failed = view.status is CheckpointStatus.FAILED
    kind = "SYNC_SAVEPOINT" if view.stops else view.snapshot_type.value
    tasks = (
        {
            ids.to_vertex_id(vertex_id): _task(moment, view, parts)
            for vertex_id, parts in _parts(graph, view).items()
        }
        if with_tasks
        else {}
    )
    return Checkpoint(
        class_name="completed" if is_complete else "failed" if has_failed else "in_progress",
        id=view.checkpoint_id,
        status=view.status.value,
        is_savepoint=_is_savepoint(view),
        savepoint_format="NATIVE" if _is_savepoint(view) else None,
        trigger_timestamp=view.triggered // 1000,
        latest_ack_timestamp=_latest_ack(view.subtasks),
        checkpointed_size=view.bytes_written,
        state_size=view.size,
        end_to_end_duration=_duration(moment, view),
        alignment_buffered=0,
        processed_data=0,
        persisted_data=_persisted(view.subtasks),
        num_subtasks=len(view.subtasks),
        num_acknowledged_subtasks=view.acknowledged,
        checkpoint_type=kind,
        tasks=tasks,
        external_path=view.uri if is_complete else msgspec.UNSET,
        discarded=view.discarded if is_complete else msgspec.UNSET,
        failure_timestamp=(view.ended or view.triggered) // 1000 if has_failed else msgspec.UNSET,
        failure_message=(view.reason or view.failure or "unknown") if has_failed else msgspec.UNSET,
    )


def _task(moment: Moment, view: CheckpointView, parts: Sequence[SubtaskCheckpointView]) -> TaskCheckpoint:
    is_waiting = any(part.awaited for part in parts)
    latest = _latest_ack(parts)
    return TaskCheckpoint(
        id=view.checkpoint_id,
        status=view.status.value if is_waiting else CheckpointStatus.COMPLETED.value,
        latest_ack_timestamp=latest,
        checkpointed_size=sum(part.metrics.bytes_written for part in parts if part.metrics),
        state_size=sum(part.size for part in parts),
        end_to_end_duration=max(0, (moment.now if latest < 0 else latest) - view.triggered // 1000),
        alignment_buffered=0,
        processed_data=0,
        persisted_data=_persisted(parts),
        num_subtasks=len(parts),
        num_acknowledged_subtasks=sum(not part.awaited for part in parts),
    )


def _subtask(view: CheckpointView, number: int, part: SubtaskCheckpointView) -> SubtaskCheckpoint:
    if part.acknowledged is None or part.metrics is None:
        return SubtaskCheckpoint("pending_or_failed", number, "pending_or_failed")
    metrics = part.metrics
    return SubtaskCheckpoint(
        class_name="completed",
        index=number,
        status="completed",
        ack_timestamp=part.acknowledged // 1000,
        end_to_end_duration=_part_duration(view, part),
        checkpointed_size=metrics.bytes_written,
        state_size=part.size,
        checkpoint=CheckpointDuration(metrics.sync_duration // 1000, metrics.async_duration // 1000),
        alignment=Alignment(0, 0, metrics.bytes_in_flight, metrics.alignment_duration // 1000),
        start_delay=metrics.start_delay // 1000,
        unaligned_checkpoint=metrics.bytes_in_flight > 0,
        aborted=False,
    )


def _parts(graph: ExecutionGraphView, view: CheckpointView) -> dict[str, list[SubtaskCheckpointView]]:
    """Returns the subtasks of a checkpoint by vertex, each sorted by its number. The name of a task is its vertex's
    name, and in parentheses the subtask."""
    by_name = {_task_name(vertex, number): vertex for vertex in graph.vertices for number in _numbers(vertex)}
    parts: dict[str, list[tuple[int, SubtaskCheckpointView]]] = {}
    for part in view.subtasks:
        vertex = by_name.get(part.task)
        if vertex is not None:
            number = int(part.task.rpartition("(")[2].partition("/")[0])
            parts.setdefault(vertex.vertex_id, []).append((number, part))
    return {
        vertex_id: [part for _, part in sorted(found, key=lambda item: item[0])]
        for vertex_id, found in parts.items()
    }


def _numbers(vertex: VertexView) -> range:
    return range(1, vertex.parallelism + 1)


def _task_name(vertex: VertexView, number: int) -> str:
    return f"{vertex.name} ({number}/{vertex.parallelism})"
