"""A checkpoint by vertex and by subtask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ...history import cluster_view
from ...history.checkpoint_history import CheckpointStatus, CheckpointView, SubtaskCheckpointView
from ...history.execution_history import ExecutionGraphView, VertexView
from ..endpoint import Parameters
from ..errors import NotFound
from ..moment import Moment
from .lookup import find_graph, find_job, find_vertex
from .statistics import Statistics


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


def subtasks(moment: Moment, parameters: Parameters) -> TaskCheckpointDetails:
    """GET /jobs/:jobid/checkpoints/details/:checkpointid/subtasks/:vertexid"""
    _, view = find_job(moment, parameters)
    graph = find_graph(moment, view)
    vertex = find_vertex(graph, parameters)
    found = find_checkpoint(moment, view.job_id, parameters)
    parts = group_by_vertex(graph, found).get(vertex.vertex_id, [])
    if not parts:
        raise NotFound(f"Could not find checkpointing statistics for vertex {parameters['vertexid']}.")
    acknowledged = [part for part in parts if part.acknowledged is not None]
    metrics = [part.metrics for part in acknowledged if part.metrics is not None]
    task = describe_task(moment, found, parts)
    return TaskCheckpointDetails(
        **msgspec.structs.asdict(task),
        summary=SubtasksSummary(
            checkpointed_size=Statistics.of([each.bytes_written for each in metrics]),
            state_size=Statistics.of([part.size for part in acknowledged]),
            end_to_end_duration=Statistics.of([_duration_of(found, part) for part in acknowledged]),
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


def find_checkpoint(moment: Moment, job_id: str, parameters: Parameters) -> CheckpointView:
    wanted = parameters["checkpointid"]
    for each in cluster_view.checkpoints(moment.fold, job_id).checkpoints:
        if each.checkpoint_id == wanted:
            return each
    raise NotFound(f"Could not find checkpointing statistics for checkpoint {wanted}.")


def sum_persisted(parts: Sequence[SubtaskCheckpointView]) -> int:
    return sum(part.metrics.bytes_in_flight for part in parts if part.metrics)


def find_latest_ack(parts: Sequence[SubtaskCheckpointView]) -> int:
    return max((part.acknowledged // 1000 for part in parts if part.acknowledged is not None), default=-1)


def describe_task(
    moment: Moment, view: CheckpointView, parts: Sequence[SubtaskCheckpointView]
) -> TaskCheckpoint:
    is_waiting = any(part.awaited for part in parts)
    latest = find_latest_ack(parts)
    return TaskCheckpoint(
        id=view.checkpoint_id,
        status=view.status.value if is_waiting else CheckpointStatus.COMPLETED.value,
        latest_ack_timestamp=latest,
        checkpointed_size=sum(part.metrics.bytes_written for part in parts if part.metrics),
        state_size=sum(part.size for part in parts),
        end_to_end_duration=max(0, (moment.now if latest < 0 else latest) - view.triggered // 1000),
        alignment_buffered=0,
        processed_data=0,
        persisted_data=sum_persisted(parts),
        num_subtasks=len(parts),
        num_acknowledged_subtasks=sum(not part.awaited for part in parts),
    )


def group_by_vertex(
    graph: ExecutionGraphView, view: CheckpointView
) -> dict[str, list[SubtaskCheckpointView]]:
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


def _duration_of(view: CheckpointView, part: SubtaskCheckpointView) -> int:
    return 0 if part.acknowledged is None else max(0, part.acknowledged - view.triggered) // 1000


def _subtask(view: CheckpointView, number: int, part: SubtaskCheckpointView) -> SubtaskCheckpoint:
    if part.acknowledged is None or part.metrics is None:
        return SubtaskCheckpoint("pending_or_failed", number, "pending_or_failed")
    metrics = part.metrics
    return SubtaskCheckpoint(
        class_name="completed",
        index=number,
        status="completed",
        ack_timestamp=part.acknowledged // 1000,
        end_to_end_duration=_duration_of(view, part),
        checkpointed_size=metrics.bytes_written,
        state_size=part.size,
        checkpoint=CheckpointDuration(metrics.sync_duration // 1000, metrics.async_duration // 1000),
        alignment=Alignment(0, 0, metrics.bytes_in_flight, metrics.alignment_duration // 1000),
        start_delay=metrics.start_delay // 1000,
        unaligned_checkpoint=metrics.bytes_in_flight > 0,
        aborted=False,
    )


def _numbers(vertex: VertexView) -> range:
    return range(1, vertex.parallelism + 1)


def _task_name(vertex: VertexView, number: int) -> str:
    return f"{vertex.name} ({number}/{vertex.parallelism})"
